"""What became of a message, for whoever sent it."""

from collections.abc import Callable
from typing import Final, NamedTuple

import trio

from sphtp.core.channel.receipts import Outcome, Ticket

Callback = Callable[["Receipt"], object]

CAME: Final = (Outcome.DELIVERED, Outcome.ARRIVED)


class Progress(NamedTuple):
    """How much of a message has arrived, in bytes as packed."""

    acked: int
    """What the peer has acknowledged; all at once for a message that fits one packet."""
    total: int


class Receipt:
    """Of one message that was sent. Made by ``Channel.send``."""

    __slots__ = ("_callbacks", "_desk", "_settled", "_ticket")

    def __init__(self, ticket: Ticket, desk: "Desk") -> None:
        self._ticket = ticket
        self._desk = desk
        self._settled: trio.Event | None = None
        self._callbacks: list[Callback] = []

    @property
    def outcome(self) -> Outcome | None:
        """What became of it; None as long as that is open."""
        return self._ticket.outcome

    @property
    def latency(self) -> float | None:
        """Seconds from ``send`` to the ack; None for a message that did not arrive."""
        ticket = self._ticket
        if ticket.outcome not in CAME or ticket.settled_at is None:
            return None
        return ticket.settled_at - ticket.sent_at

    @property
    def progress(self) -> Progress:
        """How much of it has arrived; it stays where it was when not all of the message did."""
        ticket = self._ticket
        return Progress(ticket.size if ticket.outcome in CAME else ticket.acked, ticket.size)

    async def wait(self) -> Outcome:
        """Wait until it is known what became of it. Cancelling loses nothing."""
        await trio.lowlevel.checkpoint()
        while self._ticket.outcome is None:
            if self._settled is None:
                self._settled = trio.Event()
            await self._settled.wait()
        return self._ticket.outcome

    def add_callback(self, callback: Callback) -> None:
        """Call ``callback(receipt)`` when it is known; soon, should it be known already.

        Callbacks run one after the other in a task of the node's, never in the one that receives.
        An error in one of them ends the node.
        """
        if self._ticket.outcome is None:
            self._callbacks.append(callback)
        else:
            self._desk.run_soon(callback, self)

    def add_progress_callback(self, callback: Callback) -> None:
        """Call ``callback(receipt)`` when there is progress, and a last time when it is settled.

        Not for every packet: one call tells of all that has come until then. It runs as those of
        ``add_callback`` do, and before them.
        """
        if self._ticket.outcome is None:
            self._desk.follow(self, callback)
        else:
            self._desk.run_soon(callback, self)

    def _announce(self) -> None:
        if self._settled is not None:
            self._settled.set()
        self._desk.end(self)
        for callback in self._callbacks:
            self._desk.run_soon(callback, self)
        self._callbacks.clear()


class Desk:
    """Where a channel's receipts have their callbacks run, and their progress watched."""

    __slots__ = ("_following", "run_soon")

    def __init__(self, run_soon: Callable[[Callback, Receipt], None]) -> None:
        self.run_soon = run_soon
        self._following: dict[Receipt, Follower] = {}

    def follow(self, receipt: Receipt, callback: Callback) -> None:
        """Call back whenever a receipt has made progress."""
        self._following.setdefault(receipt, Follower()).callbacks.append(callback)

    def tell_progress(self) -> None:
        """Call back for those that have made progress since they were last told."""
        for receipt, follower in self._following.items():
            if follower.wants_to_know(receipt):
                self.run_soon(follower.tell, receipt)

    def end(self, receipt: Receipt) -> None:
        """Call back for the last time."""
        follower = self._following.pop(receipt, None)
        if follower is not None and not follower.is_due:
            self.run_soon(follower.tell, receipt)


class Follower:
    """Who wants to know of a message's progress, and what they know."""

    __slots__ = ("callbacks", "is_due", "told")

    def __init__(self) -> None:
        self.callbacks: list[Callback] = []
        self.told = 0
        # Whether a call is on its way, which will tell of what comes meanwhile as well.
        self.is_due = False

    def wants_to_know(self, receipt: Receipt) -> bool:
        """Whether there is news and no call on its way; there is then."""
        if self.is_due or receipt.progress.acked == self.told:
            return False
        self.is_due = True
        return True

    def tell(self, receipt: Receipt) -> None:
        """Call back."""
        self.is_due = False
        self.told = receipt.progress.acked
        for callback in self.callbacks:
            callback(receipt)
