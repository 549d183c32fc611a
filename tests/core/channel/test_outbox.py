"""The send queue against the seed's rules, with acks and losses in any order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.acks import Piece
from sphtp.core.channel.frames import Fragment, Messages, Unreliable
from sphtp.core.channel.outbox import Outbox
from sphtp.core.channel.settings import ChannelSettings
from sphtp.errors import MessageTooLargeError, StateError

STARTS = (0, 32767, 65535, 2**32 - 1)
ROOM = 100
# With this room: a whole message has 94 bytes, a part 91, an unreliable message 96.


def outbox(peer_buffer: int = 1024, peer_limit: int = 10_000, **changes: int) -> Outbox:
    return Outbox(ChannelSettings(**changes), ROOM, peer_buffer, peer_limit)


def ids(pieces: list[Piece]) -> list[int]:
    return [message_id for message_id, _ in pieces]


def test_messages_leave_in_order_and_once() -> None:
    box = outbox()
    for number in range(3):
        box.push(bytes([number]))
    packing = box.fill()
    assert packing.frames == [Messages(0, [b"\0", b"\1", b"\2"])]
    assert box.fill().frames == []
    assert (box.waiting, box.idle) == (3, False)
    box.acked(packing.pieces)
    assert (box.waiting, box.idle) == (0, True)


def test_a_hole_keeps_what_is_behind_it_waiting() -> None:
    box = outbox()
    for _ in range(3):
        box.push(b"x" * 90)
    packets = [box.fill().pieces for _ in range(3)]
    box.acked(packets[1])
    box.acked(packets[2])
    assert box.waiting == 3
    box.acked(packets[0])
    assert box.waiting == 0
    box.acked(packets[0])
    assert box.waiting == 0


def test_lost_messages_go_before_new_ones_oldest_first() -> None:
    box = outbox()
    for _ in range(4):
        box.push(b"x" * 90)
    packets = [box.fill().pieces for _ in range(3)]
    assert box.lost(packets[2]) == 1
    assert box.lost(packets[0]) == 1
    assert [ids(box.fill().pieces) for _ in range(4)] == [[0], [2], [3], []]


def test_a_late_ack_settles_what_was_given_up() -> None:
    box = outbox()
    box.push(b"a")
    pieces = box.fill().pieces
    assert box.lost(pieces) == 1
    box.acked(pieces)
    assert box.fill().pieces == []
    assert box.lost(pieces) == 0
    assert box.idle


@pytest.mark.parametrize("start", STARTS)
def test_an_id_the_receiver_cannot_buffer_is_never_sent(start: int) -> None:
    box = outbox(peer_buffer=3, first_sequence=start)
    for _ in range(5):
        box.push(b"x")
    first = box.fill().pieces
    assert ids(first) == [start, start + 1, start + 2]
    box.acked(first[1:])
    assert box.fill().pieces == [], "the oldest is still unacked"
    box.acked(first[:1])
    assert ids(box.fill().pieces) == [start + 3, start + 4]


def test_the_queue_is_bounded_in_messages() -> None:
    box = outbox(send_buffer=2)
    box.push(b"")
    box.push(b"")
    assert not box.has_room(0)
    with pytest.raises(StateError, match="2 messages wait"):
        box.push(b"")
    box.acked(box.fill().pieces)
    assert box.has_room(0)


def test_the_queue_is_bounded_in_bytes_but_one_message_always_fits() -> None:
    box = outbox(send_buffer_bytes=10)
    assert box.has_room(50)
    box.push(bytes(50))
    assert not box.has_room(0)
    box.acked(box.fill().pieces)
    box.push(bytes(4))
    assert box.has_room(6)
    assert not box.has_room(7)
    with pytest.raises(StateError):
        box.push(bytes(7))


@pytest.mark.parametrize(
    ("limits", "largest"),
    [
        ({"peer_limit": 500}, 500),
        ({"max_message": 400}, 400),
        ({"max_message": 2**26, "peer_limit": 2**26}, 65_535 * 91),
    ],
)
def test_a_message_over_the_limit_is_refused_at_once(limits: dict[str, int], largest: int) -> None:
    box = outbox(**limits)
    box.check(largest)
    with pytest.raises(MessageTooLargeError, match=rf"{largest + 1} bytes.*{largest}$"):
        box.check(largest + 1)
    with pytest.raises(MessageTooLargeError):
        box.push(bytes(largest + 1))
    assert box.idle


@pytest.mark.parametrize("size", [0, 1, 93, 94, 95, 96, 181, 182, 183, 5000])
def test_a_large_message_travels_in_parts(size: int) -> None:
    box, payload = outbox(), bytes(number % 251 for number in range(size))
    box.push(payload)
    parts: list[bytes] = []
    while (packing := box.fill()).frames:
        for frame in packing.frames:
            assert isinstance(frame, Messages | Fragment)
            parts += frame.payloads if isinstance(frame, Messages) else [frame.payload]
        assert not box.idle
        box.acked(packing.pieces)
    assert b"".join(parts) == payload
    assert len(parts) == (1 if size <= 94 else -(-size // 91))
    assert box.idle


def test_only_lost_parts_are_sent_again() -> None:
    box = outbox()
    box.push(bytes(91 * 4))
    packets = [box.fill().pieces for _ in range(4)]
    box.acked(packets[0])
    box.acked(packets[2])
    assert box.lost(packets[1]) == box.lost(packets[3]) == 1
    assert [box.fill().pieces for _ in range(3)] == [[(0, 1)], [(0, 3)], []]


def test_an_unreliable_message_over_one_packet_is_refused() -> None:
    box = outbox()
    box.push_unreliable(bytes(96))
    with pytest.raises(MessageTooLargeError, match=r"97 bytes.*96"):
        box.push_unreliable(bytes(97))
    with pytest.raises(MessageTooLargeError, match=r"51 bytes.*50"):
        outbox(peer_limit=50).push_unreliable(bytes(51))


def test_of_too_many_unreliable_messages_the_oldest_are_dropped() -> None:
    box = outbox(unreliable_buffer=2)
    for number in range(5):
        box.push_unreliable(bytes([number]))
    assert box.unreliable_dropped == 3
    assert not box.idle
    assert box.fill().frames == [Unreliable([b"\3", b"\4"])]
    assert box.idle


@given(
    st.sampled_from(STARTS),
    st.lists(st.integers(0, 400), max_size=30),
    st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=200),
)
def test_every_message_leaves_in_the_end(
    start: int, sizes: list[int], verdicts: list[tuple[bool, int]]
) -> None:
    """Packets are acked or lost in any order; then all are acked, and nothing waits."""
    box = outbox(peer_buffer=8, first_sequence=start)
    for size in sizes:
        box.push(bytes(size))
    flying: list[list[Piece]] = []
    settled: set[Piece] = set()
    for is_acked, pick in [*verdicts, *[(True, 0)] * 1000]:
        if pieces := box.fill().pieces:
            assert not settled & set(pieces), "what was acked is not sent again"
            assert max(ids(pieces)) < start + len(sizes) - box.waiting + 8
            flying.append(pieces)
        if not flying:
            break
        pieces = flying.pop(pick % len(flying))
        if is_acked:
            settled |= set(pieces)
            box.acked(pieces)
        else:
            box.lost(pieces)
    assert box.idle
