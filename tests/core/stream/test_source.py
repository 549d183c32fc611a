"""How a source ends, and the table of its life."""

import pytest

from sphtp.core.stream.events import SourceClosed
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.source import SOURCE, SourceInput, SourceState
from sphtp.core.stream.wire import BodyFlag, SessionMessage, StatusMessage, encode_status
from tests.core.stream.sources import Listening, say_done

S = SourceState


def state(room: Listening) -> SourceState:
    return room.source.state


def flags(room: Listening) -> list[BodyFlag]:
    return [session.flags for session in room.sessions]


def closing(**changes: object) -> Listening:
    """A source that has sent three datagrams and lingers."""
    room = Listening(StreamSettings.lan(**changes))
    room.send_datagrams(3)
    room.forget()
    room.source.close(room.now)
    room.listen()
    return room


def test_it_lingers_says_so_and_repairs() -> None:
    room = closing()
    assert state(room) is S.CLOSING
    assert flags(room) == [BodyFlag.CLOSING], "at once"
    room.advance(0.99)
    assert set(flags(room)) == {BodyFlag.CLOSING}
    assert len(room.sessions) == 20, "at the minimum interval"
    room.nak(room.first)
    assert room.repairs == [room.first]
    assert not room.events()


def test_when_it_lingered_it_says_three_times_that_it_is_over() -> None:
    room = closing()
    room.advance(4.999)
    room.forget()
    room.advance(0.002)
    assert state(room) is S.ENDING
    assert not room.nak(room.first), "it repairs no more"
    room.advance(5.0)
    assert flags(room)[-3:] == [BodyFlag.CLOSED] * 3
    assert flags(room).count(BodyFlag.CLOSED) == 3
    first, _, last = room.times(SessionMessage)[-3:]
    assert last - first == pytest.approx(0.1), "one loss does not take all of them"
    assert state(room) is S.CLOSED
    assert room.events() == [SourceClosed(unrepaired=3)]
    assert room.source.poll_timeout() is None
    assert room.source.poll_transmit(room.now + 100.0) is None


def test_it_ends_early_when_all_receivers_have_everything_and_know_that_it_is_the_end() -> None:
    room = closing()
    lead = room.source.window.lead
    for receiver in (1, 2):
        status = encode_status(StatusMessage(lead, 1 << 24))
        room.source.handle_feedback_untrusted(room.now, receiver, status)
    assert state(room) is S.CLOSING, "for all they know more will come"
    room = closing()
    say_done(room.source, room.now, 1, lead)
    say_done(room.source, room.now, 2, lead - 1)
    assert room.source.unrepaired == 1
    assert state(room) is S.CLOSING
    say_done(room.source, room.now, 2, lead)
    assert room.source.unrepaired == 0
    assert state(room) is S.ENDING
    room.advance(0.2)
    assert room.events() == [SourceClosed(unrepaired=0)]


def test_who_left_needs_nothing() -> None:
    room = closing()
    say_done(room.source, room.now, 1, room.source.window.lead)
    room.source.handle_left(room.now, 2)
    assert state(room) is S.ENDING


def test_who_joins_late_holds_it_up_until_it_has_the_history_that_it_wants() -> None:
    room = closing()
    source, lead = room.source, room.source.window.lead
    source.handle_joined(room.now, 3)
    for receiver in (1, 2):
        say_done(source, room.now, receiver, lead)
    assert state(room) is S.CLOSING
    fetching = encode_status(StatusMessage(lead, 1 << 24, is_fetching=True))
    source.handle_feedback_untrusted(room.now, 3, fetching)
    assert state(room) is S.CLOSING
    say_done(source, room.now, 3, lead)
    assert state(room) is S.ENDING


def test_what_a_receiver_had_before_counts_not_what_it_says_for_others() -> None:
    room = closing()
    say_done(room.source, room.now, 7, room.source.window.lead)
    say_done(room.source, room.now, 1, room.source.window.lead)
    say_done(room.source, room.now, 1, room.source.window.lead - 3)
    assert room.source.unrepaired == 3, "the second has nothing"


def test_what_waits_for_the_rate_leaves_before_it_closes() -> None:
    room = Listening(StreamSettings.lan(data_rate=100_000.0, repair_rate=10_000.0))
    room.send(*[bytes(1000)] * 100)
    room.source.close(room.now)
    assert state(room) is S.DRAINING
    while state(room) is S.DRAINING:
        assert BodyFlag.CLOSING not in flags(room)
        room.advance(0.01)
    assert len(room.data) == 100
    assert state(room) is S.CLOSING
    drained = room.now
    room.advance(0.97)
    assert state(room) is S.CLOSING, "it lingers from when all had left"
    assert room.now - drained < 1.0


def test_a_source_that_sent_nothing_has_nothing_to_linger_for() -> None:
    room = Listening()
    room.source.close(room.now)
    room.advance(0.2)
    assert flags(room)[-3:] == [BodyFlag.CLOSED] * 3
    assert room.events() == [SourceClosed(unrepaired=0)]


def test_without_linger_it_ends_at_once() -> None:
    room = Listening(StreamSettings.um())
    room.send(b"x")
    room.source.close(room.now)
    room.advance(1.0)
    assert room.events() == [SourceClosed(unrepaired=1)]


def test_repairs_that_wait_at_the_end_are_dropped() -> None:
    room = Listening(StreamSettings.lan(repair_rate=1000.0))
    sqns = room.send_datagrams(40)
    room.source.close(room.now)
    room.nak(*sqns)
    room.advance(4.999)
    room.forget()
    assert room.source.statistics().waiting_repairs > 10
    room.advance(30.0)
    assert state(room) is S.CLOSED
    assert not room.repairs
    assert room.source.statistics().waiting_repairs == 0


def test_closing_again_changes_nothing() -> None:
    room = Listening(StreamSettings.lan(data_rate=100_000.0, repair_rate=10_000.0))
    room.send(*[bytes(1000)] * 100)
    seen = set[SourceState]()
    while state(room) is not S.CLOSED:
        room.source.close(room.now)
        room.advance(0.01)
        seen.add(room.source.state)
    assert seen == {S.DRAINING, S.CLOSING, S.ENDING, S.CLOSED}
    room.source.close(room.now)
    assert len(room.events()) == 1


def test_every_pair_has_a_row_or_is_refused() -> None:
    for state in SourceState:
        for event in SourceInput:
            row = SOURCE.find(state, event)
            assert (row is None) == (event in SOURCE.refused[state]), (state, event)
