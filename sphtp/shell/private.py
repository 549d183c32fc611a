"""Files that nobody else may read."""

import stat
from pathlib import Path
from typing import Final

from sphtp.errors import SettingsError

OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def require_own(path: Path, mode: int) -> None:
    """Raise ``SettingsError`` when a file with this mode is open to others."""
    if mode & OTHERS:
        raise SettingsError(
            f"{path} is open to others (mode {stat.S_IMODE(mode):04o}); "
            f"make it yours alone: chmod 600 {path}"
        )
