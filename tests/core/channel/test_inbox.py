"""The receive queue: once, in order, bounded, and not confused by what makes no sense."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.fragments import Reassembly
from sphtp.core.channel.frames import Fragment, Frame, Messages, Unreliable
from sphtp.core.channel.inbox import Inbox
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.serial import wrap
from sphtp.errors import RemoteError

STARTS = (0, 32767, 65535, 2**32 - 1)


def inbox(start: int = 0, **changes: int) -> Inbox:
    return Inbox(ChannelSettings(**changes), wrap(start))


def offer(box: Inbox, *frames: Frame) -> bool:
    """What a packet does: all of it, or nothing."""
    if not box.admits(frames):
        return False
    for frame in frames:
        assert isinstance(frame, Messages | Fragment | Unreliable)
        box.insert(frame)
    return True


def take(box: Inbox) -> list[bytes]:
    taken = []
    while (payload := box.receive()) is not None:
        taken.append(payload)
    return taken


def one(message_id: int, payload: bytes = b"x") -> Messages:
    return Messages(wrap(message_id), [payload])


@pytest.mark.parametrize("start", STARTS)
def test_messages_come_out_in_order_and_once(start: int) -> None:
    box = inbox(start)
    for number in (2, 0, 2, 0, 1, 1, 3, 0):
        assert offer(box, one(start + number, bytes([number])))
    assert take(box) == [b"\0", b"\1", b"\2", b"\3"]
    assert offer(box, one(start + 1, b"again"))
    assert take(box) == []
    assert box.held == 0


def test_an_empty_message_is_a_message() -> None:
    box = inbox()
    assert offer(box, Messages(0, [b"", b"a", b""]))
    assert take(box) == [b"", b"a", b""]


@pytest.mark.parametrize("start", STARTS)
def test_ids_wrap_again_and_again(start: int) -> None:
    box, taken, many = inbox(start, receive_buffer=64), 0, 16
    for first in range(0, 3 * 65536, 4 * many):
        for block in reversed(range(first, first + 4 * many, many)):
            payloads = [b"%d" % number for number in range(block, block + many)]
            assert offer(box, Messages(wrap(start + block), payloads))
        for payload in take(box):
            assert payload == b"%d" % taken
            taken += 1
    assert taken == 3 * 65536


def test_too_early_is_refused_until_others_are_read() -> None:
    box = inbox(receive_buffer=2)
    assert not offer(box, one(2))
    assert offer(box, one(1))
    assert offer(box, one(0))
    assert not offer(box, one(2)), "two are unread"
    assert box.receive() == b"x"
    assert offer(box, one(2))
    assert not offer(box, one(3))


def test_a_packet_is_taken_whole_or_not_at_all() -> None:
    box = inbox(receive_buffer=2)
    assert not offer(box, Unreliable([b"u"]), one(0), one(5))
    assert take(box) == []
    assert box.held == 0


def test_unreliable_messages_come_out_as_they_come() -> None:
    box = inbox(unreliable_buffer=2)
    assert offer(box, one(1, b"b"), Unreliable([b"u1"]))
    assert offer(box, one(0, b"a"), Unreliable([b"u2", b"u3"]))
    assert take(box) == [b"u1", b"a", b"b", b"u2"]
    assert box.unreliable_dropped == 1
    assert box.held == 0


@pytest.mark.parametrize("start", STARTS)
def test_parts_make_a_message_in_its_place(start: int) -> None:
    box = inbox(start)
    for number, index in ((1, 2), (1, 0), (0, 1), (1, 1), (0, 0), (0, 0), (1, 1)):
        payload = bytes([number, index])
        assert offer(box, Fragment(wrap(start + number), index, 2 + number, payload))
    assert take(box) == [b"\0\0\0\1", b"\1\0\1\1\1\2"]
    assert box.held == 0


def test_parts_that_contradict_earlier_ones_are_refused() -> None:
    box = inbox()
    assert offer(box, Fragment(0, 0, 3, b"a"))
    held = box.held
    for frame in (Fragment(0, 1, 2, b"b"), Fragment(0, 1, 4, b"b")):
        with pytest.raises(RemoteError, match="3 parts now has"):
            offer(box, frame)
    assert box.held == held


def test_parts_of_one_packet_that_contradict_each_other_are_refused() -> None:
    box = inbox()
    with pytest.raises(RemoteError, match="2 parts now has 9"):
        offer(box, Fragment(0, 0, 2, b"a"), Fragment(0, 5, 9, b"b"))
    assert box.held == 0
    assert offer(box, Fragment(0, 0, 2, b"a"), Fragment(0, 1, 2, b"b"))
    assert take(box) == [b"ab"]


def test_messages_over_the_limit_are_refused() -> None:
    box = inbox(max_message=10)
    for frames in (
        [one(0, bytes(11))],
        [Unreliable([bytes(11)])],
        [Fragment(0, 0, 11, b"a")],
        [Fragment(0, 0, 2, bytes(11))],
        [Fragment(0, 0, 2, bytes(6)), Fragment(0, 1, 2, bytes(5))],
    ):
        with pytest.raises(RemoteError, match="limit"):
            offer(box, *frames)
    assert offer(box, Fragment(0, 0, 2, bytes(6)))
    with pytest.raises(RemoteError, match="limit"):
        offer(box, Fragment(0, 1, 2, bytes(5)))
    assert offer(box, Fragment(0, 0, 2, bytes(6))), "the known part again is no news"
    assert offer(box, Fragment(0, 1, 2, bytes(4)))
    assert take(box) == [bytes(10)]


def test_a_whole_message_and_parts_of_it_do_not_mix() -> None:
    box = inbox()
    assert offer(box, one(1, b"whole"), Fragment(1, 0, 2, b"a"))
    assert offer(box, Fragment(2, 0, 2, b"a"), one(2, b"whole"))
    assert offer(box, one(0))
    assert take(box) == [b"x", b"whole"]
    assert offer(box, Fragment(2, 1, 2, b"b"))
    assert take(box) == [b"ab"]


def test_bytes_are_bounded() -> None:
    box = inbox(receive_buffer_bytes=1000)
    assert all(offer(box, one(number, bytes(100))) for number in range(1, 11))
    assert not offer(box, one(11, bytes(100)))
    assert box.held == 1000


def test_the_message_all_wait_for_gets_in_with_what_shares_its_packet() -> None:
    """Or packets that hold it together with others would be refused for ever."""
    box = inbox(receive_buffer_bytes=1000)
    assert all(offer(box, one(number, bytes(100))) for number in range(1, 11))
    assert offer(box, one(0), one(11, bytes(100)))
    assert not offer(box, one(12)), "now there is something to read first"
    assert len(take(box)) == 12
    assert box.held == 0


def test_a_flood_of_first_fragments_stays_bounded() -> None:
    box = inbox(receive_buffer=64, receive_buffer_bytes=20_000, max_message=50_000)
    random, admitted = Random(1), 0
    for _ in range(100_000):
        fragment = Fragment(random.randrange(65536), random.randrange(40), 40, bytes(100))
        admitted += offer(box, fragment)
        assert box.held <= 20_000 + 40 * (100 + Reassembly.PART_COST)
    assert 0 < admitted < 100_000
    assert len(take(box)) <= 64


def test_a_flood_on_the_message_all_wait_for_stays_bounded() -> None:
    box = inbox(receive_buffer_bytes=1000, max_message=5000, receive_buffer=8, max_datagram=1200)
    for index in range(5000):
        riders: Sequence[Frame] = [Fragment(n, index, 5000, bytes(200)) for n in range(1, 6)]
        try:
            offer(box, Fragment(0, index, 5000, b"a"), *riders)
        except RemoteError:
            continue
        assert box.held <= 1000 + 2 * 5000 + 8 * 1200


@given(
    st.sampled_from(STARTS),
    st.lists(st.binary(max_size=40), max_size=30),
    st.randoms(use_true_random=False),
    st.integers(1, 8),
    st.integers(1, 200),
)
def test_any_order_repetition_and_packing_gives_the_same_messages(
    start: int, payloads: list[bytes], random: Random, buffer: int, limit: int
) -> None:
    box = inbox(start, receive_buffer=buffer, receive_buffer_bytes=limit)
    frames: list[Frame] = []
    for number, payload in enumerate(payloads, start):
        if len(payload) > 10:
            count = -(-len(payload) // 10)
            frames += [
                Fragment(wrap(number), n, count, payload[10 * n : 10 * n + 10])
                for n in range(count)
            ]
        else:
            frames.append(one(number, payload))
    waiting = [[frame] for frame in frames * 2]
    random.shuffle(waiting)
    received: list[bytes] = []
    for _ in range(len(payloads) + 1):
        waiting = [packet for packet in waiting if not offer(box, *packet)]
        received += take(box)
    assert received == payloads
    assert (waiting, box.held) == ([], 0)
