"""Receipts: the outcome of each message with a ticket (talk: a callback when acknowledged)."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from sphtp.core.timers import TimerQueue

if TYPE_CHECKING:
    from sphtp.core.channel.observer import ChannelObserver


class Outcome(Enum):
    """The outcome of a message."""

    DELIVERED = auto()
    """The message was sent reliably, and the peer's channel has acknowledged all of it. The peer's
    application may not have read it yet."""
    ARRIVED = auto()
    """The message was sent once, and its packet was acknowledged. The peer's channel may still have
    dropped it: a ``SEQUENCED`` message if a later one of its lane arrived first, and any message if
    too many others arrived before the peer's application read it, or the peer's node was full."""
    LOST = auto()
    """The message was sent once, and its packet was lost; or the message was dropped before it
    left, because too many waited or packets became too small for it. For any message: the peer
    vanished, or had no such channel any more, before the ack."""
    EXPIRED = auto()
    """The deadline of the message passed before its ack. The message may still have arrived."""
    CLOSED = auto()
    """The channel ended before the ack, for any other reason."""


class Ticket:
    """The record of one message of ``size`` bytes. Times are in seconds of the connection's clock.

    ``copies`` is the number of further packets that repeat the message without waiting for a loss.
    ``message_id`` is the id of a reliable message that left whole; None before, and for any other
    message. ``parts`` counts the parts of the message that are not acked: frames, runs of
    fragments, and the rest that has not left. ``acked`` counts the acked bytes of a fragmented
    message that is not settled. ``outcome`` and ``settled_at`` are None until the ticket is
    settled.
    """

    __slots__ = ("acked", "copies", "deadline", "lane", "message_id", "outcome", "parts",
                 "sent_at", "settled_at", "size")  # fmt: skip

    def __init__(
        self,
        sent_at: float,
        lane: int = 0,
        deadline: float | None = None,
        copies: int = 0,
        size: int = 0,
    ) -> None:
        self.sent_at = sent_at
        self.lane = lane
        self.deadline = deadline
        self.copies = copies
        self.size = size
        self.message_id: int | None = None
        self.parts = 1
        self.acked = 0
        self.outcome: Outcome | None = None
        self.settled_at: float | None = None

    @property
    def is_special(self) -> bool:
        """True if the message has a deadline or copies."""
        return self.deadline is not None or self.copies > 0


class Receipts:
    """The tickets of a connection: the open ones, their deadlines, and those to be reported."""

    __slots__ = ("_expiring", "_observer", "_open", "deadline", "settled")

    def __init__(self, observer: "ChannelObserver | None" = None) -> None:
        self._observer = observer
        # The time at which the next message expires; None if no open ticket has a deadline.
        self.deadline: float | None = None
        self._open: dict[Ticket, None] = {}
        self._expiring = TimerQueue[Ticket]()
        self.settled: deque[Ticket] = deque()

    def add(self, ticket: Ticket) -> None:
        """Track a message from now on."""
        self._open[ticket] = None
        if ticket.deadline is not None:
            self._expiring.set(ticket, ticket.deadline)
            if self.deadline is None or ticket.deadline < self.deadline:
                self.deadline = ticket.deadline

    def settle(self, now: float, tickets: Iterable[Ticket], outcome: Outcome) -> None:
        """Settle tickets with an outcome. A settled ticket keeps its first outcome."""
        for ticket in tickets:
            if ticket in self._open:
                del self._open[ticket]
                ticket.outcome, ticket.settled_at = outcome, now
                self.settled.append(ticket)
                if self._observer is not None:
                    self._observer.message_settled(now, ticket)
                if ticket.deadline is not None:
                    self._expiring.set(ticket, None)
                    if ticket.deadline == self.deadline:
                        self.deadline = self._expiring.next_due()

    def acked(self, now: float, tickets: Sequence[Ticket], size: int = 0) -> None:
        """Count one more acked part of each message; settle a ticket with its last part.

        ``size`` is the number of bytes in the part of a message that has more than one.
        """
        for ticket in tickets:
            ticket.parts -= 1
            if not ticket.parts:
                self.settle(now, (ticket,), Outcome.DELIVERED)
        self.acked_partly(now, tickets, size)

    def acked_partly(self, _now: float, tickets: Sequence[Ticket], size: int) -> None:
        """Add ``size`` acked bytes to the ticket of a message that is not settled."""
        for ticket in tickets:
            if ticket.outcome is None:
                ticket.acked += size

    def expire(self, now: float) -> Iterator[Ticket]:
        """Settle and yield the tickets whose deadline has passed."""
        for ticket in self._expiring.take_due(now):
            self.settle(now, (ticket,), Outcome.EXPIRED)
            yield ticket

    def close(self, now: float, outcome: Outcome) -> None:
        """Settle all open tickets with ``outcome``, because the connection has ended."""
        self.settle(now, tuple(self._open), outcome)

    def poll_settled(self) -> Ticket | None:
        """Return the next settled ticket to report; None if there is none."""
        return self.settled.popleft() if self.settled else None
