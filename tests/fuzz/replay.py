"""Give kept inputs to a target again: `python -m tests.fuzz.replay TARGET FILE ...`."""

from pathlib import Path

import click

from tests.fuzz.targets import TARGETS


@click.command()
@click.argument("target", type=click.Choice(list(TARGETS)))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def replay(target: str, files: tuple[Path, ...]) -> None:
    """Give files to a target, which raises again what it raised when they were found."""
    for file in files:
        click.echo(f"{file}: {file.read_bytes()!r}")
        TARGETS[target](file.read_bytes())


if __name__ == "__main__":
    replay()
