"""The scenarios that come with the project, by name."""

from pathlib import Path
from typing import Any

import click

# A wheel carries them beside this file; a checkout keeps them at its top.
_CARRIED = Path(__file__).parent / "scenarios"
FOLDER = _CARRIED if _CARRIED.is_dir() else Path(__file__).parents[2] / "scenarios"


def shipped_scenarios() -> list[str]:
    """Return the names, in order."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


class ScenarioFile(click.ParamType[Path]):
    """A scenario: the path of a file, or the name of one that comes with the project."""

    name = "file or name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Find the file."""
        path = Path(value)
        if path.is_file():
            return path
        if value in shipped_scenarios():
            return FOLDER / f"{value}.toml"
        names = ", ".join(shipped_scenarios())
        complaint = f"{str(value)!r} is neither a file nor one of {names}."
        raise click.BadParameter(complaint, ctx, param)
