"""When an ack is owed, whatever the application sends."""

import pytest

from sphtp.core.channel.frames import AckDelay
from sphtp.core.channel.received_packets import FULL_SIZE, MOST_UNACKED, REPEAT_AFTER, AckTimer
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.timers import INFINITY
from sphtp.testing import Faults, Pair
from tests.cases import each


def test_an_ack_waits_for_company_and_not_for_long() -> None:
    timer = AckTimer(2, 0.01)
    assert timer.due is None
    timer.owe(1.0, 0, 1, FULL_SIZE, at_once=False)
    assert timer.due == pytest.approx(1.01)
    timer.owe(1.005, 1, 1, FULL_SIZE, at_once=False)
    assert timer.due == 1.005
    timer.sent(1.005)
    assert timer.due is None
    timer.owe(2.0, 2, 1, FULL_SIZE, at_once=False)
    assert timer.due == pytest.approx(2.01), "the count starts anew"


@each("every", [1, 2, 4])
@each("size", [100, FULL_SIZE, 9000])
def test_an_ack_is_due_for_more_bytes_than_the_full_packets_before_it_hold(
    every: int, size: int
) -> None:
    timer, full = AckTimer(every, 0.01), max(size, FULL_SIZE)
    for number in range(1, MOST_UNACKED + 1):
        timer.owe(1.0, number, 1, size, at_once=False)
        assert timer.due is not None
        is_enough = number * size > (every - 1) * full or number == MOST_UNACKED
        assert (timer.due == 1.0) == is_enough


def test_while_packets_are_missing_each_counts_as_full() -> None:
    timer = AckTimer(2, 0.01)
    timer.owe(1.0, 5, 1, 100, 1, at_once=False)
    assert timer.due == pytest.approx(1.01)
    timer.owe(1.001, 6, 1, 100, 1, at_once=False)
    assert timer.due == 1.001


def test_a_gap_is_told_at_once() -> None:
    timer = AckTimer(16, 0.01)
    timer.owe(1.0, 5, 1, FULL_SIZE, at_once=True)
    assert timer.due == 1.0


def test_packets_in_a_row_are_counted_all() -> None:
    timer = AckTimer(16, 0.01)
    timer.owe(1.0, 100, 15, FULL_SIZE, at_once=False)
    assert timer.due == pytest.approx(1.01)
    timer.owe(1.001, 115, 1, FULL_SIZE, at_once=False)
    assert timer.due == 1.001
    assert timer.overdue_from == 100 + MOST_UNACKED


def test_a_repeat_hurries_the_ack_and_never_puts_it_off() -> None:
    timer = AckTimer(2, 0.01)
    timer.owe_again(1.0)
    assert timer.due == 1.0
    timer.owe_again(2.0)
    assert timer.due == 1.0


def test_before_the_bits_run_out_an_ack_is_overdue() -> None:
    timer = AckTimer(2, 0.01)
    assert timer.overdue_from > 2**64
    timer.owe(0.0, 100, 1, FULL_SIZE, at_once=False)
    timer.owe(0.0, 90, 1, FULL_SIZE, at_once=False)
    assert timer.overdue_from == 90 + MOST_UNACKED
    timer.sent(1.005)
    assert timer.overdue_from > 2**64


def test_lateness_is_told_when_it_is_worth_it() -> None:
    timer = AckTimer(2, 0.01)
    timer.newest_at = 1.0
    assert timer.lateness(1.0) == timer.lateness(1.0005) == ()
    (late,) = timer.lateness(1.25)
    assert isinstance(late, AckDelay)
    assert late.delay == pytest.approx(0.25)


def test_a_short_lateness_may_be_missing_behind_a_packet_that_has_it() -> None:
    timer = AckTimer(2, 0.01)
    timer.newest_at = 1.0
    assert not timer.is_late(1.0005)
    assert timer.is_late(1.05)
    assert len(timer.lateness(1.05)) == 1
    assert not timer.is_late(1.05)
    assert timer.is_late(1.06), "at another moment it is another delay"


@pytest.mark.parametrize(("missing", "is_told_again"), [(3, False), (4, True), (31, True)])
def test_where_many_are_missing_all_that_leaves_is_told_a_long_lateness(
    missing: int, is_told_again: bool
) -> None:
    timer = AckTimer(2, 0.01)
    timer.owe(1.0, 40, 1, FULL_SIZE, at_once=True, missing=missing)
    timer.newest_at = 1.0
    assert timer.is_late(1.25)
    assert len(timer.lateness(1.25)) == 1
    assert timer.is_late(1.25) == is_told_again


def test_an_ack_that_nobody_asked_for_is_never_late() -> None:
    timer = AckTimer(2, 0.01)
    assert timer.lateness(100.0) == (), "nothing was heard at all"
    timer.newest_at = 1.0
    timer.newest_at = INFINITY
    assert timer.lateness(9.0) == ()
    timer.newest_at = 9.0
    assert len(timer.lateness(9.5)) == 1


@pytest.mark.parametrize("every", [1, 2, 16])
def test_one_way_traffic_is_acked_as_often_as_asked(every: int) -> None:
    settings = ChannelSettings(ack_every=every, max_datagram=1200, congestion="fixed:1e6")
    pair = Pair(1, settings=settings)
    left, right = pair.open()
    pair.transfer(left, right, [bytes(1100)] * 250)
    figures = right.port.statistics()
    assert figures.sent == pytest.approx(250 / min(every, 9), rel=0.1)
    assert left.port.statistics().lost == 0


def test_a_late_ack_does_not_make_the_way_longer() -> None:
    """The other side is slow to answer, and says so."""
    pair = Pair(1, Faults(delay=0.05), right_settings=ChannelSettings(ack_delay=0.5, ack_every=16))
    left, _ = pair.open()
    for _ in range(30):
        pair.send(left, b"x")
        pair.run(1.1)
    assert left.port.statistics().rtt == pytest.approx(0.1, abs=0.01)


@each(("missing", "times"), [(0, 1), (3, 1), (4, 2), (9, 3), (31, 8)])
def test_an_ack_is_said_again_while_many_are_missing(missing: int, times: int) -> None:
    timer = AckTimer(2, 0.01)
    timer.owe(1.0, 40, 1, FULL_SIZE, at_once=True, missing=missing)
    left = list[float]()
    while (due := timer.due) is not None:
        left.append(due)
        timer.sent(due)
    assert left == pytest.approx([1.0 + REPEAT_AFTER * number for number in range(times)])


def test_an_ack_that_is_said_again_does_not_put_off_the_next_one() -> None:
    timer = AckTimer(2, 0.001)
    timer.owe(1.0, 40, 1, FULL_SIZE, at_once=True, missing=8)
    timer.sent(1.0)
    assert timer.due == pytest.approx(1.0 + REPEAT_AFTER)
    timer.owe(1.002, 41, 1, FULL_SIZE, at_once=False, missing=8)
    assert timer.due == pytest.approx(1.003)
