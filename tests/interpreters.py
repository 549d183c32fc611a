"""Interpreters that have imported the library already, so that each program costs a fork.

Importing takes a third of a second of processor time, and a command half as much again; the pages
hold some sixty programs, and tests of commands start as many. The process that forks imports and
does nothing else: it has no threads and has never opened a socket, so a child is as fresh as an
interpreter that has just run the same imports.
"""

import io
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import reduction
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import trio

from tests.own_clock import OwnClock

PRELOADED: Final = (
    "sphtp",
    "sphtp.testing",
    "sphtp.messages",
    "sphtp.events",
    "sphtp.shell.client",
    "sphtp.shell.flavours",
    "sphtp.shell.qlog",
    "sphtp.shell.server",
    "sphtp.shell.source",
    "sphtp.shell.subscription",
    "sphtp_client.doctor.command",
    "sphtp_server.command",
    "sphtp_benchmarks.process_task",
)

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([*PRELOADED, __name__])


class Ending(NamedTuple):
    """The end of a program: its output, and the error output of one that failed."""

    printed: str
    failure: str | None


async def run_program(program: str, directory: Path, name: str, deadline: float) -> Ending:
    """Run a program in a process of its own, with all warnings as errors.

    Its output goes to files in ``directory`` that bear its ``name``, where the program runs, too.
    It is killed when it runs for longer than ``deadline`` seconds.
    """
    printed, errors = directory / f"{name}.out", directory / f"{name}.err"
    with printed.open("wb") as out, errors.open("wb") as err:
        process = _forks.Process(
            target=_execute, args=(program, directory, _Handed(out.fileno()), _Handed(err.fileno()))
        )
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


class ForkedProcess:
    """A program with pipes to it and from it, in a session of its own.

    It has what tests use of ``trio.Process``.
    """

    def __init__(self, program: str, arguments: Sequence[str] = ()) -> None:
        inward, *outward = pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], *(write for _, write in outward)]
        handed = [_Handed(descriptor) for descriptor in theirs]
        self._process = _forks.Process(target=_converse, args=(program, [*arguments], *handed))
        self._process.start()
        for descriptor in theirs:
            os.close(descriptor)
        self.stdin = trio.lowlevel.FdStream(inward[1])
        self.stdout, self.stderr = (trio.lowlevel.FdStream(read) for read, _ in outward)

    @classmethod
    def of_module(
        cls,
        module: str,
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """Run a module as ``python -m`` does, with these variables in addition."""
        change = f"import os, runpy\nos.environ.update({dict(environ or {})!r})"
        run = f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
        return cls(f"{change}\n{run}", arguments)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    async def wait(self) -> int:
        await trio.lowlevel.wait_readable(self._process.sentinel)
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            # As ``Popen``: a process that has just ended needs no signal.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def aclose(self) -> None:
        """Kill it, wait for its end, and close the pipes."""
        self.kill()
        with trio.CancelScope(shield=True):
            await self.wait()
            for pipe in (self.stdin, self.stdout, self.stderr):
                await pipe.aclose()


class _Handed:
    """A descriptor that a new process gets a copy of."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return _taken, (reduction.DupFd(self._descriptor),)


def _taken(copy: Any) -> int:
    descriptor: int = copy.detach()
    return descriptor


_run = trio.run


def _run_in_own_time(*arguments: Any, **options: Any) -> Any:
    """Run as ``trio.run`` does; figures of a program do not depend on what else a machine does."""
    return _run(*arguments, **{"clock": OwnClock(), **options})


def _execute(program: str, directory: Path, out: int, err: int) -> None:
    trio.run = _run_in_own_time  # type: ignore[assignment]
    os.chdir(directory)
    os.dup2(out, sys.stdout.fileno())
    os.dup2(err, sys.stderr.fileno())
    warnings.resetwarnings()
    warnings.simplefilter("error")
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})


def _converse(program: str, arguments: list[str], *descriptors: int) -> None:
    os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(write_through=True)
    sys.argv[1:] = arguments
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
