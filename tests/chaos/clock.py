"""The wall clock of programs, to be stepped while they run."""

import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PROGRAMS: Final = Path(__file__).parent / "programs"


class WallClock:
    """Shared by all programs that are started with its environment."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "step"
        # Written in place: programs have it mapped.
        self._file.write_bytes(struct.pack("d", 0.0))
        self.environment = {"STEP_FILE": str(self._file), **means(folder)}

    def step(self, seconds: float) -> None:
        """Let it be that much ahead of the true time from now on."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("d", seconds))


def compiler() -> str | None:
    """Find a C compiler."""
    return shutil.which("cc")


def means(folder: Path) -> Mapping[str, str]:
    """A library that every clock call of a program meets; else a module that Python's meet."""
    if (command := compiler()) is None:
        print("no C compiler: Python's own clock calls are stepped, and no others")
        return {"PYTHONPATH": str(PROGRAMS / "clock")}
    library = folder / "clock.so"
    options = ("-shared", "-fPIC", "-O1", "-o", str(library))
    subprocess.run([command, *options, str(PROGRAMS / "clock.c"), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}
