"""What a process holds: open files, threads, tasks, memory. Linux tells the first and the last."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

MEMORY = 16 * 1024
"""KiB by which a process may be larger after a fault: what its buffers and its allocator keep."""


@dataclass(frozen=True)
class Census:
    """The belongings of one process; memory in KiB."""

    files: tuple[str, ...]
    threads: int
    memory: int
    tasks: tuple[str, ...] = ()

    def excess_over(self, before: "Census") -> list[str]:
        """Say what is more than it was."""
        pairs = {
            "files": (len(self.files), len(before.files)),
            "threads": (self.threads, before.threads),
            "tasks": (len(self.tasks), len(before.tasks)),
            "KiB": (self.memory, before.memory + MEMORY),
        }
        return [
            f"{now} {what}, {bound} allowed" for what, (now, bound) in pairs.items() if now > bound
        ]


def census_of(pid: int, tasks: tuple[str, ...] = ()) -> Census:
    status = Path(f"/proc/{pid}/status").read_text()
    return Census(
        files=tuple(sorted(files_of(pid))),
        threads=int(found(r"^Threads:\s+(\d+)", status)),
        memory=int(found(r"^VmRSS:\s+(\d+) kB", status)),
        tasks=tasks,
    )


def files_of(pid: int) -> list[str]:
    folder = Path(f"/proc/{pid}/fd")
    targets = []
    for entry in folder.iterdir():
        try:
            targets.append(os.readlink(entry))
        except FileNotFoundError:
            continue  # closed meanwhile
    return targets


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.M)
    assert match is not None, f"{pattern} is not in {text}"
    return match[1]
