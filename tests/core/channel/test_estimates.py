"""What a channel measures of its path, on paths that are known."""

import pytest

from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Address
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT
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


@pytest.mark.parametrize("congestion", ["cubic", "newreno", "tolerant"])
def test_a_window_that_the_sender_does_not_use_does_not_grow(congestion: str) -> None:
    """Its acks do not show how much the path carries (RFC 9002, section 7.8)."""
    settings = ChannelSettings(congestion=congestion, max_datagram=1200)
    pair = Pair(1, Faults(delay=0.025), settings)
    left, right = pair.open()
    before = left.port.statistics().window
    for _ in range(100):
        pair.transfer(left, right, [b"x" * 1000])
    assert left.port.statistics().window < 1.2 * before
    pair.transfer(left, right, [bytes(50_000)] * 20)
    assert left.port.statistics().window > 2 * before, "one that it uses grows"


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


@pytest.mark.parametrize("loss", [0.97, *soaked([0.9])])
@pytest.mark.parametrize("is_opened_so", [False, True])
def test_lost_acks_neither_lengthen_the_round_trip_nor_slow_a_sender(
    loss: float, is_opened_so: bool
) -> None:
    """What is not acked leaves again each 0.1 s, however long ago the last ack came."""
    weather = Faults(delay=0.01, loss=loss)
    patient = ChannelSettings(timeout=3600, connect_timeout=3600)
    pair = Pair(1, weather if is_opened_so else Faults(delay=0.01), patient)
    sides = dict(zip((LEFT, RIGHT), pair.open(seconds=3600), strict=True))
    pair.network.set_default(weather)
    left_at, pauses = dict.fromkeys(sides, pair.now), list[float]()
    send = pair.network.send

    def noting(now: float, source: Address, destination: Address, datagram: bytes) -> None:
        if sides[source].port.statistics().waiting:
            pauses.append(now - left_at[source])
        left_at[source] = now
        send(now, source, destination, datagram)

    pair.network.send = noting  # type: ignore[method-assign]
    for _ in range(6):
        for address, side in sides.items():
            if not side.port.statistics().waiting:
                left_at[address] = pair.now
            for _ in range(5):
                pair.send(side, bytes(1000))
        pair.run(1)
    assert max(pauses) < 0.801, "eight times as long, while the round trip is not known"
    for side in sides.values():
        assert side.port.statistics().rtt == pytest.approx(0.02, abs=0.002)


@pytest.mark.parametrize("silence", [1, 20])
def test_an_ack_after_a_long_silence_is_no_long_round_trip(silence: float) -> None:
    """After 20 s the delay is longer than its field can express."""
    fair, blocked = Faults(delay=0.01), Faults(blocked=True)
    pair = Pair(1, fair, ChannelSettings(timeout=3600))
    left, right = pair.open()
    pair.run(1)
    pair.network.set_faults(blocked, RIGHT, LEFT)
    pair.send(left, b"its ack is lost")
    pair.run(0.05)
    assert pair.receive(right) == [b"its ack is lost"]
    pair.network.set_faults(blocked, LEFT, RIGHT)
    pair.run(silence)
    pair.network.set_faults(fair, RIGHT, LEFT)
    pair.send(right, b"acks it at last")
    pair.drive(lambda: left.port.readable)
    assert not left.port.statistics().waiting
    assert left.port.statistics().rtt == pytest.approx(0.02, abs=0.0005)
