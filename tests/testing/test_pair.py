"""The pair drives two endpoints, and says so when they get nowhere."""

import pytest

from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Faults, NeverIdleError, Pair
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
    with pytest.raises(NeverIdleError, match=r"after 8\.\d* s; seed 99"):
        pair.drive(lambda: False, seconds=7.5)
    assert left.state is right.state is State.OPEN


def test_time_that_stands_still_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(5)
    monkeypatch.setattr(pair.left, "poll_timeout", lambda: 0.0)
    with pytest.raises(NeverIdleError, match=r"stands still at 0\.000 s; seed 5"):
        pair.run(1)
