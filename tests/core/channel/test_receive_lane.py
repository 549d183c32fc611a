"""The receive side of a lane: each message once, in order or as it comes, however frames come."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.frames import Fragment, Messages, Skip
from sphtp.core.channel.memory import Ahead
from sphtp.core.channel.receive_lane import OrderedLane, UnorderedLane
from sphtp.core.serial import wrap
from sphtp.errors import RemoteError

STARTS = (0, 32767, 65535, 2**32 - 1)
BOTH = pytest.mark.parametrize("make", [OrderedLane, UnorderedLane])

Frames = list[Messages | Fragment | Skip]


def feed(lane: UnorderedLane, *frames: Messages | Fragment | Skip) -> list[bytes]:
    released: list[bytes] = []
    for frame in frames:
        assert lane.admits(frame)
        if isinstance(frame, Messages):
            released += lane.insert_messages(frame)
        elif isinstance(frame, Fragment):
            released += lane.insert_fragment(frame)
        else:
            released += lane.insert_skip(frame) or []
    return released


def row(first: int, *payloads: bytes) -> Messages:
    return Messages(0, wrap(first), list(payloads))


def test_ordered_waits_and_unordered_does_not() -> None:
    frames = [row(1, b"b"), row(3, b"d"), row(0, b"a"), row(2, b"c")]
    assert feed(OrderedLane(0, 64, 100, Ahead()), *frames) == [b"a", b"b", b"c", b"d"]
    assert feed(UnorderedLane(0, 64, 100, Ahead()), *frames) == [b"b", b"d", b"a", b"c"]


@BOTH
def test_overlapping_rows_give_each_message_once(make: type[UnorderedLane]) -> None:
    ahead = Ahead()
    lane = make(0, 64, 100, ahead)
    frames = [row(1, b"b", b"c"), row(0, b"a", b"b"), row(2, b"c", b"d"), row(0, b"a")]
    assert sorted(feed(lane, *frames)) == [b"a", b"b", b"c", b"d"]
    assert (ahead.messages, ahead.size) == (0, 0)


@BOTH
def test_a_window_bounds_what_may_come_early(make: type[UnorderedLane]) -> None:
    lane = make(0, 4, 100, Ahead())
    assert lane.admits(row(3, b"d"))
    assert not lane.admits(row(3, b"d", b"e"))
    assert not lane.admits(Fragment(0, 4, 0, 9, b"e"))
    assert not lane.admits(Skip(0, 4, 9))
    feed(lane, row(0, b"a"))
    assert lane.admits(Skip(0, 4, 9))


@BOTH
def test_a_repeat_is_admitted_for_it_has_to_be_acked(make: type[UnorderedLane]) -> None:
    lane = make(5, 4, 100, Ahead())
    assert lane.admits(row(4, b"old"))
    assert lane.new_sizes(row(3, b"old", b"old", b"new")) == [3]


@BOTH
def test_a_message_over_the_limit_or_against_itself_is_refused(make: type[UnorderedLane]) -> None:
    lane = make(0, 64, 10, Ahead())
    with pytest.raises(RemoteError, match="limit of 10"):
        lane.admits(Fragment(0, 0, 0, 11, b"x"))
    feed(lane, Fragment(0, 1, 0, 10, b"x"))
    with pytest.raises(RemoteError, match="10 bytes now has 9"):
        lane.admits(Fragment(0, 1, 1, 9, b"x"))
    assert lane.new_sizes(Fragment(0, 1, 1, 10, b"x")) == []


def test_a_skip_lets_go_of_what_is_there() -> None:
    ahead = Ahead()
    lane = OrderedLane(0, 64, 100, ahead)
    assert feed(lane, Fragment(0, 0, 0, 9, b"abc"), row(1, b"b")) == []
    assert lane.insert_skip(Skip(0, 0, 9)) == [b"b"]
    assert lane.insert_skip(Skip(0, 0, 9)) is None
    assert lane.insert_skip(Skip(0, 1, 1)) is None
    assert (ahead.messages, ahead.size) == (0, 0)
    assert lane.insert_skip(Skip(0, 5, 1)) == []
    assert lane.insert_skip(Skip(0, 5, 1)) is None
    assert feed(lane, row(5, b"late"), Fragment(0, 5, 0, 9, b"late")) == []
    assert feed(lane, row(2, b"c", b"d", b"e")) == [b"c", b"d", b"e"]
    assert feed(lane, row(6, b"g")) == [b"g"]


@BOTH
def test_an_empty_message_is_not_taken_for_nothing(make: type[UnorderedLane]) -> None:
    lane = make(0, 64, 100, Ahead())
    assert feed(lane, row(1, b""), row(0, b"")) == [b"", b""]


@given(
    st.sampled_from(STARTS),
    st.lists(st.tuples(st.binary(max_size=30), st.sampled_from(("whole", "cut", "skip")))),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_any_order_and_repetition(
    start: int, script: list[tuple[bytes, str]], random: Random, is_ordered: bool
) -> None:
    frames: Frames = []
    expected: list[bytes] = []
    for number, (payload, kind) in enumerate(script):
        message_id = wrap(start + number)
        if kind == "skip":
            frames.append(Skip(0, message_id, len(payload)))
            continue
        expected.append(payload)
        if kind == "cut" and payload:
            for size in (random.randint(1, 9), random.randint(1, 9)):
                frames += [
                    Fragment(0, message_id, at, len(payload), payload[at : at + size])
                    for at in range(0, len(payload), size)
                ]
        else:
            frames.append(row(start + number, payload))
    frames += random.sample(frames, len(frames) // 2)
    random.shuffle(frames)
    ahead = Ahead()
    lane = (OrderedLane if is_ordered else UnorderedLane)(start, 4096, 100, ahead)
    received = feed(lane, *frames)
    assert received == expected if is_ordered else sorted(received) == sorted(expected)
    assert (ahead.messages, ahead.size, ahead.gaps) == (0, 0, 0)
    assert lane.new_sizes(row(start + len(script), b"next")) == [4]
    assert lane.is_next(row(start + len(script), b"next"))
    assert not lane.is_next(row(start + len(script) + 1, b"not yet"))
