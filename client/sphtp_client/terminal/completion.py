"""The verb ``sphtp completion``: a script by which a shell completes verbs, options and files."""

from typing import Final

import click
from click.shell_completion import get_completion_class

from sphtp.__main__ import main

SHELLS: Final = ("bash", "zsh", "fish")

VARIABLE: Final = "_SPHTP_COMPLETE"
"""The variable with which a shell requests candidates from the command, as click names it."""


@click.command(short_help="Print a script for the completion of verbs and options.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script by which SHELL completes the verbs of sphtp, their options, and files.

    In bash: eval "$(sphtp completion bash)". In zsh: eval "$(sphtp completion zsh)". In fish: sphtp
    completion fish | source. A package that is installed for the whole system has the scripts in
    the folders of the shells already.

    Exit codes: 0 the script is printed, 2 wrong arguments.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "sphtp", VARIABLE).source())
