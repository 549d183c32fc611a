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

    def add_callback(self, callback: Callback) -> None:
        """Call ``callback(receipt)`` when the outcome is known, soon if it is known already.

        Callbacks run one after the other in a task of the node's, never in the one that receives.
        An error in one of them ends the node.
        """
        if self._ticket.outcome is None:
            self._callbacks.append(callback)
        else:
            self._channel_callbacks.run_soon(callback, self)

    def add_progress_callback(self, callback: Callback) -> None:
        """Call ``callback(receipt)`` when there is progress, and a last time when it is settled.

        One call reports all progress until then, not every packet. Progress callbacks run like
        those of ``add_callback``, and before them.
        """
        if self._ticket.outcome is None:
            self._channel_callbacks.watch(self, callback)
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
    """The callbacks of a channel's receipts, for outcomes and for progress.

    ``open`` maps each message without an outcome to the announcement of it.
    """

    __slots__ = ("_watched", "open", "run_soon")

    def __init__(self, run_soon: Callable[[Callback, Receipt], None]) -> None:
        self.run_soon = run_soon
        self.open: dict[Ticket, Callable[[], None]] = {}
        self._watched: dict[Receipt, ProgressCallbacks] = {}

    def watch(self, receipt: Receipt, callback: Callback) -> None:
        """Call a function whenever a receipt has made progress."""
        self._watched.setdefault(receipt, ProgressCallbacks()).callbacks.append(callback)

    def report_progress(self) -> None:
        """Call the functions of receipts that have made progress since the last call."""
        for receipt, callbacks in self._watched.items():
            if callbacks.is_behind(receipt):
                self.run_soon(callbacks.call, receipt)

    def end(self, receipt: Receipt) -> None:
        """Call the progress functions of a receipt one last time."""
        callbacks = self._watched.pop(receipt, None)
        if callbacks is not None and not callbacks.is_due:
            self.run_soon(callbacks.call, receipt)


class ProgressCallbacks:
    """The progress callbacks of a message, and the progress that they were last called for."""

    __slots__ = ("callbacks", "is_due", "told")

    def __init__(self) -> None:
        self.callbacks: list[Callback] = []
        self.told = 0
        # Whether a call is on its way, which will tell of what comes meanwhile as well.
        self.is_due = False

    def is_behind(self, receipt: Receipt) -> bool:
        """Return True, and begin a call, if there is progress and no call is under way."""
        if self.is_due or receipt.progress.acked == self.told:
            return False
        self.is_due = True
        return True

    def call(self, receipt: Receipt) -> None:
        """Call back."""
        self.is_due = False
        self.told = receipt.progress.acked
        for callback in self.callbacks:
            callback(receipt)


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
