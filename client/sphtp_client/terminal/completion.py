"""The verb ``sphtp completion``: what a shell reads to complete verbs, options and files."""

from typing import Final

import click
from click.shell_completion import get_completion_class

from sphtp.__main__ import main

SHELLS: Final = ("bash", "zsh", "fish")

VARIABLE: Final = "_SPHTP_COMPLETE"
"""The variable with which a shell asks the command for candidates, as click names it."""


@click.command(short_help="Print what makes a shell complete verbs and options.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that makes SHELL complete the verbs of sphtp, their options, and files.

    In bash: eval "$(sphtp completion bash)". In zsh: eval "$(sphtp completion zsh)". In fish: sphtp
    completion fish | source. Where the package is installed for the whole system, its own files do
    that.

    Exit codes: 0 done, 2 wrong arguments.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "sphtp", VARIABLE).source())
