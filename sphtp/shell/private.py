"""Files that nobody else may read."""

import os
import stat
from pathlib import Path
from typing import Final

from sphtp.errors import SettingsError

OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_own(path: Path, most: int = -1) -> bytes:
    """Return what a file holds, ``most`` bytes of it.

    Raises ``SettingsError`` when others may read it, and ``OSError``.
    """
    with path.open("rb") as file:
        # Of the open file: who may change what stands at the path shall not choose what is judged.
        _require_own(path, os.fstat(file.fileno()).st_mode)
        return file.read(most)


def _require_own(path: Path, mode: int) -> None:
    if mode & OTHERS:
        raise SettingsError(
            f"{path} is open to others (mode {stat.S_IMODE(mode):04o}); "
            f"make it yours alone: chmod 600 {path}"
        )
