"""Options that several of the verbs have."""

from pathlib import Path
from typing import Final

import click

as_json: Final = click.option(
    "--json", help="Print one JSON document at the end and nothing else.", is_flag=True
)
to_markdown: Final = click.option(
    "--markdown",
    help="Write the result page to this file as well.",
    type=click.Path(dir_okay=False, path_type=Path),
)
