"""The scenarios that come with the project, by name."""

import stat
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
        try:
            is_directory = stat.S_ISDIR(path.stat().st_mode)
        except FileNotFoundError:
            complaint = f"{str(value)!r} is neither a file nor one of"
        except OSError as error:
            # Not "no file": what is there may be the scenario.
            if path.name != str(value):
                why = f"cannot read {path}: {error.strerror}"
                raise click.BadParameter(why, ctx, param) from error
            complaint = f"cannot read {path}: {error.strerror}; and it is none of"
        else:
            if not is_directory:
                return path
            complaint = f"{str(value)!r} is a directory, and neither a file nor one of"
        if value in shipped_scenarios():
            return FOLDER / f"{value}.toml"
        raise click.BadParameter(f"{complaint} {', '.join(shipped_scenarios())}.", ctx, param)
