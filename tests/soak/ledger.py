"""What was sent one way, what came of it, and whether the receipts tell the truth.

It remembers only what is under way, so that a day of messages fits.
"""

from collections import Counter, defaultdict, deque
from typing import NamedTuple

from sphtp.core.channel.receipts import Outcome, Ticket
from tests.soak.payloads import Kind, Stream, compose, identify

ONCE = (Kind.UNRELIABLE, Kind.SEQUENCED)


class Awaited(NamedTuple):
    """A message that has not come yet."""

    size: int
    ticket: Ticket | None


class Ledger:
    """Holds one direction of a conversation to what the channel promises.

    Reliable messages come exactly once, in order within an ordered lane, and are missing only when
    their receipt says that they expired; others come once at most. ``travel`` is how long, in
    seconds, a datagram may be on its way.
    """

    def __init__(self, travel: float) -> None:
        self.sent: Counter[str] = Counter()
        self.came: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        # Unreliable messages that the other side's channel had and nobody heard of.
        self.unheard = 0
        self._travel = travel
        self._numbers: Counter[Stream] = Counter()
        self._awaited: dict[Stream, dict[int, Awaited]] = defaultdict(dict)
        self._latest: dict[Stream, int] = {}
        self._empty = 0
        self._open: dict[Ticket, tuple[Stream, int]] = {}
        # Messages sent once stay awaited for as long as a datagram may still bring them.
        self._fading: deque[tuple[float, Stream, int]] = deque()

    @property
    def has_open_tickets(self) -> bool:
        """Whether it is unknown of some message what became of it."""
        return bool(self._open)

    def numbers(self, kind: Kind) -> list[int]:
        """How many messages each stream of a kind has had."""
        return [count for stream, count in self._numbers.items() if stream.kind is kind]

    def compose(self, stream: Stream, size: int, ticket: Ticket | None = None) -> bytes:
        """Return the next message of a stream, and await it."""
        number = self._numbers[stream]
        self._numbers[stream] += 1
        self._awaited[stream][number] = Awaited(size, ticket)
        self.sent[stream.kind.name] += 1
        if ticket is not None:
            self._open[ticket] = stream, number
        return compose(stream, number, size)

    def compose_empty(self) -> bytes:
        """Await a message of no bytes, which cannot say which it is."""
        self._empty += 1
        self.sent["EMPTY"] += 1
        return b""

    def hear(self, payload: bytes) -> None:
        """Check a message that came."""
        if not payload:
            self._empty -= 1
            self.came["EMPTY"] += 1
            assert self._empty >= 0, "an empty message came twice"
            return
        stream, number = identify(payload)
        awaited = self._awaited[stream].pop(number, None)
        assert awaited is not None, f"{stream} {number} came twice, or too late, or was never sent"
        assert len(payload) == awaited.size, f"{stream} {number} was cut"
        self.came[stream.kind.name] += 1
        if stream.kind is Kind.ORDERED:
            self._pass_over(stream, number)
        if stream.kind is Kind.SEQUENCED:
            assert number > self._latest.get(stream, -1), f"{stream} {number} came after a later"
            self._latest[stream] = number

    def settle(self, ticket: Ticket) -> None:
        """Check a receipt; each comes once."""
        stream, number = self._open.pop(ticket)
        outcome, settled_at = ticket.outcome, ticket.settled_at
        assert outcome is not None
        assert settled_at is not None
        assert settled_at >= ticket.sent_at
        self.outcomes[outcome.name] += 1
        if outcome is Outcome.EXPIRED:
            assert ticket.deadline is not None
            assert settled_at >= ticket.deadline
        if stream.kind in ONCE:
            assert outcome not in (Outcome.CLOSED, Outcome.DELIVERED)
            self._fading.append((settled_at + self._travel, stream, number))
        else:
            assert outcome in (Outcome.DELIVERED, Outcome.EXPIRED), f"{stream} {number}: {outcome}"

    def fade(self, now: float) -> None:
        """Expect no more what was sent once and would have come by now."""
        while self._fading and self._fading[0][0] < now:
            _, stream, number = self._fading.popleft()
            missed = self._awaited[stream].pop(number, None)
            if missed and missed.ticket and missed.ticket.outcome is Outcome.ARRIVED:
                self.unheard += 1

    def check_complete(self, now: float) -> None:
        """See that everything came that had to; raises ``AssertionError`` naming what did not."""
        assert not self._open
        assert not self._empty, f"{self._empty} empty messages are missing"
        self.fade(now)
        assert not self._fading, "time has to pass before this can be told"
        for stream, awaited in self._awaited.items():
            for number, message in awaited.items():
                self._check_expired(stream, number, message)
            awaited.clear()

    def _pass_over(self, stream: Stream, number: int) -> None:
        """What should have come before expired, and comes no more."""
        awaited = self._awaited[stream]
        while awaited and (first := next(iter(awaited))) < number:
            self._check_expired(stream, first, awaited.pop(first))

    def _check_expired(self, stream: Stream, number: int, message: Awaited) -> None:
        expired = message.ticket is not None and message.ticket.outcome is Outcome.EXPIRED
        assert expired, f"{stream} {number} of {message.size} bytes is missing"
        self.came["EXPIRED"] += 1
