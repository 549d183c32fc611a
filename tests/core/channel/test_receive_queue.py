"""The receive queue: once, in order, bounded, and not confused by what makes no sense."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.flow_control import COST
from sphtp.core.channel.frames import FLAG, Content, Fragment, Messages, Skip, Unreliable
from sphtp.core.channel.receive_queue import BATCH, ReceiveQueue
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.packing import READ_BYTES
from sphtp.core.serial import wrap
from sphtp.errors import RemoteError
from tests.profiles import brisk
from tests.reach import count, reach
from tests.soaked import soaked

STARTS = (0, 32767, 65535, 2**32 - 1)


def receive_queue(start: int = 0, **changes: Any) -> ReceiveQueue:
    return ReceiveQueue(ChannelSettings(**changes), wrap(start))


def offer(box: ReceiveQueue, *frames: Content) -> bool:
    """What a packet does: all of it, or nothing."""
    return box.insert(frames, 0)


def take(box: ReceiveQueue) -> list[bytes]:
    return box.receive_many(100_000)


def one(message_id: int, payload: bytes = b"x", lane: int = 0) -> Messages:
    return Messages(lane, wrap(message_id), [payload])


@pytest.mark.parametrize("start", STARTS)
def test_messages_come_out_in_order_and_once(start: int) -> None:
    box = receive_queue(start)
    for number in (2, 0, 2, 0, 1, 1, 3, 0):
        assert offer(box, one(start + number, bytes([number])))
    assert take(box) == [b"\0", b"\1", b"\2", b"\3"]
    assert offer(box, one(start + 1, b"again"))
    assert take(box) == []
    assert box.held == 0


def test_what_is_taken_at_once_is_bounded_in_bytes() -> None:
    box = receive_queue()
    for number in range(6):
        assert offer(box, one(number, bytes(READ_BYTES // 2)))
    assert [len(box.receive_many(10)) for _ in range(4)] == [2, 2, 2, 0]
    assert [len(box.receive_many(10)) for _ in range(2)] == [0, 0]


def test_an_empty_message_is_a_message() -> None:
    box = receive_queue()
    assert offer(box, Messages(0, 0, [b"", b"a", b""]))
    assert take(box) == [b"", b"a", b""]


def test_lanes_do_not_wait_for_one_another() -> None:
    box = receive_queue()
    assert offer(box, one(1, b"b0"), one(0, b"a5", lane=5), one(1, b"b5", lane=5))
    assert take(box) == [b"a5", b"b5"]
    assert offer(box, one(0, b"a0"))
    assert take(box) == [b"a0", b"b0"]


def test_a_lane_that_is_not_ordered_waits_for_nothing() -> None:
    box = receive_queue()
    for number in (3, 1, 3, 0, 1, 2, 0):
        assert offer(box, one(number, bytes([number]), lane=FLAG))
    assert take(box) == [b"\3", b"\1", b"\0", b"\2"]
    assert offer(box, one(0, b"in order", lane=0))
    assert take(box) == [b"in order"], "the same number without the flag is another lane"


def test_a_reader_takes_as_many_as_it_likes() -> None:
    box = receive_queue()
    assert offer(box, Messages(0, 0, [b"a", b"b", b"c"]), Unreliable(0, 0, [b"u", b"v"]))
    assert len(box) == 5
    assert box.receive_many(1) == [b"u"]
    assert box.receive_many(3) == [b"v", b"a", b"b"]
    assert box.receive_many(3) == [b"c"]
    assert box.receive_many(3) == []


@pytest.mark.parametrize("number", [65536 + 1024, *soaked([3 * 65536])])
@pytest.mark.parametrize("start", [STARTS[0], *soaked(STARTS[1:])])
def test_ids_wrap_again_and_again(start: int, number: int) -> None:
    box, taken, many = receive_queue(start, receive_buffer=64), 0, 16
    for first in range(0, number, 4 * many):
        for block in reversed(range(first, first + 4 * many, many)):
            payloads = [b"%d" % number for number in range(block, block + many)]
            assert offer(box, Messages(0, wrap(start + block), payloads))
        for payload in take(box):
            assert payload == b"%d" % taken
            taken += 1
    assert taken == number


def test_too_early_is_refused_until_others_are_read() -> None:
    box = receive_queue(receive_buffer=2)
    assert not offer(box, one(2))
    assert offer(box, one(1))
    assert offer(box, one(0))
    assert not offer(box, one(2)), "two are unread"
    assert box.receive_many(1) == [b"x"]
    assert offer(box, one(2))
    assert not offer(box, one(3))


def test_what_is_given_up_ahead_makes_room_for_another() -> None:
    """Its sender is paid back when word of it comes, and may go on."""
    box = receive_queue(receive_buffer=3)
    assert offer(box, one(0))
    assert offer(box, Fragment(0, 1, 0, 9, b"part"))
    assert offer(box, Skip(0, 2, 5))
    assert box.credit.allowed[0] == 3 + 1
    assert offer(box, one(3)), "the fourth message, with one given up"
    assert not offer(box, one(4))
    assert offer(box, Fragment(0, 1, 4, 9, b"whole"))
    assert take(box) == [b"x", b"partwhole", b"x"]
    assert offer(box, one(4), one(5), one(6))
    assert not offer(box, one(7))


def test_no_more_ids_are_told_apart_however_many_are_given_up() -> None:
    box = receive_queue(receive_buffer=4)
    for number in (1, 2, 3):
        assert offer(box, Skip(0, number, 1))
    assert not offer(box, Skip(0, 4, 1)), "its place is that of the one missing"
    assert offer(box, one(0, b"first"))
    assert take(box) == [b"first"]
    assert offer(box, one(4, b"then"))
    assert take(box) == [b"then"]


def test_a_packet_is_taken_whole_or_not_at_all() -> None:
    box = receive_queue(receive_buffer=2)
    assert not offer(box, Unreliable(0, 0, [b"u"]), one(0), one(5))
    assert take(box) == []
    assert box.held == 0


def test_unreliable_messages_come_first_for_they_grow_stale() -> None:
    box = receive_queue(unreliable_buffer=2)
    assert offer(box, one(1, b"b"), Unreliable(0, 0, [b"u1"]))
    assert offer(box, one(0, b"a"), Unreliable(0, 1, [b"u2", b"u3"]))
    assert take(box) == [b"u2", b"u3", b"a", b"b"]
    assert box.unreliable.dropped == 1
    assert box.held == 0


@pytest.mark.parametrize("start", STARTS)
def test_fragments_make_a_message_in_its_place(start: int) -> None:
    box = receive_queue(start)
    for number, offset in ((1, 2), (1, 0), (0, 1), (1, 1), (0, 0), (0, 0), (1, 1)):
        part = bytes([10 * number + offset])
        assert offer(box, Fragment(0, wrap(start + number), offset, 2 + number, part))
    assert take(box) == [b"\0\1", b"\n\v\f"]
    assert box.held == 0


def test_fragments_in_a_lane_that_is_not_ordered() -> None:
    box = receive_queue()
    assert offer(box, Fragment(FLAG, 0, 0, 2, b"a"), one(1, b"later", lane=FLAG))
    assert take(box) == [b"later"]
    assert offer(box, Fragment(FLAG, 0, 1, 2, b"b"), Fragment(FLAG, 0, 0, 2, b"a"))
    assert take(box) == [b"ab"]
    assert offer(box, Fragment(FLAG, 0, 0, 2, b"a"))
    assert (take(box), box.held) == ([], 0)


def test_a_slow_message_holds_up_no_others_where_order_does_not_matter() -> None:
    """As long as its id can be told from theirs."""
    box = receive_queue(receive_buffer=100)
    assert offer(box, Fragment(FLAG, 0, 0, 2, b"a"))
    for number in range(1, 100):
        assert offer(box, one(number, lane=FLAG))
        assert take(box) == [b"x"]
    assert not offer(box, one(100, lane=FLAG))
    assert offer(box, Fragment(FLAG, 0, 1, 2, b"b"))
    assert offer(box, one(100, lane=FLAG))
    assert take(box) == [b"ab", b"x"]


def test_fragments_that_contradict_earlier_ones_are_refused() -> None:
    box = receive_queue()
    assert offer(box, Fragment(0, 0, 0, 3, b"a"))
    held = box.held
    for frame in (Fragment(0, 0, 1, 2, b"b"), Fragment(0, 0, 1, 4, b"b")):
        with pytest.raises(RemoteError, match="3 bytes now has"):
            offer(box, frame)
    assert box.held == held


def test_fragments_of_one_packet_that_contradict_each_other_do_no_harm() -> None:
    box = receive_queue()
    assert offer(box, Fragment(0, 0, 0, 2, b"a"), Fragment(0, 0, 5, 9, b"b"))
    assert offer(box, Fragment(0, 0, 1, 2, b"b"))
    assert take(box) == [b"ab"]
    assert box.held == 0


def test_messages_over_the_limit_are_refused() -> None:
    box = receive_queue(max_message=10)
    for frame in (
        one(0, bytes(11)),
        Unreliable(0, 0, [b"", bytes(11)]),
        Fragment(0, 0, 0, 11, b"a"),
    ):
        with pytest.raises(RemoteError, match="11 bytes is over the limit of 10"):
            offer(box, frame)
    assert offer(box, one(0, bytes(10)), Unreliable(0, 0, [bytes(10)]))
    assert take(box) == [bytes(10)] * 2


@pytest.mark.parametrize("number", [64, 127, FLAG | 64, 255])
def test_a_lane_that_cannot_be_is_refused(number: int) -> None:
    box = receive_queue()
    for frame in (
        one(0, lane=number),
        Fragment(number, 0, 0, 2, b"a"),
        Skip(number, 0, 0),
        Unreliable(number, 0, [b""]),
    ):
        with pytest.raises(RemoteError, match="there are at most 64"):
            offer(box, frame)
    assert (len(box), box.held) == (0, 0)


def test_a_whole_message_and_fragments_of_it_do_not_mix() -> None:
    """It was sent whole and then, for smaller packets, cut."""
    box = receive_queue()
    assert offer(box, one(1, b"ab"), Fragment(0, 1, 0, 2, b"a"))
    assert offer(box, Fragment(0, 2, 0, 2, b"a"), one(2, b"ab"))
    assert offer(box, one(0))
    assert take(box) == [b"x", b"ab"]
    assert offer(box, Fragment(0, 2, 1, 2, b"b"))
    assert take(box) == [b"ab"]
    assert box.held == 0


def test_word_that_nothing_comes_lets_others_go_on() -> None:
    box = receive_queue()
    assert offer(box, one(1, b"b"), one(3, b"d"), Fragment(0, 0, 0, 9, b"a"))
    assert take(box) == []
    assert offer(box, Skip(0, 0, 9), Skip(0, 2, 5))
    assert take(box) == [b"b", b"d"]
    assert box.held == 0
    assert offer(box, one(0), one(2), Fragment(0, 0, 1, 9, b"b"), Skip(0, 3, 1))
    assert take(box) == []


def test_what_was_given_up_gives_its_credit_back_once() -> None:
    box = receive_queue(receive_buffer=10, receive_buffer_bytes=1000, max_message=100)
    assert offer(box, Skip(0, 1, 70), Skip(0, 1, 70), Skip(FLAG, 0, 7), Skip(FLAG, 0, 7))
    assert box.credit.allowed == (12, 1077)
    assert offer(box, one(0, b"here"), Skip(0, 0, 4))
    assert box.credit.allowed == (12, 1077), "it had come already, and has to be read"
    assert take(box) == [b"here"]
    assert box.credit.allowed == (13, 1081)


def test_bytes_are_bounded_for_those_who_ignore_their_credit() -> None:
    box = receive_queue(receive_buffer_bytes=1000, max_message=500, max_datagram=500)
    admitted = sum(offer(box, one(number, bytes(100))) for number in range(1, 100))
    assert admitted == 16
    assert box.held == 16 * (100 + COST)


def test_a_flood_of_first_fragments_stays_bounded() -> None:
    box = receive_queue(
        receive_buffer=64, receive_buffer_bytes=20_000, max_message=5000, max_datagram=1200
    )
    random, admitted = Random(1), 0
    for _ in range(20_000):
        place = 100 * random.randrange(40)
        fragment = Fragment(random.randrange(64), random.randrange(65536), place, 4000, bytes(100))
        admitted += offer(box, fragment)
        assert box.held <= 20_000 + 5000 + 64 * COST
    assert 0 < admitted < 20_000
    assert len(take(box)) <= 64


@brisk
@given(
    st.sampled_from(STARTS),
    st.lists(st.tuples(st.binary(max_size=40), st.sampled_from(("whole", "cut", "skip")))),
    st.randoms(use_true_random=False),
    st.integers(1, 8),
    st.sampled_from((0, FLAG)),
)
def test_any_order_repetition_and_packing_gives_the_same_messages(
    start: int, script: list[tuple[bytes, str]], random: Random, buffer: int, flag: int
) -> None:
    box = receive_queue(start, receive_buffer=buffer)
    frames: list[Content] = []
    for number, (payload, kind) in enumerate(script, start):
        if kind == "skip":
            frames.append(Skip(flag, wrap(number), len(payload)))
        elif kind == "cut":
            # Twice, as when the path takes smaller packets than before.
            for size in (random.randint(1, 10), random.randint(1, 10)):
                frames += [
                    Fragment(flag, wrap(number), at, len(payload), payload[at : at + size])
                    for at in range(0, len(payload), size)
                ]
        else:
            frames.append(one(number, payload, lane=flag))
    payloads = [it for it, kind in script if kind == "whole" or (kind == "cut" and it)]
    # An empty message is never cut: nothing comes under its id.
    frames += [
        Skip(flag, wrap(at), 0)
        for at, (it, kind) in enumerate(script, start)
        if kind == "cut" and not it
    ]
    waiting = [[frame] for frame in frames * 2]
    random.shuffle(waiting)
    received: list[bytes] = []
    for _ in range(len(script) + 1):
        waiting = [packet for packet in waiting if not offer(box, *packet)]
        received += take(box)
    assert (received if not flag else sorted(received)) == (
        payloads if not flag else sorted(payloads)
    )
    assert (waiting, box.held, box.gaps) == ([], 0, 0)


@pytest.mark.parametrize("flag", [0, FLAG])
def test_rows_that_overlap_give_each_message_once(flag: int) -> None:
    box = receive_queue()
    for first, text in ((1, b"bc"), (0, b"ab"), (2, b"cd"), (0, b"a")):
        assert offer(box, Messages(flag, first, [bytes([it]) for it in text]))
    assert sorted(take(box)) == [b"a", b"b", b"c", b"d"]
    assert box.held == 0


def test_a_batch_that_overdraws_is_for_its_packets_one_by_one() -> None:
    box = receive_queue(receive_buffer_bytes=1000, max_message=500, max_datagram=500)
    row = Messages(0, 0, [bytes(100)] * 20)
    assert not box.insert([row], 0, batch_bytes=2000)
    assert box.held == 0
    assert box.insert([row], 0), "a single packet may overdraw"
    assert len(take(box)) == 20


def test_what_was_read_is_not_kept_for_what_was_not() -> None:
    """A list lives until it is read to its end; so lists are short, and large messages alone."""
    box = receive_queue()
    small, large = [b"%d" % number for number in range(5000)], [bytes(50_000)[:] for _ in range(10)]
    assert offer(box, Messages(0, 1, small[1:]), Messages(0, 5000, large))
    assert offer(box, Messages(0, 0, small[:1]))
    for number in range(5010):
        assert box.receive_many(1) == [(small + large)[number]]
        if number % 500 == 250 or number >= 5000:
            held = {id(it) for it in reach(box) if isinstance(it, bytes)}
            assert sum(id(it) in held for it in small[:number]) <= BATCH
            assert not any(id(it) in held for it in large[: number - 4999])
    assert (len(box), box.held) == (0, 0)
    assert not count(bytes, box)
