"""Pair and Crowd: endpoints on the network, in virtual time."""

import pytest

from sphtp.errors import SettingsError
from sphtp.testing import Crowd, Faults, NeverIdleError, Pair, VirtualClock

BAD = Faults(loss=0.1, duplicate=0.1, jitter=0.02, reorder=0.1, burst=0.01)
PAYLOADS = [(b"%d" % number).ljust(700) for number in range(200)]


def test_a_clock_goes_on_and_never_back() -> None:
    clock = VirtualClock()
    clock.advance(1.5)
    clock.advance_to(2.0)
    assert clock() == clock.now == 2.0
    for wrong in (1.0, float("nan")):
        with pytest.raises(ValueError, match="cannot go back from 2"):
            clock.advance_to(wrong)


def test_a_pair_on_a_bad_network_delivers_in_order_and_the_same_each_time() -> None:
    traces = []
    for _ in range(2):
        pair = Pair(3, BAD)
        left, right = pair.open()
        assert pair.transfer(left, right, PAYLOADS) == PAYLOADS
        traces.append((pair.now, pair.network.carried, pair.network.dropped))
    assert traces[0] == traces[1]
    assert traces[0][2] > 0


def test_a_pair_that_cannot_get_there_says_so_with_its_seed() -> None:
    pair = Pair(77, Faults(blocked=True))
    with pytest.raises(NeverIdleError, match="seed 77"):
        pair.open()


def test_in_a_crowd_everyone_reaches_everyone() -> None:
    crowd = Crowd(5, 4, BAD)
    for source in range(4):
        for destination in range(4):
            if source != destination:
                here, there = crowd.open(source, destination)
                assert crowd.transfer(here, there, [b"hello"]) == [b"hello"]
                assert crowd.transfer(there, here, [b"back"]) == [b"back"]


def test_in_a_crowd_one_can_be_cut_off() -> None:
    crowd = Crowd(5, 3)
    one, two = crowd.open(0, 1), crowd.open(0, 2)
    crowd.network.set_faults(Faults(blocked=True), crowd.addresses[0], crowd.addresses[1])
    crowd.send(one[0], b"lost")
    crowd.send(two[0], b"kept")
    crowd.run(1.0)
    assert (crowd.receive(one[1]), crowd.receive(two[1])) == ([], [b"kept"])


def test_what_goes_to_nobody_vanishes() -> None:
    crowd = Crowd(5, 1)
    crowd.endpoints[crowd.addresses[0]].dial(crowd.now, [("192.0.2.1", 1)])
    crowd.run(1.0)
    assert crowd.network.carried > 0


@pytest.mark.parametrize("count", [0, 65_001])
def test_a_crowd_has_a_size(count: int) -> None:
    with pytest.raises(SettingsError, match=f"count is {count}"):
        Crowd(1, count)
