"""The pair drives two endpoints, and says so when they get nowhere."""

from random import Random
from typing import Any

import pytest

from sphtp import Identity
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.settings import ChannelSettings
from sphtp.errors import SettingsError
from sphtp.security import Security
from sphtp.testing import Crowd, Faults, NeverIdleError, Pair
from sphtp.testing.network import Address
from sphtp.testing.pair import LEFT, RIGHT


def test_it_opens_a_channel() -> None:
    pair = Pair(1)
    left, right = pair.open()
    assert (left.state, right.state) == (State.OPEN, State.OPEN)
    assert pair.now == pytest.approx(0.03), "CONNECT, ACCEPT and the first data, 10 ms each"


def test_each_side_has_its_settings() -> None:
    pair = Pair(1, right_settings=ChannelSettings(max_message=10))
    left, right = pair.open()
    assert pair.transfer(right, left, [bytes(10)]) == [bytes(10)]
    pair.send(left, b"0123456789")
    pair.run(1)
    assert pair.receive(right) == [b"0123456789"]


def test_a_transfer_goes_on_when_buffers_are_full() -> None:
    pair = Pair(1, Faults(loss=0.2), ChannelSettings(send_buffer=2, receive_buffer=2))
    left, right = pair.open()
    sent = [b"%d" % number for number in range(100)]
    assert pair.transfer(left, right, sent) == sent


def test_time_jumps_from_event_to_event() -> None:
    pair = Pair(1)
    assert not pair.step(), "nothing to wait for"
    pair.run(5)
    assert pair.now == 5
    pair.open()
    times = []
    for _ in range(20):
        assert pair.step()
        times.append(pair.now)
    assert times == sorted(times)
    assert times[-1] > 6


def test_events_can_be_watched_as_time_passes() -> None:
    pair = Pair(1, Faults(delay=0.1))
    left, right = pair.open()
    pair.send(left, b"x")
    began, times = pair.now, list[float]()

    def watch() -> None:
        times.extend(pair.now for _ in pair.receive(right))

    pair.run(1.0, watch)
    assert times == [pytest.approx(began + 0.1)]
    assert pair.now == pytest.approx(began + 1.0)


def test_getting_nowhere_names_the_seed() -> None:
    pair = Pair(1234)
    pair.network.set_faults(Faults(blocked=True), LEFT, RIGHT)
    with pytest.raises(NeverIdleError, match="seed 1234"):
        pair.open()
    pair = Pair(99)
    left, right = pair.open()
    with pytest.raises(NeverIdleError, match=r"after 10\.0* s; seed 99"):
        pair.drive(lambda: False, seconds=7.5)
    assert left.state is right.state is State.OPEN


class Sleepless:
    """An endpoint that always wants to be woken."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    def poll_timeout(self) -> float:
        return 0.0


def test_time_that_stands_still_is_noticed() -> None:
    pair = Pair(5)
    sleepless: Any = Sleepless(pair.left)
    pair.endpoints[LEFT] = sleepless
    with pytest.raises(NeverIdleError, match=r"stands still at 0\.000 s; seed 5"):
        pair.run(1)


def identity(name: str) -> Identity:
    return Identity.draw(Random(name))


def test_both_sides_are_sealed_if_asked_to(seed: int) -> None:
    pair = Pair(seed, Faults(loss=0.1, duplicate=0.1, jitter=0.01), security=Security())
    carried = list[bytes]()
    send = pair.network.send

    def note(now: float, source: Address, destination: Address, datagram: bytes) -> None:
        carried.append(datagram)
        send(now, source, destination, datagram)

    pair.network.send = note  # type: ignore[method-assign]
    left, right = pair.open()
    secret = b"nobody between reads this"
    assert pair.transfer(left, right, [secret] * 100) == [secret] * 100, seed
    assert pair.transfer(right, left, [secret]) == [secret], seed
    assert not any(secret in datagram for datagram in carried), seed
    assert None not in (left.peer_key, right.peer_key)
    assert left.peer_key != right.peer_key, "each drew its own identity"


def test_each_side_has_its_security() -> None:
    mine, yours = Security(identity=identity("left")), Security(identity=identity("right"))
    pair = Pair(1, security=mine, right_security=yours)
    left, right = pair.open(key=identity("right").public)
    assert left.peer_key == identity("right").public
    assert right.peer_key == identity("left").public


def test_whoever_has_another_key_is_refused() -> None:
    pair = Pair(1, security=Security())
    with pytest.raises(NeverIdleError, match="seed 1"):
        pair.open(seconds=20, key=identity("somebody").public)
    assert not pair.right.connections


def test_nobody_proves_a_key_in_the_clear() -> None:
    with pytest.raises(SettingsError, match="in the clear"):
        Pair(1).open(key=identity("somebody").public)


def test_a_seed_gives_one_trace_to_sealed_sides_too(seed: int) -> None:
    def trace() -> tuple[float, bytes | None, int]:
        pair = Pair(seed, Faults(loss=0.2, jitter=0.02), security=Security())
        left, right = pair.open()
        pair.transfer(left, right, [bytes(3000)] * 10)
        return pair.now, left.peer_key, pair.network.carried

    assert trace() == trace()


def test_a_crowd_may_be_sealed() -> None:
    crowd = Crowd(1, 3, security=Security())
    keys = set()
    for position in (1, 2):
        here, there = crowd.open(0, position)
        assert crowd.transfer(here, there, [b"hello"]) == [b"hello"]
        keys |= {here.peer_key, there.peer_key}
    assert len(keys) == 3
    assert None not in keys
