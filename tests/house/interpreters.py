"""Interpreters that have imported the library already, so that each program costs a fork.

Importing takes 0.3 s of processor time and the pages hold some sixty programs. The process that
forks imports and does nothing else: it has no threads and has never opened a socket, so a child
is as fresh as an interpreter that has just run the same imports.
"""

import multiprocessing
import os
import sys
import warnings
from pathlib import Path
from typing import Final, NamedTuple

import trio

PRELOADED: Final = ("sphtp", "sphtp.testing", "sphtp.messages", "sphtp.events", "sphtp.watch")


class Ending(NamedTuple):
    """The end of a program: its output, and the error output of one that failed."""

    printed: str
    failure: str | None


_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([*PRELOADED, __name__])


async def run_program(program: str, directory: Path, name: str, deadline: float) -> Ending:
    """Run a program in a process of its own, with all warnings as errors.

    Its output goes to files in ``directory`` that bear its ``name``, where the program runs, too.
    It is killed when it runs for longer than ``deadline`` seconds.
    """
    printed, errors = directory / f"{name}.out", directory / f"{name}.err"
    process = _forks.Process(target=_execute, args=(program, directory, printed, errors))
    process.start()
    try:
        with trio.move_on_after(deadline) as scope:
            await trio.lowlevel.wait_readable(process.sentinel)
    finally:
        if process.is_alive():
            process.kill()
        process.join()
    if scope.cancelled_caught:
        return Ending("", f"still running after {deadline:.0f} s")
    failed = process.exitcode != 0
    process.close()
    return Ending(printed.read_text(), errors.read_text() if failed else None)


def _execute(program: str, directory: Path, printed: Path, errors: Path) -> None:
    os.chdir(directory)
    for path, stream in ((printed, sys.stdout), (errors, sys.stderr)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    warnings.resetwarnings()
    warnings.simplefilter("error")
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
