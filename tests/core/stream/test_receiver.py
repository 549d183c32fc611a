"""The session of a receiver: where it starts, what it takes, how it ends."""

import pytest

from sphtp.core.stream.events import GivenUp, LossReason
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.receiver import REACH, ReceiverState
from sphtp.core.stream.wire import BodyFlag, NcfReason, Window, encode_data
from tests.core.stream.receivers import Ear

JOINING, ACTIVE, ENDING, ENDED = ReceiverState
STARTS = (0, 1, 2**31 - 2, 2**32 - 2, 2**32, 2**40)


# JOINING


@pytest.mark.parametrize("start", STARTS)
def test_what_was_lost_right_after_the_join_is_seen(start: int) -> None:
    ear = Ear(start)
    assert (ear.receiver.state, ear.receiver.lead) == (JOINING, start - 1)
    ear.lose(2)
    ear.send()
    assert ear.receiver.state is ACTIVE
    assert ear.heard == [start + 2]
    assert ear.pending == [Span(start, start + 1)]


def test_without_a_window_the_first_original_is_the_start() -> None:
    ear = Ear(is_told=False)
    assert ear.receiver.lead is None
    assert ear.receiver.settled is None
    ear.lose(5)
    ear.lead = 4
    ear.send(2)
    assert ear.heard == [5, 6]
    assert ear.receiver.lead == 6
    assert ear.receiver.statistics().lost == 0


def test_without_a_window_a_session_message_lets_it_start_behind_the_lead() -> None:
    ear = Ear(is_told=False)
    ear.lose(5)
    ear.lead = 4
    ear.session()
    assert ear.receiver.lead == 4
    ear.lose()
    ear.send()
    assert ear.pending == [Span(5, 5)]


def test_a_repair_is_no_start() -> None:
    ear = Ear(is_told=False)
    ear.lose(5)
    ear.lead = 4
    ear.repair(2)
    assert ear.heard == []
    assert ear.receiver.lead == 4
    assert ear.receiver.statistics().before_start == 1


def test_what_was_sent_before_the_join_is_not_wanted() -> None:
    ear = Ear(start=10)
    ear.drop(0)
    ear.data(9, window=Window(9, 0))
    assert ear.heard == []
    assert ear.receiver.statistics().before_start == 1


def test_a_source_that_is_never_heard_is_not_there() -> None:
    ear = Ear(activity_timeout=20.0)
    ear.wait(19.9)
    assert ear.receiver.state is JOINING
    ear.wait(0.2)
    assert ear.receiver.state is ENDED


def test_a_node_that_vanishes_before_it_was_heard_is_the_end() -> None:
    ear = Ear()
    ear.gone()
    assert ear.receiver.state is ENDED


# ACTIVE


def test_what_comes_in_order_is_handed_on_at_once() -> None:
    ear = Ear()
    ear.send(100)
    assert ear.heard == list(range(100))
    assert not any(arrived.repair for arrived in ear.arrived)
    assert ear.naks == []
    assert ear.receiver.settled == 99


def test_each_datagram_is_handed_on_once() -> None:
    ear = Ear()
    ear.send(3)
    for sqn in (2, 0, 1):
        ear.data(sqn)
        ear.repair(sqn)
    assert ear.heard == [0, 1, 2]
    assert ear.receiver.statistics().duplicates == 6


def test_a_duplicate_is_dropped_before_its_records_are_read() -> None:
    ear = Ear()
    ear.send(3)
    ear.hear(encode_data(1, ear.window, b"\xffnonsense"))
    statistics = ear.receiver.statistics()
    assert (statistics.duplicates, statistics.malformed) == (1, 0)


def test_a_datagram_whose_records_make_no_sense_changes_nothing() -> None:
    ear = Ear()
    ear.send(3)
    ear.hear(encode_data(9, Window(9, 9), b"\xffnonsense"))
    assert ear.receiver.lead == 2
    ear.hear(encode_data(3, Window(3, 0), b"\xffnonsense"))
    assert ear.receiver.lead == 2
    assert ear.receiver.statistics().malformed == 2
    ear.send()
    assert ear.heard == [0, 1, 2, 3]


def test_the_first_datagram_is_read_before_it_is_a_start() -> None:
    ear = Ear(is_told=False)
    ear.hear(encode_data(7, Window(7, 0), b"\xffnonsense"))
    assert ear.receiver.state is JOINING
    assert ear.receiver.lead is None


def test_a_datagram_without_records_has_its_place() -> None:
    ear = Ear()
    ear.receiver.handle_body_untrusted(0.0, encode_data(0, Window(0, 0), b""))
    arrived = ear.receiver.poll_arrived()
    assert arrived is not None
    assert (arrived.sqn, arrived.records) == (0, [])


def test_a_lead_tells_of_the_tail() -> None:
    ear = Ear()
    ear.send()
    ear.lose(3)
    ear.session()
    assert ear.pending == [Span(1, 3)]
    assert ear.wait_for_nak() == [Span(1, 3)]
    ear.lose()
    ear.repair(2)
    assert ear.pending == [Span(1, 1), Span(3, 4)], "a repair has the lead, too"


def test_a_repair_of_what_nobody_missed_yet_is_as_good_as_the_original() -> None:
    ear = Ear()
    ear.send()
    ear.lose(2)
    ear.repair(2)
    assert ear.heard == [0, 2]
    ear.lose()
    ear.repair(3)
    assert [arrived.repair for arrived in ear.arrived] == [False, True, True]
    assert ear.pending == [Span(1, 1)]


def test_a_hole_of_a_billion_costs_one_range() -> None:
    ear = Ear()
    ear.send()
    ear.lose(REACH - 2)
    ear.session()
    assert ear.pending == [Span(1, REACH - 2)]
    assert len(ear.receiver.missing) == 1
    ear.drop(REACH - 4)
    ear.session()
    assert ear.given_up == [GivenUp(Span(1, REACH - 5), LossReason.WINDOW)]


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
    ear = Ear()
    ear.send(5)
    for sqn in window:
        ear.hear(encode_data(sqn, window, b""))
    assert ear.receiver.lead == 4
    assert ear.receiver.statistics().implausible == 2
    ear.send()
    assert ear.heard == list(range(6))


def test_a_number_outside_its_window_is_dropped() -> None:
    ear = Ear()
    ear.send(5)
    ear.data(9, window=Window(8, 0))
    ear.data(4, window=Window(8, 5))
    ear.data(5, window=Window(5, 6))
    assert ear.receiver.lead == 4
    assert ear.receiver.statistics().malformed == 3


def test_tails_are_told_once_and_never_older_ones() -> None:
    ear = Ear()
    receiver = ear.receiver
    ear.number = 2**32 - 2
    ear.session(tails=[(0, 7)])
    assert receiver.poll_tails() == [(0, 7)]
    assert receiver.poll_tails() is None
    ear.session(tails=[(0, 9), (3, 1)])
    ear.number -= 2
    ear.session(tails=[(0, 7)])
    assert receiver.poll_tails() == [(0, 9), (3, 1)]
    assert receiver.statistics().session_messages == 3


def test_a_source_that_sends_is_there() -> None:
    ear = Ear()
    for _ in range(4):
        ear.send(2)
        ear.wait(14.9)
    assert ear.receiver.state is ACTIVE


def test_a_source_that_is_silent_vanished() -> None:
    ear = Ear(generation=60.0)
    ear.lose()
    ear.send()
    ear.wait(29.9)
    assert ear.receiver.state is ACTIVE
    ear.session()
    ear.wait(29.9)
    assert ear.receiver.state is ACTIVE
    ear.wait(0.2)
    assert ear.receiver.state is ENDED
    assert ear.given_up == [GivenUp(Span(0, 0), LossReason.SESSION_END)]


def test_when_the_node_vanishes_every_gap_is_settled() -> None:
    ear = Ear()
    for _ in range(3):
        ear.lose()
        ear.send()
    ear.gone()
    assert ear.receiver.state is ENDED
    assert [given_up.span.first for given_up in ear.given_up] == [0, 2, 4]
    assert ear.receiver.statistics().unrecovered_end == 3
    assert ear.receiver.poll_timeout() is None


# ENDING


def test_a_source_that_closes_still_repairs() -> None:
    ear = Ear()
    ear.send()
    ear.lose(2)
    ear.session(BodyFlag.CLOSING)
    assert ear.receiver.state is ENDING
    assert ear.wait_for_nak() == [Span(1, 2)]
    ear.repair(1, 2)
    assert ear.heard == [0, 1, 2]
    ear.session(BodyFlag.CLOSED)
    assert ear.receiver.state is ENDED
    assert ear.given_up == []


def test_whose_last_word_is_lost_ends_after_the_linger() -> None:
    ear = Ear(linger=2.0)
    ear.lose()
    ear.session(BodyFlag.CLOSING)
    ear.wait(1.9)
    ear.session(BodyFlag.CLOSING)
    ear.wait(1.9)
    assert ear.receiver.state is ENDING
    ear.wait(0.2)
    assert ear.receiver.state is ENDED
    assert ear.given_up == [GivenUp(Span(0, 0), LossReason.SESSION_END)]


def test_one_lost_session_message_is_not_the_end_even_without_a_linger() -> None:
    ear = Ear(linger=0.0, session_min=0.2, lenient=True)
    ear.send()
    ear.session(BodyFlag.CLOSING)
    ear.wait(0.5)
    assert ear.receiver.state is ENDING


def test_a_repair_may_be_overtaken_by_the_last_word() -> None:
    ear = Ear()
    ear.lose(2)
    ear.session(BodyFlag.CLOSED)
    assert ear.receiver.state is ENDING
    ear.repair(0)
    ear.session(BodyFlag.CLOSING)
    ear.wait(ear.settings.nak_backoff)
    assert ear.receiver.state is ENDED
    assert ear.heard == [0]
    assert ear.given_up == [GivenUp(Span(1, 1), LossReason.SESSION_END)]


def test_a_node_that_vanishes_while_its_source_closes_is_the_end() -> None:
    ear = Ear()
    ear.lose()
    ear.session(BodyFlag.CLOSING)
    ear.gone()
    assert ear.receiver.state is ENDED


# ENDED


def test_after_the_end_nothing_counts() -> None:
    ear = Ear()
    ear.send()
    ear.session(BodyFlag.CLOSED)
    ear.session(BodyFlag.CLOSED)
    ear.lose()
    ear.data(1)
    ear.ncf(NcfReason.SHED, (1, 1))
    ear.gone()
    ear.wait(100)
    assert ear.heard == [0]
    assert ear.given_up == []
    assert ear.receiver.statistics().after_end == 3
