"""Alarms ring once, the earliest first, and the next one is known."""

from sphtp.core.alarms import Alarms
from sphtp.core.channel.lifecycle import Timer


def test_an_alarm_rings_once() -> None:
    alarms: Alarms[Timer] = Alarms()
    assert alarms.next_due() is None
    assert alarms.take(0.0) is None
    alarms.set(Timer.IDLE, 2.0)
    alarms.set(Timer.RETRY, 1.0)
    assert alarms.next_due() == 1.0
    assert alarms.take(0.999) is None
    assert alarms.take(1.0) is Timer.RETRY
    assert alarms.take(1.0) is None
    assert alarms.next_due() == 2.0


def test_alarms_ring_in_the_order_of_their_times_whatever_the_order_of_setting() -> None:
    alarms: Alarms[Timer] = Alarms()
    for when, timer in enumerate(Timer):
        alarms.set(timer, -when)
    assert [alarms.take(100.0) for _ in Timer] == list(reversed(Timer))


def test_alarms_of_one_time_ring_in_the_order_of_setting() -> None:
    alarms: Alarms[Timer] = Alarms()
    for timer in reversed(Timer):
        alarms.set(timer, 1.0)
    assert [alarms.take(1.0) for _ in Timer] == list(reversed(Timer))


def test_only_an_alarm_that_is_set_moves() -> None:
    alarms: Alarms[Timer] = Alarms()
    alarms.move(Timer.IDLE, 1.0)
    alarms.postpone(Timer.IDLE, 1.0)
    assert alarms.next_due() is None
    alarms.set(Timer.IDLE, 1.0)
    alarms.move(Timer.IDLE, 3.0)
    assert alarms.next_due() == 3.0
    alarms.postpone(Timer.IDLE, 1.0)
    assert alarms.next_due() == 4.0
    assert alarms.take(3.9) is None
    assert alarms.take(4.0) is Timer.IDLE


def test_stop_and_clear() -> None:
    alarms: Alarms[Timer] = Alarms()
    for timer in Timer:
        alarms.set(timer, 1.0)
    alarms.stop(Timer.RETRY, Timer.IDLE)
    alarms.stop(Timer.RETRY)
    assert set(alarms.pending()) == set(Timer) - {Timer.RETRY, Timer.IDLE}
    alarms.clear()
    assert alarms.next_due() is None
    assert alarms.pending() == ()
