"""Callbacks of the application's, run in a task of their own."""

from collections import deque

import trio

from sphtp.shell.receipt import Callback, Receipt


class Callbacks:
    """A queue of calls to make, so that a slow callback holds up no packet."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callback, Receipt]] = deque()
        self._called = trio.Event()

    def run_soon(self, callback: Callback, receipt: Receipt) -> None:
        """Make a call after those that wait already."""
        self._waiting.append((callback, receipt))
        self._called.set()

    async def run(self) -> None:
        """Make the calls, one after the other, for ever; an error in one of them leaves."""
        while True:
            await self._called.wait()
            self._called = trio.Event()
            while self._waiting:
                callback, receipt = self._waiting.popleft()
                callback(receipt)
                await trio.lowlevel.checkpoint()
