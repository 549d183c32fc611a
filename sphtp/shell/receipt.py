"""Receipts: the outcome of a message for its sender, and the callbacks that report it."""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import trio

from sphtp.core.channel.receipts import Outcome, Ticket

Callback = Callable[["Receipt"], object]

CAME: Final = (Outcome.DELIVERED, Outcome.ARRIVED)


class Progress(NamedTuple):
    """The progress of a message, in bytes of its packed form."""

    acked: int
    """The bytes that the peer has acknowledged; 0 or all for a message that fits one packet."""
    total: int
    """The bytes of the whole message."""


class Receipt:
    """The receipt of a message: its outcome and its progress.

    Made by ``Channel.post`` and ``Channel.post_nowait``.
    """

    __slots__ = ("_callbacks", "_channel_callbacks", "_settled", "_ticket")

    def __init__(self, ticket: Ticket, callbacks: "ReceiptCallbacks") -> None:
        callbacks.open[ticket] = self._announce
        self._ticket = ticket
        self._channel_callbacks = callbacks
        self._settled: trio.Event | None = None
        self._callbacks: list[Callback] = []

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the message; None as long as it is not known."""
        return self._ticket.outcome

    @property
    def latency(self) -> float | None:
        """The seconds from ``post`` to the ack; None for a message that is not acknowledged."""
        ticket = self._ticket
        if ticket.outcome not in CAME or ticket.settled_at is None:
            return None
        return ticket.settled_at - ticket.sent_at

    @property
    def progress(self) -> Progress:
        """The acknowledged part of the message. It does not change after the outcome."""
        ticket = self._ticket
        return Progress(ticket.size if ticket.outcome in CAME else ticket.acked, ticket.size)

    async def wait(self) -> Outcome:
        """Wait for the outcome of the message. Cancelling the call does not affect the message."""
        await trio.lowlevel.checkpoint()
        while self._ticket.outcome is None:
            if self._settled is None:
                self._settled = trio.Event()
            await self._settled.wait()
        return self._ticket.outcome

    async def wait_for_progress(self, beyond: int = 0) -> Progress:
        """Wait until more than ``beyond`` bytes are acknowledged, or the outcome is known.

        Return the progress. A loop that passes the last ``acked`` as ``beyond`` follows the
        progress to its end; one step of it may be the progress of several packets. Cancelling the
        call does not affect the message.
        """
        await trio.lowlevel.checkpoint()
        while self._ticket.outcome is None and self._ticket.acked <= beyond:
            await self._channel_callbacks.wait_for_progress(self)
        return self.progress

    def add_callback(self, callback: Callback) -> None:
        """Call ``callback(receipt)`` when the outcome is known, soon if it is known already.

        Callbacks run one after the other in a task of the node that does nothing else. An error in
        a callback ends the node.
        """
        if self._ticket.outcome is None:
            self._callbacks.append(callback)
        else:
            self._channel_callbacks.run_soon(callback, self)

    def _announce(self) -> None:
        if self._settled is not None:
            self._settled.set()
        self._channel_callbacks.end(self)
        for callback in self._callbacks:
            self._channel_callbacks.run_soon(callback, self)
        self._callbacks.clear()


class ReceiptCallbacks:
    """The receipts of a channel whose outcome is not known, and the tasks that wait for progress.

    ``open`` maps the ticket of each message without an outcome to the function that announces the
    outcome.
    """

    __slots__ = ("_watched", "open", "run_soon")

    def __init__(self, run_soon: Callable[[Callback, Receipt], None]) -> None:
        self.run_soon = run_soon
        self.open: dict[Ticket, Callable[[], None]] = {}
        self._watched: dict[Receipt, trio.lowlevel.ParkingLot] = {}

    async def wait_for_progress(self, receipt: Receipt) -> None:
        """Wait until a receipt may have made progress, or has an outcome."""
        lot = self._watched.setdefault(receipt, trio.lowlevel.ParkingLot())
        try:
            await lot.park()
        finally:
            # The next waiting task may have a new lot already.
            if not lot and self._watched.get(receipt) is lot:
                del self._watched[receipt]

    def report_progress(self) -> None:
        """Wake the tasks that wait for progress."""
        for lot in self._watched.values():
            lot.unpark_all()

    def end(self, receipt: Receipt) -> None:
        """Wake the tasks that wait for the progress of a receipt, because it has an outcome."""
        if receipt in self._watched:
            self._watched[receipt].unpark_all()


class CallbackQueue:
    """A queue of callbacks, so that packets leave and arrive between two of them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callback, Receipt]] = deque()
        self._called = trio.Event()

    def run_soon(self, callback: Callback, receipt: Receipt) -> None:
        """Queue a call behind those that wait already."""
        self._waiting.append((callback, receipt))
        self._called.set()

    async def run(self) -> None:
        """Make the calls one after the other, for ever. Raises the error of a call that fails."""
        while True:
            await self._called.wait()
            self._called = trio.Event()
            while self._waiting:
                callback, receipt = self._waiting.popleft()
                callback(receipt)
                await trio.lowlevel.checkpoint()
