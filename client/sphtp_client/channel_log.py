"""The file in which a client writes down what happens in its channels."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sphtp import Instrument
from sphtp.errors import SettingsError
from sphtp.watch import QlogWriter


@contextmanager
def channel_log(path: Path | None, title: str) -> Iterator[tuple[Instrument, ...]]:
    """Write to a file for the length of the block; give the instruments that do, none for None.

    Raises ``SettingsError`` when the file cannot be opened.
    """
    if path is None:
        yield ()
        return
    try:
        writer = QlogWriter(path, title=title)
    except OSError as error:
        raise SettingsError(f"--qlog = {path}: {error.strerror}") from error
    with writer:
        yield (writer,)


def make_log_directory(path: Path) -> None:
    """Make sure that there is a directory for logs; raises ``SettingsError`` if there cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"--qlog = {path}: {error.strerror}") from error
