"""Work until it is done or somebody stops it: Ctrl-C, a signal, or standard input that closes."""

import os
import signal
from collections.abc import Awaitable, Callable

import trio

from sphtp.shell.lifetime import running
from sphtp.shell.signals import ending
from sphtp_client.verdict import Verdict

STDIN = 0


async def run_until_stopped(
    work: Callable[[], Awaitable[None]], *, with_stdin: bool = False
) -> Verdict | None:
    """Do the work; return None when it is done, and otherwise how it was stopped.

    ``with_stdin`` stops it when standard input closes, so that it does not outlive its parent.
    """
    stopped: list[Verdict] = []

    async def watch() -> None:
        async with trio.open_nursery() as nursery:
            if with_stdin:
                nursery.start_soon(watch_stdin)
            async for number in signals:
                is_ctrl_c = number == signal.SIGINT
                stop(Verdict.INTERRUPTED if is_ctrl_c else Verdict.TERMINATED)

    async def watch_stdin() -> None:
        await _wait_stdin_closed()
        stop(Verdict.TERMINATED)

    def stop(verdict: Verdict) -> None:
        stopped.append(verdict)
        scope.cancel()

    scope = trio.CancelScope()
    # The receiver stays open while the work is being cleaned up: no second Ctrl-C breaks that.
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
