"""A path that was asked for too much for a second: recovery must not keep it overloaded.

All copies of what the source sends go over one line, with a queue of 50 ms: those to each receiver,
or one for all of them if they share it. A second of twice its rate loses a thousand datagrams, for
whose repairs there is only the room that new data leaves: so that it takes 2 s at least where data
has half of the line, and 5 s where it has four fifths. Twenty receivers have half of it only, for
the time that it takes to simulate them.
"""

from typing import NamedTuple

import pytest

from sphtp.core.stream.events import ALL_RECEIVERS, Batch, OutgoingBodies
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.wire import BodyFlag, BodyType
from sphtp.testing import Broadcast, Faults, Observer
from sphtp.testing.broadcast import GROUP, STATION
from sphtp.testing.stream import Publisher, Subscriber
from tests.soaked import soaked

SIZE = 1000
"""Bytes of a message: one fills a datagram, with its overhead."""
CAPACITY = 1000
"""Datagrams a second that the line carries to each receiver."""
OVER = 2.0
"""How much more than that is sent in the bad second."""
TICK = 0.005
MOST = 10
"""Seconds after the overload, in one of which it has to be over."""
CALM = 0.1
"""Bytes of recovery beside each byte of data, when it is."""


class Ledger(Observer):
    """Counts the bytes of new data, and of all that is there for recovery; each copy counts."""

    def __init__(self, copies: int) -> None:
        self.data = 0
        self.recovery = 0
        self._copies = copies

    def bodies_sent(self, now: float, publisher: Publisher, outgoing: OutgoingBodies) -> None:
        """Look at what the source says, to all or to one."""
        copies = self._copies if outgoing.receiver == ALL_RECEIVERS else 1
        for body in outgoing.bodies:
            if body[0] == BodyType.DATA and not body[1] & BodyFlag.REPAIR:
                self.data += copies * len(body)
            elif body[0] in {BodyType.DATA, BodyType.NCF}:
                self.recovery += copies * len(body)

    def feedback_sent(self, now: float, subscriber: Subscriber, body: bytes) -> None:
        """Look at what a receiver says."""
        if body[0] == BodyType.NAK:
            self.recovery += len(body)


class Case(NamedTuple):
    """Receivers, whether they share what is sent, and the usual share of the line's rate."""

    receivers: int
    shared: bool
    usual: float


QUICK = [Case(1, False, 0.5)]
LONG = [
    Case(2, True, 0.5),
    Case(1, False, 0.8),
    Case(8, True, 0.5),
    Case(8, False, 0.5),
    Case(8, False, 0.8),
    Case(20, False, 0.5),
    Case(8, True, 0.8),
    Case(20, True, 0.5),
]


class Line:
    """A broadcast over one line, on which a source sends evenly."""

    def __init__(self, seed: int, receivers: int, *, shared: bool, flow_window: int) -> None:
        self._copies = 1 if shared else receivers
        self._ledger = Ledger(self._copies)
        self.broadcast = Broadcast(
            seed,
            receivers,
            settings=StreamSettings(flow_window=flow_window),
            shared=shared,
            observers=[self._ledger],
        )
        rate = 8 * (SIZE + 60) * CAPACITY * self._copies
        faults = Faults(delay=0.002, rate=rate, queue=round(rate / 8 * 0.05))
        places = [GROUP] if shared else [one.address for one in self.broadcast.subscribers]
        self.broadcast.network.share_link(faults, *[(STATION, place) for place in places])

    def send(self, share: float) -> float:
        """Send at a share of the line's rate for a second; return what recovery was of the data."""
        self._ledger.data = self._ledger.recovery = 0
        owed = 0.0
        for _ in range(round(1.0 / TICK)):
            owed += share * CAPACITY * TICK
            if self.broadcast.publisher.source.room:
                self.broadcast.send([bytes(SIZE)] * int(owed))
                owed -= int(owed)
            self.broadcast.run(TICK)
        assert self._ledger.data > 0.9 * min(share, 1.0) * CAPACITY * SIZE * self._copies
        return self._ledger.recovery / self._ledger.data


@pytest.mark.parametrize("flow_window", [StreamSettings().flow_window, *soaked([0])])
@pytest.mark.parametrize("seed", [0, *soaked(range(1, 8))])
@pytest.mark.parametrize("case", [*QUICK, *soaked(LONG)], ids=str)
def test_recovery_ends_after_an_overload(case: Case, seed: int, flow_window: int) -> None:
    line = Line(seed, case.receivers, shared=case.shared, flow_window=flow_window)
    assert line.send(case.usual) == 0
    assert line.send(OVER) > CALM, "that was too much"
    found = list[float]()
    while len(found) < MOST and (not found or found[-1] >= CALM):
        found.append(line.send(case.usual))
    assert found[-1] < CALM, found
    assert line.send(case.usual) < CALM, "it stays so"
    items = [item for one in line.broadcast.subscribers for item in one.items]
    assert all(isinstance(item, Batch) for item in items), "nothing is lost"
