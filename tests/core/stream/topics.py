"""A topic's messages as a source would send them, and a transport that does as it is told."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sphtp.core.stream.delivery import DeliveryController
from sphtp.core.stream.events import (
    Arrived,
    Batch,
    EndReason,
    GivenUp,
    Item,
    Loss,
    LossReason,
    Origin,
    StreamEnd,
)
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.receiver import ReceiverState
from sphtp.core.stream.records import FragmentRecord, Record, RunRecord

TOPIC = 3
OTHER = 9
PART = 4


class Sent(NamedTuple):
    """A message: its number, in how many parts it travels, and what it says."""

    first: int
    parts: int
    payload: bytes


@dataclass
class Script:
    """What a source sends: ``datagrams`` are records, from the datagram ``sqn`` on."""

    number: int = 0
    sqn: int = 0
    sent: list[Sent] = field(default_factory=list)
    datagrams: list[list[Record]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.first = self.number

    @property
    def lead(self) -> int:
        """The last datagram's number."""
        return self.sqn + len(self.datagrams) - 1

    def whole(self, count: int, *, joined: bool = False) -> None:
        """Send small messages, in the datagram before if ``joined``."""
        run = RunRecord(TOPIC, self.number, [f"m{self.number + i}".encode() for i in range(count)])
        self.sent += [Sent(self.number + i, 1, run.payloads[i]) for i in range(count)]
        self._put(run, joined=joined)
        self.number += count

    def large(self, parts: int) -> None:
        """Send a message in parts, each in a datagram of its own."""
        payload = b"".join(b"%04d" % (self.number + i) for i in range(parts))[:-1]
        self.sent.append(Sent(self.number, parts, payload))
        for part in range(parts):
            piece = payload[part * PART : (part + 1) * PART]
            self._put(FragmentRecord(TOPIC, self.number, part, parts, piece), joined=False)
        self.number += 1

    def other(self) -> None:
        """Send a datagram of another topic."""
        self._put(RunRecord(OTHER, 7, [b"other"]), joined=False)

    def arrived(self, place: int) -> Arrived:
        """The datagram at ``place``, as the transport hands it on."""
        return Arrived(self.sqn + place, False, self.datagrams[place])

    def holders(self) -> dict[int, set[int]]:
        """By number, the places of the datagrams that it is in."""
        holders = dict[int, set[int]]()
        for place, records in enumerate(self.datagrams):
            for record in records:
                if record.topic == TOPIC:
                    for number in range(record.first, record.last + 1):
                        holders.setdefault(number, set()).add(place)
        return holders

    def _put(self, record: Record, *, joined: bool) -> None:
        if joined and self.datagrams:
            self.datagrams[-1].append(record)
        else:
            self.datagrams.append([record])


class Missing(set[int]):
    """The numbers that a transport still tries to get."""

    def touches(self, first: int, last: int) -> bool:
        return any(first <= sqn <= last for sqn in self)


class Line:
    """A transport in the hands of a test: it has a lead, and misses what it is not given."""

    def __init__(self, lead: int) -> None:
        self.lead: int | None = lead
        self.state = ReceiverState.ACTIVE
        self.end_reason = EndReason.CLOSED
        self.missing = Missing()
        self._arrived = deque[Arrived]()
        self._given_up = deque[GivenUp]()
        self._tails: Sequence[tuple[int, int]] | None = None

    def arrive(self, arrived: Arrived) -> None:
        """A datagram comes."""
        self.see(arrived.sqn)
        assert arrived.sqn in self.missing
        self.missing.remove(arrived.sqn)
        self._arrived.append(arrived)

    def give_up(self, sqn: int, reason: LossReason = LossReason.TIMEOUT) -> None:
        """A datagram will not come."""
        self.see(sqn)
        assert sqn in self.missing
        self.missing.remove(sqn)
        self._given_up.append(GivenUp(Span(sqn, sqn), reason))

    def see(self, lead: int) -> None:
        """All up to ``lead`` was sent."""
        assert self.lead is not None
        self.missing.update(range(self.lead + 1, lead + 1))
        self.lead = max(self.lead, lead)

    def tell(self, tails: Sequence[tuple[int, int]]) -> None:
        """A session message comes."""
        self._tails = tails

    def end(self) -> None:
        """The session ends: what is missing is given up."""
        for sqn in sorted(self.missing):
            self.give_up(sqn, LossReason.SESSION_END)
        self.state = ReceiverState.ENDED

    # What a subscription asks

    def handle_body_untrusted(self, now: float, body: bytes) -> None:
        """Nothing: the test has told already."""

    def handle_timeout(self, now: float) -> None:
        """Nothing is ever due."""

    def handle_gone(self, now: float, *, anew: bool = False) -> None:
        self.end()

    def poll_transmit(self, now: float) -> bytes | None:
        return None

    def poll_timeout(self) -> float | None:
        return None

    def poll_arrived(self) -> Arrived | None:
        return self._arrived.popleft() if self._arrived else None

    def poll_given_up(self) -> GivenUp | None:
        return self._given_up.popleft() if self._given_up else None

    def poll_tails(self) -> Sequence[tuple[int, int]] | None:
        tails, self._tails = self._tails, None
        return tails

    def statistics(self) -> None:
        return None


def drain(delivery: DeliveryController) -> list[Item]:
    """Return all that is told when the transport has no more."""
    delivery.give_up_unrecoverable()
    return list(iter(delivery.poll_item, None))


class Told(NamedTuple):
    """What a reader was told, by number; a message in parts counts as all of its numbers."""

    delivered: list[int]
    lost: dict[int, LossReason]
    origins: dict[int, Origin]
    numbers: list[int]

    @property
    def is_ordered(self) -> bool:
        """Whether it was told in the order of the numbers, and none left out between."""
        return self.numbers == list(range(self.numbers[0], self.numbers[-1] + 1))


def told(items: Iterable[Item], script: Script) -> Told:
    """Check that everything is told once and as it was sent, and the end last."""
    sent = {message.first: message for message in script.sent}
    told = Told([], {}, {}, [])
    ends = 0
    for item in items:
        assert not ends, f"{item} is told after the end"
        match item:
            case Batch(first, payloads, origin):
                for payload in payloads:
                    message = sent[first]
                    assert payload == message.payload
                    told.delivered.append(first)
                    told.numbers.append(first)
                    told.origins[first] = origin
                    first += 1
            case Loss(first, last, reason):
                told.lost.update(dict.fromkeys(range(first, last + 1), reason))
                told.numbers.extend(range(first, last + 1))
            case StreamEnd():
                ends += 1
    assert len(set(told.numbers)) == len(told.numbers), "something is told twice"
    return told
