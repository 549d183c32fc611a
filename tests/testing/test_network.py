"""The simulated network does what its faults say, and the same again for the same seed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.testing import Faults, SimulatedNetwork
from sphtp.testing.network import Delivery

A, B = ("10.0.0.1", 1), ("10.0.0.2", 2)


def carry(
    seed: int, faults: Faults, count: int = 2000, size: int = 4
) -> list[tuple[float, Delivery]]:
    """Send numbered datagrams from A to B, all at time 1, and note when each arrives."""
    network = SimulatedNetwork(seed, faults)
    for number in range(count):
        network.send(1.0, A, B, number.to_bytes(size, "little"))
    arrivals = []
    while (when := network.next_time()) is not None:
        arrivals += [(when, delivery) for delivery in network.take_due(when)]
    assert network.carried == len(arrivals)
    return arrivals


def numbers(arrivals: list[tuple[float, Delivery]]) -> list[int]:
    return [int.from_bytes(delivery.datagram, "little") for _, delivery in arrivals]


def test_a_good_network_carries_in_order_after_its_delay() -> None:
    arrivals = carry(1, Faults(delay=0.25))
    assert numbers(arrivals) == list(range(2000))
    assert {when for when, _ in arrivals} == {1.25}
    assert arrivals[0][1] == Delivery(A, B, bytes(4))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_loss_and_duplication_are_shares(share: float) -> None:
    assert len(carry(1, Faults(loss=share))) == pytest.approx(2000 * (1 - share), abs=80)
    assert len(carry(1, Faults(duplicate=share))) == pytest.approx(2000 * (1 + share), abs=80)


def test_jitter_reorders_and_loses_nothing() -> None:
    arrivals = carry(1, Faults(delay=0.1, jitter=0.2))
    assert numbers(arrivals) != sorted(numbers(arrivals)) == list(range(2000))
    times = [when for when, _ in arrivals]
    assert times == sorted(times)
    assert 1.1 <= times[0] < 1.11
    assert 1.29 < times[-1] <= 1.3


def test_corruption_flips_one_bit() -> None:
    arrivals = carry(1, Faults(corrupt=0.5))
    flips = [
        (number ^ got).bit_count() for number, got in enumerate(numbers(arrivals)) if number ^ got
    ]
    assert set(flips) == {1}
    assert len(flips) == pytest.approx(1000, abs=80)


def test_an_empty_datagram_has_nothing_to_corrupt() -> None:
    network = SimulatedNetwork(1, Faults(corrupt=1.0))
    network.send(0.0, A, B, b"")
    assert [delivery.datagram for delivery in network.take_due(1.0)] == [b""]


def test_what_is_too_large_or_blocked_is_dropped() -> None:
    network = SimulatedNetwork(1, Faults(mtu=100))
    network.send(0.0, A, B, bytes(100))
    network.send(0.0, A, B, bytes(101))
    network.set_faults(Faults(blocked=True), A, B)
    network.send(0.0, A, B, b"x")
    assert (network.carried, network.dropped) == (1, 2)


def test_faults_belong_to_one_direction() -> None:
    network = SimulatedNetwork(1)
    network.set_faults(Faults(blocked=True), A, B)
    network.send(0.0, A, B, b"lost")
    network.send(0.0, B, A, b"found")
    network.set_default(Faults(blocked=True))
    network.send(0.0, B, A, b"lost")
    assert [delivery.datagram for delivery in network.take_due(1.0)] == [b"found"]


def test_only_what_is_due_arrives() -> None:
    network = SimulatedNetwork(1, Faults(delay=1.0))
    assert network.next_time() is None
    network.send(0.0, A, B, b"x")
    assert network.take_due(0.999) == []
    assert network.next_time() == 1.0
    assert len(network.take_due(1.0)) == 1


shares = st.floats(0, 1)


@given(
    st.integers(0, 2**64),
    st.builds(Faults, loss=shares, duplicate=shares, corrupt=shares, delay=shares, jitter=shares),
)
def test_one_seed_gives_one_trace(seed: int, faults: Faults) -> None:
    assert carry(seed, faults, 50) == carry(seed, faults, 50)
