"""The common part of the verbs: exit codes, lines of output, and the reaction to signals."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TextIO

import trio

from sphtp.core.printable import printable_lines
from sphtp.shell.lifetime import ending, running


class ExitStatus(Enum):
    """The end of a run, with the exit code of the command."""

    VERIFIED = ("verified", 0)
    FINISHED = ("finished", 0)
    MISMATCH = ("mismatch", 1)
    USAGE = ("usage", 2)
    FAILED = ("failed", 3)
    INTERRUPTED = ("interrupted", 130)
    TERMINATED = ("terminated", 143)

    @property
    def word(self) -> str:
        """The name of the status in JSON."""
        return self.value[0]

    @property
    def code(self) -> int:
        """The exit code."""
        return self.value[1]


def write_line(stream: TextIO, line: str) -> None:
    """Write a line at once, without characters that control a terminal.

    If the stream cannot be written, its later lines are dropped, and standard error gets the
    reason. A closed pipe, and a failure of standard error itself, are not reported.
    """
    try:
        print(printable_lines(line), file=stream, flush=True)
    except OSError as error:
        # Python flushes the stream again at its end, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not isinstance(error, BrokenPipeError) and stream is not sys.stderr:
            write_line(sys.stderr, f"{stream.name}: {error.strerror}; no more is written")


STDIN = 0


async def run_until_stopped(
    work: Callable[[], Awaitable[None]], *, with_stdin: bool = False
) -> ExitStatus | None:
    """Run the work; return None at its end, or the exit status for the signal that stopped it.

    With ``with_stdin``, the work also stops when standard input closes, so that the program does
    not outlive its parent; the status is then TERMINATED.
    """
    stopped: list[ExitStatus] = []

    async def watch() -> None:
        async with trio.open_nursery() as nursery:
            if with_stdin:
                nursery.start_soon(watch_stdin)
            async for number in signals:
                is_ctrl_c = number == signal.SIGINT
                stop(ExitStatus.INTERRUPTED if is_ctrl_c else ExitStatus.TERMINATED)

    async def watch_stdin() -> None:
        await _wait_stdin_closed()
        stop(ExitStatus.TERMINATED)

    def stop(verdict: ExitStatus) -> None:
        stopped.append(verdict)
        scope.cancel()

    scope = trio.CancelScope()
    # The receiver stays open during the clean-up, so that a second Ctrl-C does not interrupt it.
    with trio.open_signal_receiver(*ending()) as signals:
        async with running(watch):
            with scope:
                await work()
    return stopped[0] if scope.cancelled_caught else None


async def _wait_stdin_closed() -> None:
    while True:
        try:
            await trio.lowlevel.wait_readable(STDIN)
        except PermissionError:
            await trio.lowlevel.checkpoint()  # a file, which is always readable
        if not os.read(STDIN, 65536):
            return
