"""How far a source may be ahead, of whom and for how long; when a receiver reports."""

from typing import Any

import pytest

from sphtp.core.stream.events import Batch, Loss
from sphtp.core.stream.flow_control import FlowControl, StatusReports
from sphtp.core.stream.settings import OVERHEAD, StreamSettings
from sphtp.core.stream.transmission_window import TransmissionWindow
from sphtp.core.stream.wire import DATA_OVERHEAD, StatusMessage, encode_status
from sphtp.testing.broadcast import Broadcast
from tests.core.stream.sources import Listening

SIZE = 1000
"""What each datagram is charged with."""
REACH, PATIENCE = 100 * SIZE, 1.0
RECORDS = bytes(SIZE - OVERHEAD - DATA_OVERHEAD)


class Flowing:
    """A source whose first datagram is number 1, and as large as all others."""

    def __init__(self, reach: int = REACH) -> None:
        self.sent = TransmissionWindow(1, 1 << 30, 1e9)
        self._control = FlowControl(reach, PATIENCE, 10.0, self.sent)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)

    def __len__(self) -> int:
        return len(self._control)

    def send(self, now: float, lead: int) -> None:
        """Send datagrams up to the number ``lead``."""
        self.sent.add(now, [RECORDS] * (lead - self.sent.lead))
        self._control.handle_sent(now)

    def report(self, receiver: int, lead: int, room: int = REACH) -> None:
        self._control.handle_status(0.0, receiver, StatusMessage(lead, room))

    def is_left(self, receiver: int) -> bool:
        one = self._control.find(receiver)
        return one is not None and one.is_left_behind

    @property
    def is_free(self) -> bool:
        return self._control.limit is None and self._control.due is None


def test_the_slowest_has_the_limit() -> None:
    flowing = Flowing()
    flowing.send(0.0, 100)
    assert flowing.limit is None, "nobody is waited for"
    flowing.join(0.0, 1, 10)
    flowing.join(0.0, 2, 30)
    assert flowing.limit == 10 * SIZE + REACH // 4, "nothing is known of either"
    flowing.report(1, 60)
    assert flowing.limit == 30 * SIZE + REACH // 4
    flowing.report(2, 30)
    assert flowing.limit == 130 * SIZE
    flowing.report(2, 90, room=20 * SIZE)
    assert flowing.limit == 130 * SIZE, "less room than it told before takes nothing back"
    flowing.leave(2)
    assert flowing.limit == 160 * SIZE


def test_the_first_word_corrects_what_was_granted_before_it() -> None:
    flowing = Flowing()
    flowing.join(0.0, 1, 0)
    flowing.report(1, 0, room=5 * SIZE)
    assert flowing.limit == 5 * SIZE
    flowing.send(0.1, 3)
    flowing.report(1, 3, room=SIZE)
    assert flowing.limit == 5 * SIZE, "what it has promised itself it keeps"


def test_bytes_are_what_counts_and_not_datagrams() -> None:
    flowing = Flowing()
    flowing.join(0.0, 1, 0)
    flowing.sent.add(0.0, [bytes(10 * SIZE - OVERHEAD - DATA_OVERHEAD)] * 2 + [RECORDS] * 5)
    flowing.report(1, 3)
    assert flowing.limit == 21 * SIZE + REACH
    flowing.report(1, 7)
    assert flowing.limit == 25 * SIZE + REACH


def test_what_is_evicted_counts_as_far_as_it_went() -> None:
    flowing = Flowing()
    window = flowing.sent = TransmissionWindow(1, 10 * len(RECORDS), 1e9)
    window.add(0.0, [RECORDS] * 50)
    assert window.trail == 41
    assert window.position_of(12) == window.position_of(40) == 40 * SIZE
    assert window.position_of(41) == 41 * SIZE
    assert window.position_of(50) == window.position == 50 * SIZE


def test_without_a_window_nobody_is_waited_for() -> None:
    flowing = Flowing(0)
    flowing.join(0.0, 1, 10)
    assert flowing.is_free


def test_who_says_nothing_after_joining_is_left_behind_in_time() -> None:
    flowing = Flowing()
    flowing.join(5.0, 1, 0)
    assert flowing.due == 5.0 + PATIENCE
    flowing.expire(5.9)
    assert flowing.limit == REACH // 4
    flowing.expire(6.0)
    assert flowing.left_behind == 1
    assert flowing.is_left(1)
    assert flowing.is_free


def test_a_word_starts_no_clock_as_long_as_the_source_is_near() -> None:
    flowing = Flowing()
    flowing.join(0.0, 1, 0)
    flowing.send(0.0, 1)
    flowing.report(1, 1)
    flowing.send(0.5, 50)
    assert flowing.due is None
    flowing.send(0.7, 51)
    assert flowing.due == 0.7 + PATIENCE
    flowing.send(0.9, 60)
    assert flowing.due == 0.7 + PATIENCE, "the clock runs"
    flowing.report(1, 40)
    assert flowing.due is None


def test_one_that_falls_silent_is_left_behind_before_anybody_waited_for_it() -> None:
    flowing = Flowing()
    for receiver in (1, 2):
        flowing.join(0.0, receiver, 0)
        flowing.report(receiver, 0)
    for step in range(1, 200):
        now, lead = step * 0.02, step
        assert flowing.limit is None or lead * SIZE <= flowing.limit, "the source never waits"
        flowing.send(now, lead)
        flowing.report(1, lead)
        flowing.expire(now)
    assert flowing.left_behind == 1
    assert flowing.limit == 199 * SIZE + REACH


def test_who_is_held_by_too_little_room_has_as_much_patience() -> None:
    flowing = Flowing()
    flowing.join(0.0, 1, 0)
    flowing.report(1, 0)
    flowing.send(0.5, 95)
    flowing.report(1, 95, room=10 * SIZE)
    flowing.send(1.0, 99)
    assert flowing.due is None
    flowing.handle_blocked(1.0)
    assert flowing.due == 1.0 + PATIENCE


def test_patience_ends_when_its_time_has_come_whatever_floats_do() -> None:
    """What rings has to find something to do, or time stands still."""
    flowing = Flowing()
    for tick in range(1000):
        flowing.join(tick * 0.1, tick, 0)
        due = flowing.due
        assert due is not None
        flowing.expire(due)
        assert flowing.due is None
        flowing.leave(tick)


def test_who_was_left_behind_is_followed_again_when_it_keeps_up() -> None:
    flowing = Flowing()
    flowing.join(0.0, 1, 0)
    flowing.expire(1.0)
    flowing.send(1.0, 500)
    flowing.report(1, 10)
    assert flowing.limit is None, "it is too far behind to be waited for"
    flowing.report(1, 450)
    assert flowing.limit == 450 * SIZE + REACH


def test_a_source_that_is_done_waits_for_nobody_whoever_joins() -> None:
    flowing = Flowing()
    flowing.join(0.0, 1, 0)
    flowing.close()
    flowing.join(0.5, 2, 0)
    flowing.send(0.5, 90)
    flowing.handle_blocked(0.5)
    assert flowing.is_free
    assert flowing.left_behind == 0


def test_room_that_is_told_before_the_first_message_counts() -> None:
    settings = StreamSettings(flow_window=REACH, receive_buffer=REACH, patience=0.05)
    room = Listening(settings, receivers=(1,))
    room.nak_raw(encode_status(StatusMessage(room.source.window.lead, REACH)))
    assert room.source.statistics().feedback_foreign == 0
    # More than what a source grants by itself; nobody's patience is tried.
    sent = room.send_datagrams(30)
    assert len(room.data) == len(sent)
    room.advance(0.04)
    assert room.source.statistics().left_behind == 0


def test_who_joins_again_gets_no_new_budget() -> None:
    flowing = Flowing()
    flowing.join(0.0, 1, lead=5)
    receiver = flowing.find(1)
    flowing.join(0.0, 1, lead=9)
    assert flowing.find(1) is receiver
    assert flowing.unrepaired(9) == 4


def test_the_slowest_counts_in_what_is_not_repaired() -> None:
    flowing = Flowing()
    assert flowing.unrepaired(9) == 0, "nobody is behind where nobody is"
    flowing.join(0.0, 1, lead=5)
    flowing.join(0.0, 2, lead=7)
    assert flowing.unrepaired(9) == 4
    flowing.report(1, 20)
    assert flowing.unrepaired(9) == 2
    flowing.leave(2)
    flowing.leave(2)
    assert flowing.unrepaired(9) == 0
    assert len(flowing) == 1


@pytest.mark.parametrize(("messages_per_second", "left_behind"), [(10, 0), (0, 1)])
def test_a_reader_is_left_behind_if_it_stands_still_and_not_if_it_is_slow(
    messages_per_second: int, left_behind: int
) -> None:
    """A datagram holds three seconds of what it reads: so long nothing but a question tells."""
    settings = StreamSettings(max_datagram=31_000, receive_buffer=1 << 20)
    broadcast = Broadcast(0, settings=settings)
    (reader,) = broadcast.subscribers
    reader.is_reading = False
    source, unread, lost = broadcast.publisher.source, 0, 0
    for _ in range(50):
        if source.room:
            broadcast.send([bytes(1000)] * 300)
        for _ in range(messages_per_second // 10):
            if not unread and (item := reader.subscription.poll_item()) is not None:
                lost += isinstance(item, Loss)
                unread = len(item.payloads) if isinstance(item, Batch) else 0
                if reader.subscription.handle_read(broadcast.now):
                    broadcast.touch(reader)
            unread -= min(unread, 1)
        reader.subscription.unread = 1000 * unread
        broadcast.run(0.1)
    assert source.statistics().left_behind == left_behind
    assert lost == 0


REPORTED, BURST, LEAD = 8000, 100_000, 7


@pytest.fixture
def reports() -> StatusReports:
    return StatusReports(REPORTED, BURST)


def poll(reports: StatusReports, taken: int, room: int = REPORTED) -> StatusMessage | None:
    return reports.poll(LEAD, taken, 0, room)


def test_a_report_is_due_when_a_quarter_of_the_reach_is_used_up(reports: StatusReports) -> None:
    told = [taken for taken in range(0, 7000, 1000) if poll(reports, taken)]
    assert told == [0, 2000, 4000, 6000]


def test_the_first_report_needs_no_question(reports: StatusReports) -> None:
    """The source may have asked before this side listened, and waits for a report now."""
    assert not poll(reports, 2000, room=0), "it has no more room than the source knows"
    assert not reports.is_due(2000, 0, 1000)
    assert reports.is_due(2000, 0, 2000)
    assert poll(reports, 2000) == StatusMessage(LEAD, REPORTED)


def test_who_does_not_know_where_the_source_was_reports_when_asked() -> None:
    reports = StatusReports(REPORTED, BURST, knows_lead=False)
    assert not poll(reports, 1_000_000)
    reports.ask()
    assert poll(reports, 1_000_000) == StatusMessage(LEAD, REPORTED)
    assert poll(reports, 1_002_000) == StatusMessage(LEAD, REPORTED)


def test_no_more_room_is_told_than_a_reach(reports: StatusReports) -> None:
    assert poll(reports, 4000, room=10**9) == StatusMessage(LEAD, REPORTED)
    assert poll(reports, 8000, room=3000) is None
    assert poll(reports, 12_000, room=3000) == StatusMessage(LEAD, 3000)


def test_a_source_that_never_waits_is_told_only_when_it_asks() -> None:
    reports = StatusReports(0, BURST)
    assert not poll(reports, 100_000)
    reports.ask()
    assert poll(reports, 100_000) == StatusMessage(LEAD, REPORTED)
    assert not poll(reports, 200_000)


def test_what_it_fetches_and_knows_is_told_with_it(reports: StatusReports) -> None:
    reports.ask()
    status = reports.poll(LEAD, 0, 0, REPORTED, is_fetching=True, knows_end=True)
    assert status == StatusMessage(LEAD, REPORTED, is_fetching=True, knows_end=True)


def test_a_small_socket_is_not_flooded_whatever_is_missing() -> None:
    reports = StatusReports(REPORTED, 4000)

    def status(taken: int, behind_gap: int) -> StatusMessage | None:
        return reports.poll(LEAD, taken, behind_gap, REPORTED)

    assert status(0, 0) == StatusMessage(LEAD, 4000)
    assert status(1000, 0) == StatusMessage(LEAD, 4000)
    assert status(2000, 1000) == StatusMessage(LEAD, 5000), (
        "what came behind a gap has left the socket"
    )
    assert status(5000, 4000) == StatusMessage(LEAD, 8000)
    assert status(7000, 6000) is None, "a reach is a reach"
