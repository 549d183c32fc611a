"""When session messages are said, and what they tell."""

from itertools import pairwise

import pytest

from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.wire import BodyFlag, SessionMessage, Window
from tests.core.stream.sources import NEAR_WRAP, Listening

STEPS = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, *[2.0] * 20]


def waits(times: list[float]) -> list[float]:
    return [b - a for a, b in pairwise(times)]


def test_before_the_first_data_an_empty_window_tells_where_it_will_start() -> None:
    room = Listening(topics=2)
    (session,) = room.sessions
    assert session == SessionMessage(
        BodyFlag.NONE, Window(NEAR_WRAP - 1, NEAR_WRAP), 0, [(0, 0), (1, 0)]
    )
    room.advance(30.0)
    assert waits(room.times(SessionMessage)) == pytest.approx(STEPS[:19])
    assert [session.number for session in room.sessions] == list(range(len(room.sessions)))


def test_after_data_it_starts_again_and_slows_down() -> None:
    room = Listening()
    room.advance(20.0)
    room.forget()
    start = room.now
    (sqn,) = room.send_datagrams(1)
    room.advance(17.0)
    assert waits([start, *room.times(SessionMessage)]) == pytest.approx(STEPS[:12])
    assert {session.window for session in room.sessions} == {Window(sqn, sqn)}
    assert {tuple(session.tails) for session in room.sessions} == {((0, 1),)}


def test_repairs_and_ncfs_do_not_put_it_off() -> None:
    room = Listening()
    (sqn,) = room.send_datagrams(1)
    room.forget()
    start = room.now
    for _ in range(4):
        room.advance(0.01)
        room.nak(sqn)
    assert room.repairs
    assert room.ncfs
    room.advance(0.02)
    assert waits([start, *room.times(SessionMessage)]) == pytest.approx([0.05])


def test_while_receivers_ask_it_does_not_slow_down() -> None:
    room = Listening(StreamSettings.lan(generation=2.0))
    (sqn,) = room.send_datagrams(1)
    room.advance(10.0)
    room.nak(sqn)
    room.forget()
    start = room.now
    room.advance(1.99)
    held = waits([start, *room.times(SessionMessage)])
    assert held == pytest.approx([0.05] * len(held))
    assert len(held) == 39
    room.forget()
    room.advance(4.0)
    after = waits(room.times(SessionMessage))
    assert after[-3:] == pytest.approx([0.4, 0.8, 1.6])


def test_a_receiver_that_joins_is_told_at_once() -> None:
    room = Listening()
    room.send_datagrams(2)
    room.advance(20.0)
    room.forget()
    start = room.now
    room.source.handle_joined(room.now, 3)
    room.source.handle_joined(room.now, 4)
    assert room.source.poll_timeout() == room.now
    room.listen()
    room.advance(0.5)
    assert waits([start, *room.times(SessionMessage)]) == pytest.approx([0.0, 0.05, 0.1, 0.2])


def test_one_comes_in_every_longest_interval_even_while_data_flows() -> None:
    room = Listening(StreamSettings.lan(session_max=1.0))
    room.advance(0.01)
    room.forget()
    for _ in range(1000):
        room.send(b"x")
        room.advance(0.01)
    assert len(room.sessions) in {9, 10}
    assert max(waits(room.times(SessionMessage))) <= 1.01 + 1e-9


def test_tails_tell_what_left_and_not_what_waits() -> None:
    room = Listening(StreamSettings.lan(data_rate=10_000.0, repair_rate=1000.0), topics=2)
    room.send(*[bytes(1000)] * 100, topic=1)
    assert room.source.tails == ((0, 0), (1, 13))
    room.source.handle_joined(room.now, 3)
    room.listen()
    assert tuple(room.sessions[-1].tails) == room.source.tails
    assert room.sessions[-1].window == room.source.window == Window(NEAR_WRAP + 12, NEAR_WRAP)
