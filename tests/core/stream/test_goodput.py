"""Loss costs a stream little of its rate: at 5 % the slowest receiver keeps 85 % of its goodput.

The line has no limit, the source has: it sends whenever there is room. Counted is what is told in
order, so that whatever waits behind a loss is not.
"""

from typing import NamedTuple

import pytest

from sphtp.core.stream.settings import StreamSettings
from sphtp.testing import Broadcast, Faults
from tests.soaked import soaked

RATE = 10e6
"""Bytes a second of new data."""
SIZE = 1300
"""Bytes of a message: one fills a datagram."""
SECONDS = 3.0
TICK = 0.001
LOSS = 0.05
KEPT = 0.85


class Case(NamedTuple):
    """Receivers, whether they share what is sent and lost, and the round trip."""

    receivers: int
    shared: bool
    round_trip: float


QUICK = [Case(1, False, 0.0005)]
LONG = [
    Case(1, False, 0.01),
    Case(8, False, 0.0005),
    Case(8, False, 0.01),
    Case(20, True, 0.0005),
    Case(20, True, 0.01),
]


def goodput(seed: int, case: Case, loss: float) -> float:
    """Bytes a second that the slowest receiver is told."""
    broadcast = Broadcast(
        seed,
        case.receivers,
        Faults(delay=case.round_trip / 2, loss=loss),
        StreamSettings(data_rate=RATE),
        shared=case.shared,
    )
    for _ in range(round(SECONDS / TICK)):
        while broadcast.publisher.source.room:
            broadcast.send([bytes(SIZE)] * 50)
        broadcast.run(TICK)
    told = (len(one.payloads) for one in broadcast.subscribers)
    return min(told) * SIZE / SECONDS


@pytest.mark.parametrize("seed", [0, *soaked(range(1, 8))])
@pytest.mark.parametrize("case", [*QUICK, *soaked(LONG)], ids=str)
def test_at_5_percent_loss_most_of_the_goodput_is_kept(case: Case, seed: int) -> None:
    lossless = goodput(seed, case, 0.0)
    assert lossless > 0.95 * RATE
    assert goodput(seed, case, LOSS) >= KEPT * lossless
