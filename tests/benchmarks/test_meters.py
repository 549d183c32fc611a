"""What both ends count and time, with a clock that is handed out by hand."""

import json

import pytest

from sphtp_benchmarks import meters
from sphtp_benchmarks.meters import (
    LAST,
    MessageSource,
    MessageTally,
    Pauses,
    Stopwatch,
    WrongLengthError,
    percentile,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(meters, "perf_counter", clock)
    monkeypatch.setattr(meters, "sleep", clock.sleep)
    monkeypatch.setattr(meters, "process_time", lambda: 0.5)
    return clock


def test_a_source_sends_until_its_time_is_over_and_then_one_more(clock, capsys):
    source = MessageSource(size=8, seconds=1.0)
    bursts = []
    for burst in source.bursts(3):
        bursts.append(burst)
        clock.now += 0.4
    assert [len(burst) for burst in bursts] == [3, 3, 3, 1]
    assert {len(message) for burst in bursts for message in burst} == {8}
    assert [burst[-1][0] == LAST for burst in bursts] == [False, False, False, True]
    source.done()
    assert json.loads(capsys.readouterr().out) == {"sent": 10, "cpu": 0.0}


def test_a_tally_does_not_count_the_warm_up(clock, capsys):
    tally, message, last = MessageTally(size=4, warm_up=1.0), bytes(4), bytes([LAST, 0, 0, 0])
    assert not tally.take([])
    for _ in range(3):
        assert not tally.take([message] * 5)
        clock.now += 0.5
    assert not tally.take([message] * 7)
    clock.now += 0.5
    assert tally.take([message, last])
    said = json.loads(capsys.readouterr().out)
    assert said == {"received": 24, "reported": 0, "measured": 9, "seconds": 1.0, "cpu": 0.0}


def test_a_tally_refuses_a_message_of_another_length():
    with pytest.raises(WrongLengthError):
        MessageTally(size=4, warm_up=0.0).take([bytes(4), bytes(3), bytes(4)])


def test_a_tally_takes_one_by_one_up_to_the_last(clock, capsys):
    messages = iter([bytes(64)] * 600 + [bytes([LAST]) + bytes(63), b"never asked for"])
    MessageTally(size=64, warm_up=0.0).take_each(lambda: next(messages))
    assert json.loads(capsys.readouterr().out)["received"] == 601
    assert next(messages) == b"never asked for"


def test_a_tally_counts_what_is_lost_and_may_end_without_the_last_message(clock, capsys):
    tally = MessageTally(size=4, warm_up=0.0)
    tally.take([bytes(4)] * 3)
    clock.now += 0.5
    tally.lose(6)
    tally.lose(1)
    tally.end()
    said = json.loads(capsys.readouterr().out)
    assert said == {"received": 3, "reported": 7, "measured": 0, "seconds": 0.5, "cpu": 0.0}


def test_the_last_message_is_repeated_for_those_who_missed_it(clock):
    encores = MessageSource(size=4, seconds=1.0).encores()
    assert [next(encores) for _ in range(3)] == [bytes([LAST, 0, 0, 0])] * 3
    assert clock.now == pytest.approx(100.03)


def test_a_slow_receiver_keeps_to_its_rate_in_steps_of_a_tenth_of_a_second(clock):
    tally, times = MessageTally(size=4, warm_up=0.0, pauses=Pauses(rate=1000.0)), []
    for _ in range(8):
        tally.take([bytes(4)] * 50)
        times.append(clock.now - 100.0)
    assert times == pytest.approx([0.05, 0.05, 0.15, 0.15, 0.25, 0.25, 0.35, 0.35])


def test_a_slow_receiver_that_is_late_does_not_sleep(clock):
    pauses = Pauses(rate=1000.0)
    pauses.take(1)
    clock.now += 5.0
    pauses.take(100)
    assert clock.now == pytest.approx(105.001)


def test_a_stopwatch_times_answers_after_the_warm_up(clock, capsys):
    stopwatch = Stopwatch(size=4, warm_up=0.5, seconds=2.0)
    for took, message in zip([0.5, 0.25, 0.25, 1.0, 0.5, 9.0], stopwatch.pings(), strict=False):
        clock.now += took
        stopwatch.pong(message)
    stopwatch.done()
    said = json.loads(capsys.readouterr().out)
    assert said == {"round_trips": 4, "p50": 250_000.0, "p99": 1_000_000.0}


def test_a_stopwatch_refuses_half_an_answer():
    with pytest.raises(WrongLengthError):
        Stopwatch(size=4, warm_up=0.0, seconds=1.0).pong(b"abc")


def test_percentiles_are_values_that_were_measured():
    assert percentile([1.0], 0.99) == 1.0
    assert percentile([1.0, 2.0], 0.5) == 1.0
    assert percentile([float(value) for value in range(1, 101)], 0.99) == 99.0
