"""The secret of a cluster that runs here: made for the run, and gone with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sphtp.shell.keys import draw_secret, save_secret


@contextmanager
def secret_file() -> Iterator[Path]:
    """Keep a fresh secret in a directory that nobody else can enter, for the length of the block.

    A file, because the arguments of a process are everybody's to read, and its environment goes to
    whatever it starts.
    """
    with TemporaryDirectory(prefix="sphtp-") as folder:
        file = Path(folder) / "secret"
        save_secret(file, draw_secret())
        yield file
