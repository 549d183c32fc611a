"""Many receivers share a loss, and one that loses everything shares nothing (9 and 11)."""

from collections.abc import Sequence
from math import exp, log
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sphtp.core.stream.events import Batch, Item
from sphtp.core.stream.settings import StreamSettings
from sphtp.testing import Broadcast, Faults, Observer
from sphtp.testing.broadcast import GROUP, STATION
from sphtp.testing.stream import Subscriber, SubscriberTerms
from tests.profiles import brisk

few = settings(max_examples=max(brisk.max_examples // 15, 1))
crowds = st.integers(1, 50)
seeds = st.integers(0, 2**32)

# NAKs for what all of a group lost

GROUPED: Final = StreamSettings().for_group()
LOSSES: Final = 20
RARE: Final = 1e-7


def naks_for_losses(seed: int, receivers: int, round_trip: float) -> int:
    """How many NAKs it takes until all have what none of them got."""
    fine = Faults(delay=round_trip / 2)
    broadcast = Broadcast(seed, receivers, fine, shared=True)
    for _ in range(LOSSES):
        broadcast.network.set_faults(Faults(blocked=True), STATION, GROUP)
        broadcast.send([b"lost"])
        broadcast.network.set_faults(fine, STATION, GROUP)
        broadcast.send([b"here"])
        broadcast.run(0.05)
    assert all(one.payloads == [b"lost", b"here"] * LOSSES for one in broadcast.subscribers)
    return sum(one.transport.statistics().naks_sent for one in broadcast.subscribers)


def most_naks(receivers: int, round_trip: float) -> int:
    """How many NAKs all losses together take, but for one run in ten million.

    Who draws within a round trip of the first one asks, too. Truncated exponential waits have no
    memory, so that each of these has the same chance: the number for one loss is geometric, nearly.
    """
    steepness = log(GROUPED.group_size) + 1
    alone = exp(-steepness * round_trip / GROUPED.initial_backoff)
    truncated = (1 + (1 - alone) / (exp(steepness) - 1)) ** receivers
    # Those beyond the first of each loss are a sum of geometric numbers: negative binomial. They
    # are few, so that their tail is Poisson's and no normal one: where 1.3 are expected, five
    # deviations more are passed once in 1,200 runs.
    chance = 1 - alone / truncated
    extra, share = 0, (1 - chance) ** LOSSES
    beyond = 1 - share
    while beyond > RARE:
        share *= chance * (LOSSES + extra) / (extra + 1)
        extra += 1
        beyond -= share
    return LOSSES + extra


@few
@given(seeds, crowds, st.sampled_from([20, 100]))
def test_a_shared_loss_takes_few_naks_however_many_share_it(
    seed: int, receivers: int, trips: int
) -> None:
    round_trip = GROUPED.initial_backoff / trips
    assert naks_for_losses(seed, receivers, round_trip) <= most_naks(receivers, round_trip)


# One that is deaf

DELAY: Final = 0.002
PERIOD: Final = 0.001
NARROW: Final = StreamSettings(flow_window=3 << 20)
"""Who says nothing is left behind just before the source would have to wait."""


class Stopwatch(Observer):
    """Adds up how long messages take to some receivers; seconds."""

    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0
        self.ignored: Subscriber | None = None

    def items_delivered(self, now: float, subscriber: Subscriber, items: Sequence[Item]) -> None:
        if subscriber is self.ignored:
            return
        for item in items:
            assert isinstance(item, Batch)
            for number in range(item.first, item.first + len(item.payloads)):
                self.total += now - number * PERIOD
                self.count += 1


def mean_latency(seed: int, others: int, messages: int, loss: float, loss_of_one: float) -> float:
    """The mean over all receivers but one, each of which gets everything; seconds."""
    watch = Stopwatch()
    fine = Faults(delay=DELAY, loss=loss)
    broadcast = Broadcast(seed, others + 1, fine, NARROW, observers=[watch])
    watch.ignored = broadcast.subscribers[0]
    lossy = Faults(delay=DELAY, loss=loss_of_one)
    broadcast.network.set_faults(lossy, STATION, watch.ignored.address)
    for number in range(messages):
        broadcast.send([b"%d" % number])
        broadcast.run((number + 1) * PERIOD - broadcast.now)
    broadcast.run(5)
    assert watch.count == others * messages
    return watch.total / watch.count


@few
@given(seeds, st.integers(1, 49), st.sampled_from([0.9, 1.0]))
def test_one_that_loses_almost_everything_is_felt_by_nobody(
    seed: int, others: int, loss: float
) -> None:
    usual = mean_latency(seed, others, 40, 0.0, 0.0)
    assert mean_latency(seed, others, 40, 0.0, loss) <= 1.1 * usual


def test_nobody_waits_for_one_that_says_nothing(seed: int) -> None:
    usual = mean_latency(seed, 2, 600, 0.0, 0.0)
    assert mean_latency(seed, 2, 600, 0.0, 1.0) <= 1.1 * usual


@pytest.mark.soak
def test_nor_do_those_who_lose_something_themselves_on_average(seed: int) -> None:
    """Of one run chance decides: a repair that is lost again holds up all that is behind it."""
    seeds = range(seed, seed + 40)
    usual = sum(mean_latency(this, 8, 3000, 0.05, 0.05) for this in seeds)
    assert sum(mean_latency(this, 8, 3000, 0.05, 1.0) for this in seeds) <= 1.1 * usual


class Worst(Observer):
    """The longest that a message took; ``sent_at`` is when each was sent, in seconds."""

    def __init__(self) -> None:
        self.sent_at = list[float]()
        self.delay = 0.0

    def items_delivered(self, now: float, subscriber: Subscriber, items: Sequence[Item]) -> None:
        for item in items:
            assert isinstance(item, Batch)
            last = item.first + len(item.payloads)
            self.delay = max([self.delay, *(now - at for at in self.sent_at[item.first : last])])


def test_one_that_is_frozen_holds_up_nobody_at_60_kilobytes_a_second(seed: int) -> None:
    """Where datagrams may have 31 kB and have 500 bytes, too: what counts are bytes."""
    watch = Worst()
    settings = StreamSettings().for_loopback(65_507)
    broadcast = Broadcast(seed, 0, Faults(delay=DELAY), settings, observers=[watch])
    frozen, _, other = (broadcast.join(terms=SubscriberTerms(burst=1 << 20)) for _ in range(3))
    for step in range(720):
        if step == 120:
            broadcast.vanish(frozen)
        watch.sent_at.append(broadcast.now)
        broadcast.send([bytes(500)])
        broadcast.run(1 / 120)
    assert watch.delay < 0.01
    source = broadcast.publisher.source
    now = broadcast.now
    assert source.pace(now, frozen.number).behind >= 600
    assert source.pace(now, frozen.number).silence > 4.9
    assert source.pace(now, other.number).silence < 3
