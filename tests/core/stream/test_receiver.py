"""The session of a receiver: where it starts, what it takes, how it ends."""

import pytest

from sphtp.core.stream.events import GivenUp, LossReason
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.receiver import REACH, ReceiverState
from sphtp.core.stream.wire import BodyFlag, NcfReason, Window, encode_data
from tests.cases import each
from tests.core.stream.receivers import DrivenReceiver

JOINING, ACTIVE, ENDING, ENDED = ReceiverState
STARTS = (0, 1, 2**31 - 2, 2**32 - 2, 2**32, 2**40)


# JOINING


@each("start", STARTS)
def test_what_was_lost_right_after_the_join_is_seen(start: int) -> None:
    driven = DrivenReceiver(start)
    assert (driven.receiver.state, driven.receiver.lead) == (JOINING, start - 1)
    driven.lose(2)
    driven.send()
    assert driven.receiver.state is ACTIVE
    assert driven.heard == [start + 2]
    assert driven.pending == [Span(start, start + 1)]


def test_without_a_window_the_first_original_is_the_start() -> None:
    driven = DrivenReceiver(is_told=False)
    assert driven.receiver.lead is None
    assert driven.receiver.settled is None
    driven.lose(5)
    driven.lead = 4
    driven.send(2)
    assert driven.heard == [5, 6]
    assert driven.receiver.lead == 6
    assert driven.receiver.statistics().lost == 0


def test_without_a_window_a_session_message_lets_it_start_behind_the_lead() -> None:
    driven = DrivenReceiver(is_told=False)
    driven.lose(5)
    driven.lead = 4
    driven.session()
    assert driven.receiver.lead == 4
    driven.lose()
    driven.send()
    assert driven.pending == [Span(5, 5)]


def test_a_repair_is_no_start() -> None:
    driven = DrivenReceiver(is_told=False)
    driven.lose(5)
    driven.lead = 4
    driven.repair(2)
    assert driven.heard == []
    assert driven.receiver.lead == 4
    assert driven.receiver.statistics().before_start == 1


def test_what_was_sent_before_the_join_is_not_wanted() -> None:
    driven = DrivenReceiver(start=10)
    driven.drop(0)
    driven.data(9, window=Window(9, 0))
    assert driven.heard == []
    assert driven.receiver.statistics().before_start == 1


def test_a_source_that_is_never_heard_is_not_there() -> None:
    driven = DrivenReceiver(activity_timeout=20.0)
    driven.wait(19.9)
    assert driven.receiver.state is JOINING
    driven.wait(0.2)
    assert driven.receiver.state is ENDED


def test_a_node_that_vanishes_before_it_was_heard_is_the_end() -> None:
    driven = DrivenReceiver()
    driven.gone()
    assert driven.receiver.state is ENDED


# ACTIVE


def test_what_comes_in_order_is_handed_on_at_once() -> None:
    driven = DrivenReceiver()
    driven.send(100)
    assert driven.heard == list(range(100))
    assert not any(arrived.repair for arrived in driven.arrived)
    assert driven.naks == []
    assert driven.receiver.settled == 99


def test_each_datagram_is_handed_on_once() -> None:
    driven = DrivenReceiver()
    driven.send(3)
    for sqn in (2, 0, 1):
        driven.data(sqn)
        driven.repair(sqn)
    assert driven.heard == [0, 1, 2]
    assert driven.receiver.statistics().duplicates == 6


def test_a_duplicate_is_dropped_before_its_records_are_read() -> None:
    driven = DrivenReceiver()
    driven.send(3)
    driven.hear(encode_data(1, driven.window, b"\xffnonsense"))
    statistics = driven.receiver.statistics()
    assert (statistics.duplicates, statistics.malformed) == (1, 0)


def test_a_datagram_whose_records_make_no_sense_changes_nothing() -> None:
    driven = DrivenReceiver()
    driven.send(3)
    driven.hear(encode_data(9, Window(9, 9), b"\xffnonsense"))
    assert driven.receiver.lead == 2
    driven.hear(encode_data(3, Window(3, 0), b"\xffnonsense"))
    assert driven.receiver.lead == 2
    assert driven.receiver.statistics().malformed == 2
    driven.send()
    assert driven.heard == [0, 1, 2, 3]


def test_the_first_datagram_is_read_before_it_is_a_start() -> None:
    driven = DrivenReceiver(is_told=False)
    driven.hear(encode_data(7, Window(7, 0), b"\xffnonsense"))
    assert driven.receiver.state is JOINING
    assert driven.receiver.lead is None


def test_a_datagram_without_records_has_its_place() -> None:
    driven = DrivenReceiver()
    driven.receiver.handle_body_untrusted(0.0, encode_data(0, Window(0, 0), b""))
    arrived = driven.receiver.poll_arrived()
    assert arrived is not None
    assert (arrived.sqn, arrived.records) == (0, [])


def test_a_lead_tells_of_the_tail() -> None:
    driven = DrivenReceiver()
    driven.send()
    driven.lose(3)
    driven.session()
    assert driven.pending == [Span(1, 3)]
    assert driven.wait_for_nak() == [Span(1, 3)]
    driven.lose()
    driven.repair(2)
    assert driven.pending == [Span(1, 1), Span(3, 4)], "a repair has the lead, too"


def test_a_repair_of_what_nobody_missed_yet_is_as_good_as_the_original() -> None:
    driven = DrivenReceiver()
    driven.send()
    driven.lose(2)
    driven.repair(2)
    assert driven.heard == [0, 2]
    driven.lose()
    driven.repair(3)
    assert [arrived.repair for arrived in driven.arrived] == [False, True, True]
    assert driven.pending == [Span(1, 1)]


def test_a_hole_of_a_billion_costs_one_range() -> None:
    driven = DrivenReceiver()
    driven.send()
    driven.lose(REACH - 2)
    driven.session()
    assert driven.pending == [Span(1, REACH - 2)]
    assert len(driven.receiver.missing) == 1
    driven.drop(REACH - 4)
    driven.session()
    assert driven.given_up == [GivenUp(Span(1, REACH - 5), LossReason.WINDOW)]


@pytest.mark.parametrize(
    "window",
    [
        Window(REACH + 5, REACH + 5),
        Window(3 - REACH, 2 - REACH),
        Window(2**31 - 5, 2**31 - 5),
        Window(6, 5 - REACH),
    ],
)
def test_what_no_source_can_mean_is_dropped(window: Window) -> None:
    driven = DrivenReceiver()
    driven.send(5)
    for sqn in window:
        driven.hear(encode_data(sqn, window, b""))
    assert driven.receiver.lead == 4
    assert driven.receiver.statistics().implausible == 2
    driven.send()
    assert driven.heard == list(range(6))


def test_a_number_outside_its_window_is_dropped() -> None:
    driven = DrivenReceiver()
    driven.send(5)
    driven.data(9, window=Window(8, 0))
    driven.data(4, window=Window(8, 5))
    driven.data(5, window=Window(5, 6))
    assert driven.receiver.lead == 4
    assert driven.receiver.statistics().malformed == 3


def test_tails_are_told_once_and_never_older_ones() -> None:
    driven = DrivenReceiver()
    receiver = driven.receiver
    driven.number = 2**32 - 2
    driven.session(tails=[(0, 7)])
    assert receiver.poll_tails() == [(0, 7)]
    assert receiver.poll_tails() is None
    driven.session(tails=[(0, 9), (3, 1)])
    driven.number -= 2
    driven.session(tails=[(0, 7)])
    assert receiver.poll_tails() == [(0, 9), (3, 1)]
    assert receiver.statistics().session_messages == 3


def test_a_source_that_sends_is_there() -> None:
    driven = DrivenReceiver()
    for _ in range(4):
        driven.send(2)
        driven.wait(14.9)
    assert driven.receiver.state is ACTIVE


def test_a_source_that_is_silent_vanished() -> None:
    driven = DrivenReceiver(generation=60.0)
    driven.lose()
    driven.send()
    driven.wait(29.9)
    assert driven.receiver.state is ACTIVE
    driven.session()
    driven.wait(29.9)
    assert driven.receiver.state is ACTIVE
    driven.wait(0.2)
    assert driven.receiver.state is ENDED
    assert driven.given_up == [GivenUp(Span(0, 0), LossReason.SESSION_END)]


def test_when_the_node_vanishes_every_gap_is_settled() -> None:
    driven = DrivenReceiver()
    for _ in range(3):
        driven.lose()
        driven.send()
    driven.gone()
    assert driven.receiver.state is ENDED
    assert [given_up.span.first for given_up in driven.given_up] == [0, 2, 4]
    assert driven.receiver.statistics().unrecovered_end == 3
    assert driven.receiver.poll_timeout() is None


# ENDING


def test_a_source_that_closes_still_repairs() -> None:
    driven = DrivenReceiver()
    driven.send()
    driven.lose(2)
    driven.session(BodyFlag.CLOSING)
    assert driven.receiver.state is ENDING
    assert driven.wait_for_nak() == [Span(1, 2)]
    driven.repair(1, 2)
    assert driven.heard == [0, 1, 2]
    driven.session(BodyFlag.CLOSED)
    assert driven.receiver.state is ENDED
    assert driven.given_up == []


def test_whose_last_word_is_lost_ends_after_the_linger() -> None:
    driven = DrivenReceiver(linger=2.0)
    driven.lose()
    driven.session(BodyFlag.CLOSING)
    driven.wait(1.9)
    driven.session(BodyFlag.CLOSING)
    driven.wait(1.9)
    assert driven.receiver.state is ENDING
    driven.wait(0.2)
    assert driven.receiver.state is ENDED
    assert driven.given_up == [GivenUp(Span(0, 0), LossReason.SESSION_END)]


def test_one_lost_session_message_is_not_the_end_even_without_a_linger() -> None:
    driven = DrivenReceiver(linger=0.0, session_min=0.2, lenient=True)
    driven.send()
    driven.session(BodyFlag.CLOSING)
    driven.wait(0.5)
    assert driven.receiver.state is ENDING


def test_a_repair_may_be_overtaken_by_the_last_word() -> None:
    driven = DrivenReceiver()
    driven.lose(2)
    driven.session(BodyFlag.CLOSED)
    assert driven.receiver.state is ENDING
    driven.repair(0)
    driven.session(BodyFlag.CLOSING)
    driven.wait(driven.settings.nak_backoff)
    assert driven.receiver.state is ENDED
    assert driven.heard == [0]
    assert driven.given_up == [GivenUp(Span(1, 1), LossReason.SESSION_END)]


def test_a_node_that_vanishes_while_its_source_closes_is_the_end() -> None:
    driven = DrivenReceiver()
    driven.lose()
    driven.session(BodyFlag.CLOSING)
    driven.gone()
    assert driven.receiver.state is ENDED


# ENDED


def test_after_the_end_nothing_counts() -> None:
    driven = DrivenReceiver()
    driven.send()
    driven.session(BodyFlag.CLOSED)
    driven.session(BodyFlag.CLOSED)
    driven.lose()
    driven.data(1)
    driven.ncf(NcfReason.SHED, (1, 1))
    driven.gone()
    driven.wait(100)
    assert driven.heard == [0]
    assert driven.given_up == []
    assert driven.receiver.statistics().after_end == 3
