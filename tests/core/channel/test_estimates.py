"""What a channel measures of its path, on paths that are known."""

import pytest

from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Faults, Pair
from tests.soaked import soaked


@pytest.mark.parametrize("megabits", [5, 20])
def test_the_bandwidth_of_a_bottleneck_is_measured(megabits: int) -> None:
    pair = Pair(1, Faults(rate=megabits * 1e6, delay=0.025, queue=megabits * 6250))
    left, right = pair.open()
    pair.transfer(left, right, [bytes(50_000)] * 40)
    assert left.port.statistics().bandwidth == pytest.approx(megabits * 125_000, rel=0.1)


def test_a_sender_with_little_to_send_learns_only_that_it_arrived() -> None:
    pair = Pair(1, Faults(rate=20e6, delay=0.025))
    left, right = pair.open()
    for _ in range(50):
        pair.transfer(left, right, [b"x" * 1000])
    bandwidth = left.port.statistics().bandwidth
    assert bandwidth is not None
    assert 10_000 < bandwidth < 100_000, "a message of 1000 bytes in each round trip"


@pytest.mark.parametrize("mtu", [1200, 1472, 9000, 65_507])
def test_the_size_of_datagrams_comes_near_to_what_the_path_takes(mtu: int) -> None:
    pair = Pair(1, Faults(mtu=mtu))
    left, right = pair.open()
    pair.transfer(left, right, [bytes(50_000)] * 150)
    assert mtu * 15 / 16 <= left.port.statistics().datagram_size <= mtu


def test_what_is_in_flight_stays_within_the_window_and_that_within_its_limit() -> None:
    pair = Pair(1, settings=ChannelSettings(max_window=200_000))
    left, right = pair.open()
    pair.transfer(left, right, [bytes(50_000)] * 30)
    assert 0 < left.port.statistics().window <= 200_000


@pytest.mark.parametrize("jitter", [0.1, *soaked([0.02])])
def test_deep_jitter_is_no_loss(jitter: float) -> None:
    """Packets overtake each other by hundreds; acks reach back to them all the same."""
    pair = Pair(1, Faults(delay=0.025, jitter=jitter), ChannelSettings(max_datagram=1200))
    left, right = pair.open()
    start = pair.now
    pair.transfer(left, right, [bytes(10_000)] * 150)
    figures = left.port.statistics()
    assert figures.lost < 0.08 * figures.sent
    assert pair.now - start < 20 * (0.05 + 2 * jitter), "in some twenty round trips"
