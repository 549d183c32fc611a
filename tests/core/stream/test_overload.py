"""A path that was asked for too much for a second: recovery must not keep it overloaded."""

from collections import Counter

import pytest

from sphtp.core.stream.bodies import BodyFlag, BodyType
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.source.repair_desk import ALL, Outgoing
from sphtp.testing import Broadcast, Faults, Observer
from sphtp.testing.broadcast import GROUP, STATION
from sphtp.testing.publisher import Publisher
from sphtp.testing.subscriber import Subscriber
from tests.soaked import soaked

SIZE = 1000
"""Bytes of a message: one fills a datagram, with its overhead."""
CAPACITY = 1000
"""Datagrams a second that the line carries."""
OVER = 2.0
"""How much more than that is sent in the bad second."""
TICK = 0.005
CALM = 10.0
"""Seconds after the overload when it has to be over."""


class Ledger(Observer):
    """Counts the bytes of new data, and of all that is there for recovery."""

    def __init__(self, copies: int) -> None:
        self.bytes = Counter[str]()
        self._copies = copies

    def said(self, now: float, publisher: Publisher, outgoing: Outgoing) -> None:
        """Look at what the source says: each copy counts."""
        copies = self._copies if outgoing.receiver == ALL else 1
        for body in outgoing.bodies:
            is_new = body[0] == BodyType.DATA and not body[1] & BodyFlag.REPAIR
            if body[0] in {BodyType.DATA, BodyType.NCF}:
                self.bytes["data" if is_new else "recovery"] += copies * len(body)

    def asked(self, now: float, subscriber: Subscriber, body: bytes) -> None:
        """Look at what a receiver says."""
        if body[0] == BodyType.NAK:
            self.bytes["recovery"] += len(body)


def line(receivers: int, *, shared: bool) -> Faults:
    copies = 1 if shared else receivers
    rate = 8 * (SIZE + 60) * CAPACITY * copies
    return Faults(delay=0.002, rate=rate, queue=round(rate / 8 * 0.05))


def overloaded(
    seed: int, receivers: int, usual: float, ledger: Ledger, *, shared: bool
) -> Broadcast:
    """Send at a share of the line's rate, for a second at far more, and then as before."""
    settings = StreamSettings(flow_window=0)
    broadcast = Broadcast(seed, receivers, settings=settings, shared=shared, observers=[ledger])
    places = [GROUP] if shared else [one.address for one in broadcast.subscribers]
    paths = [(STATION, place) for place in places]
    broadcast.network.share_link(line(receivers, shared=shared), *paths)
    for seconds, share in ((2.0, usual), (1.0, OVER), (CALM, usual)):
        send(broadcast, seconds, share)
    return broadcast


def send(broadcast: Broadcast, seconds: float, share: float) -> None:
    """Send evenly at a share of the line's rate."""
    owed = 0.0
    for _ in range(round(seconds / TICK)):
        owed += share * CAPACITY * TICK
        if broadcast.publisher.source.room:
            broadcast.send([bytes(SIZE)] * int(owed))
            owed -= int(owed)
        broadcast.run(TICK)


CASES = [(1, False, 0.8), (8, False, 0.8), (8, True, 0.8), (20, True, 0.5)]


@pytest.mark.parametrize("seed", [0, *soaked(range(1, 20))])
@pytest.mark.parametrize(("receivers", "shared", "usual"), CASES)
def test_recovery_ends_after_an_overload(
    receivers: int, shared: bool, usual: float, seed: int
) -> None:
    ledger = Ledger()
    broadcast = overloaded(seed, receivers, usual, ledger, shared=shared)
    ledger.bytes.clear()
    send(broadcast, 1.0, usual)
    assert ledger.bytes["data"] > 0.9 * usual * CAPACITY * SIZE, f"seed {seed}"
    assert ledger.bytes["recovery"] < 0.1 * ledger.bytes["data"], f"seed {seed}"
