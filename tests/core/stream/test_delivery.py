"""The delivery controller: each message once, in order if wanted, and each loss in its place."""

from typing import Any

import pytest

from sphtp.core.stream.delivery import DeliveryController, DeliveryState
from sphtp.core.stream.events import (
    Arrived,
    Batch,
    EndReason,
    GivenUp,
    Item,
    Loss,
    LossReason,
    Origin,
    StreamEnd,
)
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import FragmentRecord, Record, RunRecord
from sphtp.core.stream.settings import StreamSettings
from sphtp.errors import StateError
from tests.core.stream.topics import TOPIC, Line, Script, drain

SETTINGS = StreamSettings()
BOTH = pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "arrival"])


class Stage:
    """A delivery controller behind a line that does as it is told."""

    def __init__(self, script: Script, settings: StreamSettings = SETTINGS, **modes: bool) -> None:
        self.script = script
        self.line = Line(script.sqn - 1)
        self.delivery = DeliveryController(
            settings,
            TOPIC,
            script.first,
            script.sqn - 1,
            self.line.missing,
            **modes,
        )

    def come(self, *places: int, now: float = 0.0) -> list[Item]:
        """Let datagrams come; return what is told."""
        for place in places:
            self.line.arrive(self.script.arrived(place))
            arrived = self.line.poll_arrived()
            assert arrived is not None
            self.delivery.handle_arrived(now, arrived)
        return drain(self.delivery)

    def give_up(self, place: int, reason: LossReason = LossReason.TIMEOUT) -> list[Item]:
        """Let the transport give up a datagram; return what is told."""
        self.line.give_up(self.script.sqn + place, reason)
        given_up = self.line.poll_given_up()
        assert given_up is not None
        self.delivery.handle_given_up(given_up)
        return drain(self.delivery)

    def tell_tail(self, now: float = 0.0) -> list[Item]:
        """Let a session message come; return what is told."""
        self.line.see(self.script.lead)
        self.delivery.handle_tail(now, self.script.number, self.script.lead)
        return drain(self.delivery)

    def end(self, *, fetching: bool = False) -> list[Item]:
        """End the session; return what is told."""
        self.delivery.handle_end(EndReason.CLOSED, fetching=fetching)
        return drain(self.delivery)


def wholes(*counts: int) -> Script:
    script = Script(number=100, sqn=50)
    for count in counts:
        script.whole(count)
    return script


def live(script: Script, place: int) -> Batch:
    record = script.datagrams[place][0]
    assert isinstance(record, RunRecord)
    return Batch(record.first, record.payloads, Origin.LIVE)


@BOTH
def test_what_comes_in_order_passes_as_it_came(ordered: bool) -> None:
    script = wholes(3, 2)
    stage = Stage(script, ordered=ordered)
    assert stage.come(0) == [live(script, 0)]
    assert stage.come(1) == [live(script, 1)]
    record = script.datagrams[1][0]
    assert isinstance(record, RunRecord)
    assert live(script, 1).payloads is record.payloads


def test_in_order_a_gap_holds_back_what_follows() -> None:
    script = wholes(1, 2, 1)
    stage = Stage(script)
    assert stage.come(0) == [live(script, 0)]
    assert stage.come(2) == []
    assert stage.delivery.statistics().waiting == 1
    assert stage.come(1) == [live(script, 1), live(script, 2)]
    assert stage.delivery.statistics().waiting_bytes == 0


def test_in_order_of_arrival_nothing_is_held_back() -> None:
    script = wholes(1, 2, 1)
    stage = Stage(script, ordered=False)
    assert stage.come(0, 2, 1) == [live(script, 0), live(script, 2), live(script, 1)]


@BOTH
def test_a_gap_is_lost_as_soon_as_the_transport_misses_nothing_in_it(ordered: bool) -> None:
    script = wholes(1, 2, 1)
    script.datagrams.insert(2, [RunRecord(9, 0, [b"other"])])
    stage = Stage(script, ordered=ordered)
    stage.come(0)
    stage.come(3)
    assert Loss(101, 102, LossReason.WINDOW) not in stage.give_up(1, LossReason.WINDOW)
    # The last datagram that could have held it comes, and has something else in it.
    assert Loss(101, 102, LossReason.WINDOW) in stage.come(2)


def test_what_is_still_to_be_handed_on_is_not_missing() -> None:
    """The transport has it already, so that it misses nothing there."""
    script = wholes(1, 1, 1, 1)
    stage = Stage(script)
    stage.come(0, 3)
    for place in (1, 2):
        stage.line.arrive(script.arrived(place))
    while (arrived := stage.line.poll_arrived()) is not None:
        stage.delivery.handle_arrived(0.0, arrived)
    assert drain(stage.delivery) == [live(script, place) for place in (1, 2, 3)]


@pytest.mark.parametrize("first", [1, 3])
def test_a_repair_in_the_middle_parts_a_gap_in_two(first: int) -> None:
    script = wholes(1, 1, 1, 1, 1)
    stage = Stage(script, ordered=False)
    stage.come(0, 4)
    assert stage.come(2) == [live(script, 2)]
    assert stage.give_up(first) == [Loss(100 + first, 100 + first, LossReason.TIMEOUT)]
    assert stage.come(4 - first) == [live(script, 4 - first)]


def test_a_loss_that_comes_to_light_after_the_transport_gave_up_has_its_reason() -> None:
    script = wholes(1, 2, 1)
    stage = Stage(script)
    stage.come(0)
    assert stage.give_up(1, LossReason.NO_RETRY) == []
    assert stage.come(2) == [Loss(101, 102, LossReason.NO_RETRY), live(script, 2)]


def test_a_tail_is_missing_as_soon_as_a_session_message_tells() -> None:
    script = wholes(1, 2)
    stage = Stage(script)
    stage.come(0)
    assert stage.tell_tail() == []
    assert stage.delivery.statistics().gaps == 1
    assert stage.give_up(1) == [Loss(101, 102, LossReason.TIMEOUT)]


def test_a_late_session_message_tells_nothing_new() -> None:
    stage = Stage(wholes(1, 2))
    stage.come(0, 1)
    stage.delivery.handle_tail(0.0, 101, 50)
    assert stage.delivery.statistics().gaps == 0


def test_a_tail_stays_narrow_when_its_follower_came_before_the_lead() -> None:
    """The lead may be past what a session message tells; the next message says how far."""
    script = wholes(1, 1, 1)
    stage = Stage(script)
    stage.come(0)
    stage.line.see(script.lead + 5)
    stage.delivery.handle_tail(0.0, 102, script.lead + 5)
    assert stage.come(2) == []
    assert stage.give_up(1) == [Loss(101, 101, LossReason.TIMEOUT), live(script, 2)]


@BOTH
def test_without_traffic_a_gap_is_lost_after_a_generation_interval(ordered: bool) -> None:
    script = wholes(1, 1, 1)
    stage = Stage(script, ordered=ordered)
    assert stage.delivery.poll_timeout() is None
    stage.come(0)
    stage.come(2, now=3.0)
    due = stage.delivery.poll_timeout()
    assert due == 3.0 + SETTINGS.generation
    stage.delivery.handle_timeout(due - 0.001)
    assert drain(stage.delivery) == []
    stage.delivery.handle_timeout(due)
    assert Loss(101, 101, LossReason.TIMEOUT) in drain(stage.delivery)
    assert stage.delivery.poll_timeout() is None


def test_what_is_lost_before_the_first_message_is_told() -> None:
    script = wholes(1, 1)
    stage = Stage(script)
    assert stage.come(1) == []
    assert stage.give_up(0) == [Loss(100, 100, LossReason.TIMEOUT), live(script, 1)]
    assert stage.delivery.statistics().lost == 1


def test_a_late_joiner_was_promised_what_is_lost_before_the_first_message() -> None:
    script = wholes(1, 1)
    stage = Stage(script, late_join=True)
    stage.delivery.begin(100)
    stage.come(1)
    assert stage.give_up(0) == [Loss(100, 100, LossReason.TIMEOUT), live(script, 1)]


@BOTH
def test_a_repair_that_came_too_late_is_dropped(ordered: bool) -> None:
    script = wholes(1, 1, 1)
    stage = Stage(script, ordered=ordered)
    stage.come(0, 2)
    stage.give_up(1)
    stage.delivery.handle_arrived(1.0, script.arrived(1))
    assert drain(stage.delivery) == []
    assert stage.delivery.statistics().duplicates == 1


# Messages in parts


@BOTH
def test_parts_make_a_message_in_any_order(ordered: bool) -> None:
    script = Script()
    script.large(3)
    stage = Stage(script, ordered=ordered)
    assert stage.come(2, 0) == []
    assert stage.come(1) == [Batch(0, [script.sent[0].payload], Origin.LIVE)]
    assert stage.delivery.statistics().waiting == 0


@BOTH
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_message_with_a_lost_part_is_lost_as_a_whole(ordered: bool, lost: int) -> None:
    script = Script()
    script.whole(1)
    script.large(3)
    script.whole(1)
    stage = Stage(script, ordered=ordered)
    items = stage.come(*(place for place in range(5) if place != 1 + lost))
    items += stage.give_up(1 + lost)
    assert Loss(1, 1, LossReason.TIMEOUT) in items
    assert len(items) == 3
    assert stage.delivery.statistics().waiting_bytes == 0


@BOTH
def test_parts_that_come_after_their_message_is_lost_change_nothing(ordered: bool) -> None:
    script = Script()
    script.whole(1)
    script.large(3)
    script.whole(1)
    stage = Stage(script, ordered=ordered)
    stage.come(0, 2, 4)
    assert Loss(1, 1, LossReason.TIMEOUT) in stage.give_up(1) + stage.give_up(3)
    for place in (1, 3):
        stage.delivery.handle_arrived(0.0, script.arrived(place))
    assert drain(stage.delivery) == []
    assert stage.delivery.statistics().duplicates == 2
    assert stage.delivery.statistics().waiting_bytes == 0


@BOTH
def test_what_is_lost_around_a_message_in_parts_is_told_of_it_apart(ordered: bool) -> None:
    script = Script()
    script.whole(1)
    script.whole(1)
    script.large(3)
    script.whole(1)
    script.whole(1)
    stage = Stage(script, ordered=ordered)
    items = stage.come(0, 3, 6)
    items += stage.give_up(1) + stage.come(2, 4) + stage.give_up(5)
    for loss in (Loss(1, 1, LossReason.TIMEOUT), Loss(3, 3, LossReason.TIMEOUT)):
        assert loss in items
    assert Batch(2, [script.sent[2].payload], Origin.LIVE) in items


def test_a_message_of_which_a_part_is_lost_is_lost_when_something_follows_it() -> None:
    script = Script()
    script.whole(1)
    script.large(3)
    stage = Stage(script)
    stage.come(0, 2)
    assert stage.give_up(1) == [], "it is not known yet whether it was sent as a whole"
    assert stage.come(3) == []
    assert stage.tell_tail() == [Loss(1, 1, LossReason.TIMEOUT)]


@BOTH
def test_who_joins_in_the_middle_of_a_message_begins_behind_it(ordered: bool) -> None:
    script = Script()
    script.large(3)
    script.whole(1)
    stage = Stage(script, ordered=ordered)
    stage.line.lead = 0
    stage.delivery = DeliveryController(SETTINGS, TOPIC, 1, 0, stage.line.missing, ordered=ordered)
    assert stage.come(1, 2, 3) == [Batch(1, [b"m1"], Origin.LIVE)]


@BOTH
def test_records_that_contradict_a_message_in_parts_are_refused(ordered: bool) -> None:
    script = Script()
    script.large(3)
    stage = Stage(script, ordered=ordered)
    stage.come(0)
    lies: list[Record] = [
        RunRecord(TOPIC, 0, [b"a"]),
        FragmentRecord(TOPIC, 0, 1, 2, b"b"),
        FragmentRecord(TOPIC, 0, 2, 9, b"c"),
    ]
    stage.delivery.handle_arrived(0.0, Arrived(99, False, lies))
    assert stage.delivery.statistics().refused == 3
    assert stage.come(1, 2) == [Batch(0, [script.sent[0].payload], Origin.LIVE)]


@BOTH
def test_a_message_over_the_limit_is_lost(ordered: bool) -> None:
    script = Script()
    script.whole(1)
    script.large(4)
    script.whole(1)
    stage = Stage(script, StreamSettings(max_message=10), ordered=ordered)
    items = stage.come(0, 1, 2, 3, 4, 5)
    assert items == [
        live(script, 0),
        Loss(1, 1, LossReason.MAP_OVERFLOW),
        Batch(2, [b"m2"], Origin.LIVE),
    ]


def test_numbers_that_no_source_reaches_are_refused() -> None:
    stage = Stage(wholes(1))
    lies: list[Record] = [
        RunRecord(TOPIC, (1 << 64) - 1, [b"a", b"b"]),
        FragmentRecord(TOPIC, 1 << 63, 0, 1, b"c"),
    ]
    stage.delivery.handle_arrived(0.0, Arrived(50, False, lies))
    stage.delivery.handle_tail(0.0, (1 << 64) - 1, 50)
    assert stage.delivery.statistics().refused == 2
    assert stage.delivery.poll_timeout() is None


# Limits


@pytest.mark.parametrize(
    "limits", [{"order_map": 6}, {"order_map_bytes": 20, "max_message": 10}], ids=str
)
def test_a_full_order_map_forces_the_oldest_gap_and_drops_nothing(limits: dict[str, Any]) -> None:
    script = wholes(1, 1, 2, 1, 2, 2)
    stage = Stage(script, StreamSettings(**limits))
    stage.come(0)
    assert stage.come(2, 4) == []
    items = stage.come(5)
    assert items == [Loss(101, 101, LossReason.MAP_OVERFLOW), live(script, 2)]
    assert stage.come(3) == [live(script, 3), live(script, 4), live(script, 5)]


def test_gaps_are_bounded_where_nothing_waits() -> None:
    script = wholes(*[1] * 21)
    stage = Stage(script, StreamSettings(order_map=5), ordered=False)
    items = stage.come(*range(0, 21, 2))
    assert stage.delivery.statistics().gaps == 5
    assert [item for item in items if isinstance(item, Loss)] == [
        Loss(number, number, LossReason.MAP_OVERFLOW) for number in range(101, 111, 2)
    ]


def test_a_hole_of_billions_costs_nothing() -> None:
    stage = Stage(wholes(1))
    stage.come(0)
    run = RunRecord(TOPIC, 1 << 40, [b"far"])
    stage.line.lead = 51
    stage.delivery.handle_arrived(0.0, Arrived(51, False, [run]))
    assert drain(stage.delivery) == [
        Loss(101, (1 << 40) - 1, LossReason.WINDOW),
        Batch(1 << 40, [b"far"], Origin.LIVE),
    ]


# The end


@BOTH
def test_at_the_end_gaps_are_settled_and_what_waits_is_told(ordered: bool) -> None:
    script = wholes(1, 1, 1)
    stage = Stage(script, ordered=ordered)
    items = stage.come(0, 2) + stage.end()
    assert live(script, 2) in items
    assert Loss(101, 101, LossReason.SESSION_END) in items
    assert isinstance(items[-1], StreamEnd)
    assert stage.delivery.state is DeliveryState.ENDED


@BOTH
def test_a_message_cut_off_by_the_end_is_lost(ordered: bool) -> None:
    script = Script()
    script.whole(1)
    script.large(3)
    stage = Stage(script, ordered=ordered)
    assert stage.come(0, 1, 2) == [live(script, 0)]
    lost = Loss(1, 1, LossReason.SESSION_END)
    assert stage.end() == [lost, StreamEnd(EndReason.CLOSED, 2)]


@BOTH
def test_after_the_end_nothing_is_told(ordered: bool) -> None:
    script = wholes(1, 1, 1)
    stage = Stage(script, ordered=ordered)
    stage.come(0)
    assert stage.end() == [StreamEnd(EndReason.CLOSED, 101)]
    assert stage.come(1, 2) == []
    assert stage.tell_tail() == []
    stage.delivery.handle_given_up(GivenUp(Span(0, 99), LossReason.TIMEOUT))
    stage.delivery.handle_fetched(RunRecord(TOPIC, 101, [b"m101"]))
    assert drain(stage.delivery) == []
    assert stage.delivery.poll_timeout() is None
    with pytest.raises(StateError, match="ENDED refuses END"):
        stage.end()


# History


@BOTH
def test_what_the_transport_gives_up_is_wanted_and_told_when_fetched(ordered: bool) -> None:
    script = wholes(1, 2, 1)
    stage = Stage(script, ordered=ordered, fetches=True)
    stage.come(0, 2)
    assert stage.give_up(1) == []
    assert list(stage.delivery.wanted) == [Span(101, 102)]
    stage.delivery.handle_fetched(RunRecord(TOPIC, 100, [b"m100", b"m101", b"m102", b"m103"]))
    assert Batch(101, [b"m101", b"m102"], Origin.OTR) in drain(stage.delivery)
    assert not stage.delivery.wanted
    assert stage.delivery.statistics().duplicates == 2


def test_what_cannot_be_fetched_is_lost() -> None:
    script = wholes(1, 3, 1)
    stage = Stage(script, fetches=True)
    stage.come(0, 2)
    stage.give_up(1)
    stage.delivery.handle_fetched(RunRecord(TOPIC, 102, [b"m102"]))
    stage.delivery.handle_not_fetched(Span(0, 1000), LossReason.GONE)
    assert drain(stage.delivery) == [
        Loss(101, 101, LossReason.GONE),
        Batch(102, [b"m102"], Origin.OTR),
        Loss(103, 103, LossReason.GONE),
        live(script, 2),
    ]


def test_a_message_of_which_parts_are_lost_is_fetched_as_a_whole() -> None:
    script = Script()
    script.whole(1)
    script.large(3)
    stage = Stage(script, fetches=True)
    stage.come(0, 2)
    stage.give_up(1)
    stage.line.see(3)
    stage.give_up(3)
    stage.tell_tail()
    assert list(stage.delivery.wanted) == [Span(1, 1)]
    stage.delivery.handle_not_fetched(Span(1, 1), LossReason.GONE)
    assert drain(stage.delivery) == [Loss(1, 1, LossReason.GONE)]
    assert not stage.delivery.wanted


def test_history_comes_before_what_is_live() -> None:
    script = wholes(1, 1)
    stage = Stage(script, late_join=True)
    assert stage.come(0) == []
    with pytest.raises(StateError, match="HOLDING refuses END"):
        stage.end()
    stage.delivery.begin(98)
    assert list(stage.delivery.wanted) == [Span(98, 99)]
    assert stage.delivery.state.name == "CATCHING_UP"
    stage.delivery.handle_fetched(RunRecord(TOPIC, 98, [b"m98", b"m99"]))
    history = Batch(98, [b"m98", b"m99"], Origin.RETRANSMIT)
    assert drain(stage.delivery) == [history, live(script, 0)]
    assert stage.delivery.state is DeliveryState.FOLLOWING
    with pytest.raises(StateError, match="FOLLOWING refuses BEGIN"):
        stage.delivery.begin(98)


def test_in_order_of_arrival_live_messages_do_not_wait_for_history() -> None:
    script = wholes(1, 1)
    stage = Stage(script, late_join=True, ordered=False)
    assert stage.come(0) == [live(script, 0)]
    stage.delivery.begin(99)
    stage.delivery.handle_fetched(RunRecord(TOPIC, 99, [b"m99"]))
    assert drain(stage.delivery) == [Batch(99, [b"m99"], Origin.RETRANSMIT)]


def test_a_source_that_keeps_nothing_begins_with_what_is_live() -> None:
    script = wholes(1, 1)
    stage = Stage(script, late_join=True)
    stage.come(0)
    stage.delivery.begin(105)
    assert stage.come(1) == [live(script, 0), live(script, 1)]
    assert stage.delivery.state is DeliveryState.FOLLOWING


@pytest.mark.parametrize("limits", [{"caching_proximity": 5}, {"order_map": 6}], ids=str)
def test_live_messages_too_far_ahead_are_fetched_in_their_turn(limits: dict[str, Any]) -> None:
    script = wholes(2, 2, 2)
    stage = Stage(script, StreamSettings(**limits), late_join=True)
    stage.delivery.begin(98)
    stage.come(0, 1, 2)
    assert stage.delivery.statistics().left == 2
    assert list(stage.delivery.wanted) == [Span(98, 99), Span(104, 105)]
    for first in (98, 104):
        payloads = [f"m{number}".encode() for number in (first, first + 1)]
        stage.delivery.handle_fetched(RunRecord(TOPIC, first, payloads))
    items = drain(stage.delivery)
    assert [item.first for item in items if isinstance(item, Batch)] == [98, 100, 102, 104]
    assert stage.delivery.state is DeliveryState.FOLLOWING


def test_the_end_waits_for_what_is_being_fetched() -> None:
    script = wholes(1, 1, 1)
    stage = Stage(script, fetches=True)
    stage.come(0, 2)
    assert stage.end(fetching=True) == []
    stage.delivery.handle_fetched(RunRecord(TOPIC, 101, [b"m101"]))
    assert drain(stage.delivery) == [
        Batch(101, [b"m101"], Origin.OTR),
        live(script, 2),
        StreamEnd(EndReason.CLOSED, 103),
    ]


def test_parts_cut_off_by_the_end_are_fetched() -> None:
    script = Script()
    script.whole(1)
    script.large(3)
    stage = Stage(script, fetches=True)
    stage.come(0, 1)
    assert stage.end(fetching=True) == []
    assert list(stage.delivery.wanted) == [Span(1, 1)]
    for place in (1, 2, 3):
        stage.delivery.handle_fetched(script.datagrams[place][0])
    batch = Batch(1, [script.sent[1].payload], Origin.OTR)
    assert drain(stage.delivery) == [batch, StreamEnd(EndReason.CLOSED, 2)]
