"""The schedule of a replay, and a player that keeps to it in virtual time."""

from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from sphtp.errors import SettingsError
from sphtp_client.recording.mcap_file import Recording, RecordingWriter, read_recording
from sphtp_client.recording.replay import Player, selected
from sphtp_client.recording.schedule import Schedule
from sphtp_client.recording.values import encode_message, message_tree, schema_of

SECOND = 1_000_000_000


class Message(NamedTuple):
    number: int
    time: int


@given(st.lists(st.integers(0, 10 * SECOND)), st.floats(0.1, 10), st.integers(0, 3))
def test_messages_keep_their_order_and_their_distances(times, speed, lap):
    schedule = Schedule(begin=0, end=10 * SECOND, speed=speed)
    messages = [Message(number, time) for number, time in enumerate(times)]
    due = list(schedule.lap(lap, messages))
    assert [it.message for it in due] == messages
    assert all(one.at <= other.at for one, other in pairwise(due))
    for at, message in due:
        newest = max(times[: message.number + 1])
        assert at == pytest.approx((lap * 10 + newest / SECOND) / speed)


def test_without_a_speed_all_is_due_at_once():
    schedule = Schedule(begin=5, end=10 * SECOND, speed=None)
    messages = [Message(number, number * SECOND) for number in range(5)]
    assert [it.at for it in schedule.lap(7, messages)] == [0.0] * 5


@pytest.mark.parametrize("wrong", [{"speed": 0.0}, {"speed": -1.0}, {"end": -1}])
def test_a_schedule_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(SettingsError):
        Schedule(**{"begin": 0, "end": 1, **wrong})


def recorded(*times: float, topics: tuple[str, ...] = ("a",)) -> Recording:
    """Messages 0, 1, ... at some seconds, of topics in turn."""
    file = BytesIO()
    writer = RecordingWriter(file, chunk_bytes=100)
    schema = schema_of(message_tree(0))
    ids = [writer.add_channel(name, schema, {"name": name, "kind": "topic"}) for name in topics]
    for number, time in enumerate(times):
        channel = ids[number % len(ids)]
        writer.add_message(channel, number, round(time * SECOND), encode_message(number))
    writer.close()
    return read_recording(file.getvalue())


class Sent:
    """Notes what a player sends, and when."""

    def __init__(self) -> None:
        self.start = trio.current_time()
        self.rows: list[tuple[float, str, Any]] = []

    async def send(self, channel, value) -> None:
        await trio.lowlevel.checkpoint()
        self.rows.append((round(trio.current_time() - self.start, 6), channel.name, value))


async def played(recording: Recording, schedule: Schedule, laps: int | None = 1, topics=()):
    sent = Sent()
    player = Player(recording, selected(recording.channels.values(), topics), schedule)
    await player.play(sent.send, laps)
    return sent.rows, player


def all_of(recording: Recording, speed: float | None) -> Schedule:
    return Schedule(begin=recording.begin, end=recording.end, speed=speed)


async def test_a_replay_takes_its_time(autojump_clock):
    recording = recorded(100, 101, 103)
    rows, player = await played(recording, all_of(recording, 1.0))
    assert rows == [(0, "a", 0), (1, "a", 1), (3, "a", 2)]
    assert player.latest == 0
    rows, _ = await played(recording, all_of(recording, 0.5))
    assert [at for at, *_ in rows] == [0, 2, 6]
    rows, _ = await played(recording, all_of(recording, None))
    assert [at for at, *_ in rows] == [0, 0, 0]


async def test_a_replay_begins_and_ends_anywhere_and_again(autojump_clock):
    recording = recorded(0, 1, 2, 3, 4)
    part = Schedule(begin=SECOND, end=3 * SECOND, speed=2.0)
    rows, player = await played(recording, part, laps=2)
    expected = ((0, 1), (1, 2), (2, 3), (2, 1), (3, 2), (4, 3))
    assert rows == [(at / 2, "a", number) for at, number in expected]
    assert (player.sent, player.laps) == (6, 2)


async def test_a_replay_of_some_topics_leaves_out_the_others(autojump_clock):
    recording = recorded(0, 1, 2, 3, topics=("a/x", "b/x"))
    rows, _ = await played(recording, all_of(recording, 1.0), topics=("b/*",))
    assert rows == [(1, "b/x", 1), (3, "b/x", 3)]


async def test_a_sender_that_is_held_up_is_late_and_catches_up(autojump_clock):
    recording = recorded(0, 1, 2, 10)
    sent = Sent()

    async def slow(channel, value) -> None:
        await sent.send(channel, value)
        await trio.sleep(4 if value == 0 else 0)

    player = Player(recording, recording.channels, all_of(recording, 1.0))
    await player.play(slow)
    assert [at for at, *_ in sent.rows] == [0, 4, 4, 10]
    assert player.latest == 3


async def test_a_replay_of_nothing_ends_although_it_repeats(autojump_clock):
    recording = recorded()
    assert (await played(recording, all_of(recording, 1.0), laps=None))[0] == []


async def test_messages_that_cannot_be_read_are_counted(autojump_clock):
    file = BytesIO()
    writer = RecordingWriter(file)
    channel = writer.add_channel("a", {}, {})
    for number, data in enumerate((b'{"x": 1}', b"no JSON", b'{"x": 2}')):
        writer.add_message(channel, number, number, data)
    writer.close()
    recording = read_recording(file.getvalue())
    rows, player = await played(recording, all_of(recording, 1.0))
    assert [value for *_, value in rows] == [{"x": 1}, {"x": 2}]
    assert player.unreadable == 1
