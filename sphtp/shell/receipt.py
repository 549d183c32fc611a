"""Receipts: the outcome of a message for its sender, and the callbacks that report it."""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import trio

from sphtp.core.channel.receipts import Outcome, Ticket

Callback = Callable[["Receipt"], object]

CAME: Final = (Outcome.DELIVERED, Outcome.ARRIVED)


class Progress(NamedTuple):
    """The progress of a message: the part that has arrived, in bytes as packed."""

    acked: int
    """The bytes that the peer has acknowledged; all at once for a message that fits one packet."""
    total: int


class Receipt:
    """The receipt of a message that was sent. Made by ``Channel.post``."""

    __slots__ = ("_callbacks", "_channel_callbacks", "_settled", "_ticket")

    def __init__(self, ticket: Ticket, callbacks: "ReceiptCallbacks") -> None:
        callbacks.open[ticket] = self._announce
        self._ticket = ticket
        self._channel_callbacks = callbacks
        self._settled: trio.Event | None = None
        self._callbacks: list[Callback] = []

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the message; None as long as that is open."""
        return self._ticket.outcome

    @property
    def latency(self) -> float | None:
        """Seconds from ``post`` to the ack; None for a message that did not arrive."""
        ticket = self._ticket
        if ticket.outcome not in CAME or ticket.settled_at is None:
            return None
        return ticket.settled_at - ticket.sent_at

    @property
    def progress(self) -> Progress:
        """The part of the message that has arrived. It stays as it was if the rest is lost."""
        ticket = self._ticket
        return Progress(ticket.size if ticket.outcome in CAME else ticket.acked, ticket.size)

    async def wait(self) -> Outcome:
        """Wait for the outcome of the message. Cancelling loses nothing."""
        await trio.lowlevel.checkpoint()
        while self._ticket.outcome is None:
            if self._settled is None:
                self._settled = trio.Event()
            await self._settled.wait()
        return self._ticket.outcome

    async def wait_for_progress(self, beyond: int = 0) -> Progress:
        """Wait until more than ``beyond`` bytes have arrived, or the outcome is known.

        Returns the progress. Called in a loop with the last ``acked``, it tells of all progress,
        but not of every packet. Cancelling loses nothing.
        """
        await trio.lowlevel.checkpoint()
        while self._ticket.outcome is None and self._ticket.acked <= beyond:
            await self._channel_callbacks.wait_for_progress(self)
        return self.progress

    def add_callback(self, callback: Callback) -> None:
        """Call ``callback(receipt)`` when the outcome is known, soon if it is known already.

        Callbacks run one after the other in a task of the node's, never in the one that receives.
        An error in one of them ends the node.
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
    """The receipts of a channel that somebody waits for.

    ``open`` maps each message without an outcome to the announcement of it.
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
            # The next one to wait may have a new lot already.
            if not lot and self._watched.get(receipt) is lot:
                del self._watched[receipt]

    def report_progress(self) -> None:
        """Wake the tasks that wait for progress."""
        for lot in self._watched.values():
            lot.unpark_all()

    def end(self, receipt: Receipt) -> None:
        """Wake the tasks that wait for a receipt."""
        if receipt in self._watched:
            self._watched[receipt].unpark_all()


class CallbackQueue:
    """A queue of calls to make, so that a slow callback holds up no packet."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callback, Receipt]] = deque()
        self._called = trio.Event()

    def run_soon(self, callback: Callback, receipt: Receipt) -> None:
        """Make a call after those that wait already."""
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
