"""Timers come due once, in order, and the next one is known."""

from sphtp.core.channel.timers import Timer, Timers


def test_a_timer_comes_due_once() -> None:
    timers = Timers()
    assert timers.next() is None
    timers.set(Timer.IDLE, 2.0)
    timers.set(Timer.RETRY, 1.0)
    assert timers.next() == 1.0
    assert timers.take_due(0.999) == []
    assert timers.take_due(1.0) == [Timer.RETRY]
    assert timers.take_due(1.0) == []
    assert timers.next() == 2.0


def test_due_timers_come_in_the_order_of_the_enum() -> None:
    timers = Timers()
    for when, timer in enumerate(reversed(Timer)):
        timers.set(timer, when)
    assert timers.take_due(100) == list(Timer)


def test_only_a_timer_that_is_set_moves() -> None:
    timers = Timers()
    timers.move(Timer.IDLE, 1.0)
    assert timers.next() is None
    timers.set(Timer.IDLE, 1.0)
    timers.move(Timer.IDLE, 3.0)
    assert timers.next() == 3.0
    assert not timers.is_due(Timer.IDLE, 1.0)


def test_stop_and_clear() -> None:
    timers = Timers()
    for timer in Timer:
        timers.set(timer, 1.0)
    timers.stop(Timer.RETRY, Timer.IDLE)
    timers.stop(Timer.RETRY)
    assert Timer.RETRY not in timers.take_due(1.0)
    timers.set(Timer.CLOSE, 1.0)
    timers.clear()
    assert timers.next() is None
