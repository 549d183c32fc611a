"""A small disk for the output of one program, full when we say so.

It is a file system of its own in a mount namespace, where the machine allows that; else a file that
may not grow.
"""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

SIZE = 256 * 1024
SCRIPT = 'mount -t tmpfs -o size={size} none "$0" && exec "$@" >"$0/log"'
IN_A_FILE = 'exec "$@" >"$0/log"'


class Disk(Protocol):
    """Holds the file ``log``, which the program writes."""

    def entry(self) -> tuple[str, ...]:
        """The words before a command that make it write to this disk."""

    def log(self, pid: int) -> Path:
        """Where its output is found from outside."""

    def fill(self, pid: int) -> None:
        """Leave no room."""

    def clear(self, pid: int) -> None:
        """Make room again."""


class SmallDisk:
    """A file system in memory, which another file fills."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entry(self) -> tuple[str, ...]:
        shell = ("sh", "-c", SCRIPT.format(size=SIZE))
        return ("unshare", "--mount", *shell, str(self._folder))

    def log(self, pid: int) -> Path:
        return self._inside(pid) / "log"

    def fill(self, pid: int) -> None:
        with suppress(OSError), (self._inside(pid) / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(512)):
                pass
        assert shutil.disk_usage(self._inside(pid)).free == 0

    def clear(self, pid: int) -> None:
        (self._inside(pid) / "ballast").unlink()

    def _inside(self, pid: int) -> Path:
        return Path(f"/proc/{pid}/root{self._folder}")


class ShortFile:
    """A file of which the kernel lets no more be written than there is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entry(self) -> tuple[str, ...]:
        return ("sh", "-c", IN_A_FILE, str(self._folder))

    def log(self, pid: int) -> Path:
        return self._folder / "log"

    def fill(self, pid: int) -> None:
        self._limit(pid, os.stat(self.log(pid)).st_size + 10)

    def clear(self, pid: int) -> None:
        self._limit(pid, resource.RLIM_INFINITY)

    def _limit(self, pid: int, size: int) -> None:
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def small_disk(folder: Path) -> Disk:
    """A disk of its own, or a short file where the machine allows no mounts."""
    mount = ("unshare", "--mount", "mount", "-t", "tmpfs", "none", str(folder))
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return SmallDisk(folder)
    print(f"a short file in place of a small disk: {done.stderr}")
    return ShortFile(folder)


DISKS: tuple[Callable[[Path], Disk], ...] = (small_disk, ShortFile)
