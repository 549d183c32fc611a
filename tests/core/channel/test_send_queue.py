"""The send queue: lanes, what a packet takes of them, with acks and losses in any order."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.frames import (
    FLAG,
    Fragment,
    Frame,
    Messages,
    Skip,
    Unreliable,
    encode_frames,
)
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.send_queue import SendQueue
from sphtp.core.channel.sent_packets import FragmentRun, SentFrame
from sphtp.core.channel.settings import ChannelSettings, Delivery, Lane
from sphtp.errors import LocalError, MessageTooLargeError
from tests.cases import each
from tests.core.channel.talk import offer

STARTS = (0, 32767, 65535, 2**32 - 1)
ROOM = 300
# With this room: a whole message has 292 bytes, as has one that is sent once; a fragment 286.
WHOLE = 292


def send_queue(
    messages: int = 1024, size: int = 2**20, limit: int = 10_000, **changes: Any
) -> SendQueue:
    peer = offer(messages=messages, size=size, limit=limit)
    return SendQueue(ChannelSettings(**changes), ROOM, peer)


def push(box: SendQueue, *payloads: bytes, lane: int = 0) -> None:
    assert box.push(payloads, list(map(len, payloads)), lane) == len(payloads)


def follow(box: SendQueue, payload: bytes, ticket: Ticket) -> None:
    assert box.push([payload], [len(payload)], ticket.lane, ticket) == 1


class Content(NamedTuple):
    """What a packet takes."""

    sent: Sequence[SentFrame]

    @property
    def frames(self) -> list[Frame]:
        return [it.frame for it in self.sent]

    @property
    def pieces(self) -> Sequence[SentFrame]:
        """What is sent until it is acked."""
        return [it for it in self.sent if it.is_reliable]

    @property
    def once(self) -> list[Ticket]:
        """Who follows what is sent once."""
        return [ticket for it in self.sent if not it.is_reliable for ticket in it.tickets]


def fill(box: SendQueue, reserved: int = 0) -> Content:
    contents = box.take(reserved, 1)
    assert not isinstance(contents, FragmentRun), "of one packet"
    return Content([frame for content in contents for frame in content])


def once(
    box: SendQueue, payload: bytes, delivery: Delivery = Delivery.UNRELIABLE, lane: int = 0
) -> Ticket | None:
    return box.push_unreliable(payload, Ticket(0.0, lane), delivery)


def places(load: Content) -> list[tuple[int, int]]:
    return [(piece.first_id, piece.index) for piece in load.pieces]


def test_messages_leave_in_order_and_once() -> None:
    box = send_queue()
    push(box, b"\0", b"\1", b"\2")
    load = fill(box)
    assert load.frames == [Messages(0, 0, [b"\0", b"\1", b"\2"])]
    assert fill(box).frames == []
    assert (box.waiting, box.idle) == (3, False)
    box.acked(load.pieces)
    assert (box.waiting, box.idle) == (0, True)


def test_a_hole_keeps_what_is_behind_it_waiting() -> None:
    box = send_queue()
    push(box, *[b"x" * WHOLE] * 3)
    packets = [fill(box).pieces for _ in range(3)]
    box.acked(packets[1])
    box.acked(packets[2])
    assert box.waiting == 3
    box.acked(packets[0])
    assert box.waiting == 0
    box.acked(packets[0])
    assert box.waiting == 0


def test_lost_messages_go_before_new_ones_oldest_first() -> None:
    box = send_queue()
    push(box, *[b"x" * WHOLE] * 4)
    packets = [fill(box).pieces for _ in range(3)]
    assert box.retransmit_lost(packets[2]) == 1
    assert box.retransmit_lost(packets[0]) == 1
    assert [places(fill(box)) for _ in range(4)] == [[(0, 0)], [(2, 0)], [(3, 0)], []]


def test_a_late_ack_settles_what_was_given_up() -> None:
    box = send_queue()
    push(box, b"a")
    pieces = fill(box).pieces
    assert box.retransmit_lost(pieces) == 1
    box.acked(pieces)
    assert fill(box).pieces == []
    assert box.retransmit_lost(pieces) == 0
    assert box.idle


def test_what_probes_repeat_is_not_sent_again_and_again() -> None:
    """Of all packets that hold a piece, the last one to be lost puts it in line."""
    box = send_queue()
    push(box, b"a")
    packets = [fill(box).pieces]
    for _ in range(5):
        assert box.retransmit(packets[0]) == 1
        assert box.retransmit(packets[0]) == 0
        packets.append(fill(box).pieces)
        assert len(packets[-1]) == 1
    assert [box.retransmit_lost(pieces) for pieces in packets] == [0, 0, 0, 0, 0, 1]
    assert len(fill(box).pieces) == 1
    assert fill(box).pieces == []


@pytest.mark.parametrize("start", STARTS)
def test_more_messages_than_the_receiver_allows_are_not_sent(start: int) -> None:
    box = send_queue(messages=3, first_sequence=start)
    push(box, *[b"x"] * 5)
    first = fill(box).pieces
    assert [piece.count for piece in first] == [3]
    box.acked(first)
    assert fill(box).pieces == [], "they are there, but not read"
    box.credit.raise_to(4, 2**30)
    assert [piece.count for piece in fill(box).pieces] == [1]


def test_ids_that_the_receiver_cannot_tell_apart_are_not_sent() -> None:
    """Where order does not matter, later ones may be read while an earlier one is missing."""
    box = send_queue(messages=4, lanes=(Lane(ordered=False),))
    push(box, *[b"x" * WHOLE] * 9)
    packets = [fill(box).pieces for _ in range(4)]
    for pieces in packets[1:]:
        box.acked(pieces)
    box.credit.raise_to(1000, 2**30)
    assert fill(box).pieces == []
    box.acked(packets[0])
    assert places(fill(box)) == [(4, 0)]


def test_more_bytes_than_the_receiver_allows_are_not_sent() -> None:
    box = send_queue(size=500)
    push(box, *[b"x" * WHOLE] * 5)
    assert [len(fill(box).pieces) for _ in range(3)] == [1, 1, 0]
    box.credit.raise_to(1024, 600)
    assert [len(fill(box).pieces) for _ in range(2)] == [1, 0]


def test_large_messages_of_several_lanes_do_not_wait_for_one_anothers_credit() -> None:
    """None could be read, and so none would ever make room."""
    box = send_queue(size=1000, lanes=(Lane(), Lane(), Lane()))
    for lane in range(3):
        push(box, bytes(900), lane=lane)
    sent: set[tuple[int, int, int]] = set()
    while load := fill(box).pieces:
        sent |= {(piece.frame.lane, piece.first_id, piece.index) for piece in load}
    assert {lane for lane, _, _ in sent} == {0, 1}, "and the third one is not begun"
    assert len(sent) == 8


def test_the_queue_is_bounded_in_messages() -> None:
    box = send_queue(send_buffer=2)
    push(box, b"", b"")
    assert box.room_for([0]) == 0
    assert box.push([b""], [0]) == 0
    assert box.push([b"", b""], [0, 0]) == 0
    box.acked(fill(box).pieces)
    assert box.room_for([0] * 5) == 2


def test_the_queue_is_bounded_in_bytes_but_one_message_always_fits() -> None:
    box = send_queue(send_buffer_bytes=10)
    assert box.room_for([50, 1]) == 1
    push(box, bytes(50))
    assert box.room_for([0]) == 0
    box.acked(fill(box).pieces)
    push(box, bytes(4))
    assert box.room_for([3, 3, 3]) == 2
    assert box.room_for([7]) == 0
    assert box.push([bytes(7)], [7]) == 0
    assert box.push([bytes(3)] * 3, [3] * 3) == 2, "the first ones, as far as there is room"


@pytest.mark.parametrize(("limits", "largest"), [((500, 10**6), 500), ((10**6, 400), 400)])
def test_a_message_over_the_limit_is_refused_at_once(limits: tuple[int, int], largest: int) -> None:
    box = send_queue(limit=limits[0], max_message=limits[1])
    assert box.room_for([largest]) == 1
    with pytest.raises(MessageTooLargeError, match=rf"{largest + 1} bytes.*{largest}$"):
        box.room_for([0, largest + 1])
    with pytest.raises(MessageTooLargeError):
        push(box, bytes(largest + 1))
    with pytest.raises(MessageTooLargeError):
        once(box, bytes(largest + 1))
    assert box.idle


@pytest.mark.parametrize("lane", [-1, 2, 64])
def test_a_lane_that_there_is_not_is_named(lane: int) -> None:
    box = send_queue(lanes=(Lane(), Lane()))
    commands: list[Callable[[], object]] = [
        lambda: push(box, b"", lane=lane),
        lambda: follow(box, b"", Ticket(0.0, lane)),
        lambda: once(box, b"", lane=lane),
    ]
    for command in commands:
        with pytest.raises(LocalError, match=f"lane {lane}; this channel has lanes 0 to 1"):
            command()
    assert box.idle


@each("size", [0, 1, 291, 292, 293, 572, 573, 5000])
def test_a_large_message_travels_in_fragments(size: int) -> None:
    box, payload = send_queue(), bytes(number % 251 for number in range(size))
    push(box, payload)
    parts: list[bytes] = []
    while (load := fill(box)).frames:
        for frame in load.frames:
            assert isinstance(frame, Messages | Fragment)
            parts += frame.payloads if isinstance(frame, Messages) else [bytes(frame.payload)]
        assert not box.idle
        box.acked(load.pieces)
    assert b"".join(parts) == payload
    assert len(parts) == (1 if size <= WHOLE else -(-size // 286))
    assert box.idle


def test_only_lost_fragments_are_sent_again() -> None:
    box = send_queue()
    push(box, bytes(286 * 4))
    packets = [fill(box).pieces for _ in range(4)]
    box.acked(packets[0])
    box.acked(packets[2])
    assert box.retransmit_lost(packets[1]) == box.retransmit_lost(packets[3]) == 1
    assert [places(fill(box)) for _ in range(3)] == [[(0, 286)], [(0, 3 * 286)], []]


def test_a_message_sent_once_has_one_packet() -> None:
    box = send_queue()
    once(box, bytes(WHOLE))
    with pytest.raises(MessageTooLargeError, match=r"293 bytes; one packet takes 292"):
        once(box, bytes(WHOLE + 1))
    assert len(fill(box).frames) == 1


def test_when_packets_shrink_what_none_can_carry_is_dropped() -> None:
    """Or it would wait for ever, and all others behind it."""
    box = send_queue()
    for size in (292, 10, 200):
        once(box, bytes(size))
    gone = box.resize(100)
    assert len(gone) == 2
    assert fill(box).frames == [Unreliable(0, 0, [bytes(10)])]
    assert box.idle


def test_of_too_many_messages_sent_once_the_oldest_are_dropped() -> None:
    box = send_queue(unreliable_buffer=2)
    gone = [once(box, bytes([number])) for number in range(5)]
    assert [ticket is not None for ticket in gone] == [False, False, True, True, True]
    assert box.unreliable_dropped == 3
    assert not box.idle
    load = fill(box)
    assert load.frames == [Unreliable(0, 0, [b"\3", b"\4"])]
    assert len(load.once) == 2
    assert box.idle


def test_a_lane_of_higher_priority_goes_first() -> None:
    box = send_queue(lanes=(Lane(), Lane(priority=1), Lane(priority=-1)))
    for lane in (2, 0, 1):
        push(box, *[b"x" * 200] * 3, lane=lane)
    order = [piece.frame.lane for _ in range(9) for piece in fill(box).pieces]
    assert order == [1, 1, 1, 0, 0, 0, 2, 2, 2]


def test_lanes_of_equal_priority_share_by_weight() -> None:
    box = send_queue(lanes=(Lane(weight=3), Lane()))
    for lane in (0, 1):
        push(box, *[b"x" * WHOLE] * 400, lane=lane)
    order = [piece.frame.lane for _ in range(400) for piece in fill(box).pieces]
    assert order.count(0) == pytest.approx(300, abs=2)
    assert order[:40].count(0) == pytest.approx(30, abs=2)


def test_a_lane_that_was_silent_has_saved_nothing_up() -> None:
    box = send_queue(lanes=(Lane(), Lane()))
    push(box, *[b"x" * WHOLE] * 600)
    for _ in range(400):
        box.acked(fill(box).pieces)
    push(box, *[b"x" * WHOLE] * 200, lane=1)
    order = [piece.frame.lane for _ in range(100) for piece in fill(box).pieces]
    assert order.count(0) == pytest.approx(50, abs=2)


def test_lanes_say_whether_they_are_ordered() -> None:
    box = send_queue(lanes=(Lane(), Lane(ordered=False)))
    push(box, b"a", lane=1)
    once(box, b"u", Delivery.SEQUENCED, lane=1)
    once(box, b"v", Delivery.UNRELIABLE, lane=1)
    assert fill(box).frames == [
        Unreliable(1 | FLAG, 0, [b"u"]),
        Unreliable(1, 0, [b"v"]),
        Messages(1 | FLAG, 0, [b"a"]),
    ]


def lane_of(load: Content) -> int:
    (frame,) = load.frames
    assert isinstance(frame, Messages | Unreliable)
    return frame.lane


def test_lanes_share_by_weight_however_busy_a_higher_priority_is() -> None:
    """One that begins later has saved nothing up, although neither was ever the first in line."""
    box = send_queue(messages=9999, lanes=(Lane(priority=1), Lane(), Lane()))
    push(box, *[b"x" * 200] * 900, lane=1)
    for _ in range(500):
        push(box, b"urgent")
        box.acked(fill(box).pieces)
    push(box, *[b"x" * 200] * 300, lane=2)
    served = [0, 0, 0]
    for _ in range(200):
        push(box, b"urgent")
        load = fill(box)
        for piece in load.pieces:
            served[piece.frame.lane] += 1
        box.acked(load.pieces)
    assert served[0] == 200
    assert served[1] == pytest.approx(100, abs=2)
    assert served[2] == pytest.approx(100, abs=2)


def test_a_lane_that_was_held_up_has_saved_nothing_up() -> None:
    """Where order does not matter, a lane stands still as long as its oldest message is missing."""
    box = send_queue(messages=8, lanes=(Lane(ordered=False), Lane(ordered=False)))
    box.credit.raise_to(10_000, 2**30)
    push(box, *[b"x" * WHOLE] * 300)
    push(box, *[b"x" * WHOLE] * 600, lane=1)
    held_up: list[Sequence[SentFrame]] = []
    for _ in range(400):
        pieces = fill(box).pieces
        if pieces[0].frame.lane & ~FLAG:
            box.acked(pieces)
        else:
            held_up.append(pieces)
    assert len(held_up) == 8
    for pieces in held_up:
        box.acked(pieces)
    order: list[int] = []
    for _ in range(100):
        pieces = fill(box).pieces
        order.append(pieces[0].frame.lane & ~FLAG)
        box.acked(pieces)
    assert order.count(0) == pytest.approx(50, abs=2)


def test_what_is_sent_once_has_the_priority_of_its_lane() -> None:
    box = send_queue(lanes=(Lane(), Lane(priority=1)))
    for _ in range(9):
        once(box, b"x" * WHOLE)
    push(box, b"y" * WHOLE, lane=1)
    once(box, b"z" * WHOLE, lane=1)
    assert [lane_of(fill(box)) for _ in range(4)] == [1, 1, 0, 0]


def test_what_is_sent_once_counts_for_the_weight_of_its_lane() -> None:
    box = send_queue(lanes=(Lane(weight=3), Lane()), unreliable_buffer=1000)
    for _ in range(400):
        once(box, b"x" * WHOLE)
    push(box, *[b"x" * WHOLE] * 400, lane=1)
    order = [lane_of(fill(box)) for _ in range(400)]
    assert order.count(0) == pytest.approx(300, abs=2)


@pytest.mark.parametrize("size", [WHOLE, 100, 10])
def test_in_one_lane_neither_kind_holds_up_the_other(size: int) -> None:
    """Both fill the line, messages sent once in small ones or large."""
    box = send_queue(unreliable_buffer=10_000)
    push(box, *[b"x" * WHOLE] * 300)
    for _ in range(300 * WHOLE // size):
        once(box, b"x" * size)
    reliable = sent_once = 0
    for _ in range(200):
        load = fill(box)
        reliable += sum(piece.cost for piece in load.pieces)
        sent_once += len(encode_frames(load.frames)) - sum(piece.cost for piece in load.pieces)
    assert sent_once == pytest.approx(reliable, rel=0.05)
    assert reliable > 70 * ROOM


def test_what_comes_now_and_then_goes_before_what_fills_the_lane() -> None:
    box = send_queue(unreliable_buffer=1000)
    push(box, *[b"x" * WHOLE] * 200)
    for _ in range(10):
        for _ in range(5):
            fill(box)
        once(box, b"news")
        assert fill(box).once, "at once"
    while box.wants_to_send:
        fill(box)
    for _ in range(200):
        once(box, b"x" * WHOLE)
    for _ in range(10):
        for _ in range(5):
            fill(box)
        push(box, b"a command")
        assert any(fill(box).pieces for _ in range(2)), "with the next packet but one at the latest"


def test_a_flood_of_one_lane_takes_no_place_of_another() -> None:
    box = send_queue(lanes=(Lane(), Lane()), unreliable_buffer=100)
    kept = [once(box, b"%d" % number, lane=1) for number in range(100)]
    flood = [once(box, b"flood") for _ in range(500)]
    assert kept == [None] * 100
    assert sum(gone is not None for gone in flood) == box.unreliable_dropped == 400
    sent: list[bytes] = []
    while (load := fill(box)).frames:
        for frame in load.frames:
            assert isinstance(frame, Unreliable)
            sent += frame.payloads if frame.lane else []
    assert sent == [b"%d" % number for number in range(100)]


def test_copies_ride_along_as_often_as_asked() -> None:
    box = send_queue()
    follow(box, b"urgent", Ticket(0.0, copies=2))
    first = fill(box).pieces
    riders: list[list[bytes]] = []
    for number in range(4):
        push(box, b"%d" % number)
        load = fill(box)
        riders.append([it for frame in load.frames for it in frame.payloads])  # type: ignore[union-attr]
    assert riders == [[b"0", b"urgent"], [b"1", b"urgent"], [b"2"], [b"3"]]
    assert box.retransmit_lost(first) == 0, "a copy may still come"


def test_copies_of_what_fills_a_packet_leave_right_behind_the_next_ones() -> None:
    box = send_queue()
    follow(box, b"a" * 200, Ticket(0.0, copies=2))
    sent: list[list[bytes]] = []
    for letter in (b"b", b"c", b"d"):
        push(box, letter * 200)
        while load := fill(box).frames:
            sent.append([it[:1] for frame in load for it in frame.payloads])  # type: ignore[union-attr]
    assert sent == [[b"a"], [b"b"], [b"a"], [b"c"], [b"a"], [b"d"]]
    assert not box.wants_to_send


def test_fragments_have_copies_too() -> None:
    box = send_queue()
    follow(box, bytes(286 + 100), Ticket(0.0, copies=2))
    sent: list[tuple[int, int]] = []
    for _ in range(4):
        while box.wants_to_send:
            sent += places(fill(box))
        push(box, b"x")
    assert sorted(place for place in sent if place[0] == 0) == [(0, 0)] * 3 + [(0, 286)] * 3


def test_copies_go_with_what_is_sent_once_as_well() -> None:
    box = send_queue()
    follow(box, b"urgent", Ticket(0.0, copies=1))
    fill(box)
    once(box, b"news")
    assert fill(box).frames == [Unreliable(0, 0, [b"news"]), Messages(0, 0, [b"urgent"])]


def test_a_copy_of_what_was_acked_meanwhile_does_not_leave() -> None:
    box = send_queue()
    follow(box, b"a" * 200, Ticket(0.0, copies=3))
    first = fill(box).pieces
    push(box, b"b" * 200)
    second = fill(box).pieces
    assert box.wants_to_send, "a copy is due"
    box.acked(first)
    assert fill(box).frames == []
    assert not box.wants_to_send
    box.acked(second)
    assert box.idle


def test_a_copy_that_finds_too_little_room_keeps_nothing_back() -> None:
    box = send_queue()
    follow(box, b"a" * WHOLE, Ticket(0.0, copies=1))
    fill(box)
    push(box, b"b" * WHOLE)
    assert places(fill(box)) == [(1, 0)]
    push(box, b"c")
    assert places(fill(box, 20)) == [(2, 0)]
    assert places(fill(box)) == [(0, 0)]


def test_many_copies_take_turns() -> None:
    box = send_queue()
    for number in range(50):
        follow(box, bytes([number]) * 100, Ticket(0.0, copies=3))
    sent: list[int] = []
    for number in range(300):
        if number % 3 == 0:
            push(box, b"x")
        load = fill(box)
        assert sum(piece.cost for piece in load.pieces) <= ROOM
        assert len(set(load.pieces)) == len(load.pieces)
        sent += [piece.first_id for piece in load.pieces if piece.first_id < 50]
    assert sorted(sent) == sorted([*range(50)] * 4)
    assert not box.wants_to_send


@pytest.mark.parametrize("size", [4, 5000])
def test_a_message_given_up_before_it_left_leaves_no_trace(size: int) -> None:
    """It has no id, so that nobody waits for it, and nobody has to be told."""
    box = send_queue()
    perishable = [Ticket(0.0, deadline=1.0) for _ in range(3)]
    for number, payload in enumerate((b"before", b"after")):
        follow(box, bytes(size), perishable[number])
        push(box, payload)
    follow(box, bytes(size), perishable[2])
    for ticket in perishable:
        box.give_up(ticket)
    assert (box.waiting, box.held) == (2, 11)
    load = fill(box)
    assert load.frames == [Messages(0, 0, [b"before"]), Messages(0, 1, [b"after"])]
    assert not box.wants_to_send
    box.acked(load.pieces)
    assert box.idle
    assert box.room_for([10_000] * 9) == 9


@pytest.mark.parametrize("taken", [0, 1, 2, 4])
def test_a_large_message_can_be_given_up_at_any_time(taken: int) -> None:
    box = send_queue()
    messages, size = box.credit.left, box.credit.packets_of(1)
    perishable = Ticket(0.0, deadline=1.0)
    follow(box, bytes(286 * 4), perishable)
    loads = [fill(box) for _ in range(taken)]
    for load in loads[1:]:
        box.acked(load.pieces)
    box.give_up(perishable)
    assert (box.waiting, box.held) == (0, 0)
    assert box.room_for([10_000] * 9) == 9
    assert box.idle == (not taken)
    if taken == 4:
        assert list(fill(box).frames) == [Skip(0, 0, 286 * 4)]
    while pieces := fill(box).pieces:
        assert {type(piece.frame) for piece in pieces} == {Skip}
        box.acked(pieces)
    for load in loads[:1]:
        box.acked(load.pieces)
    assert box.idle
    assert box.room_for([10_000] * 9) == 9
    used = (messages - box.credit.left, size - box.credit.packets_of(1))
    assert used == ((1, 286 * 4) if taken else (0, 0)), "what the receiver gives back"


def settle(
    box: SendQueue, sizes: Sequence[int], verdicts: Sequence[tuple[bool, int]], rooms: Sequence[int]
) -> None:
    """Ack or lose packets in any order; then ack all. What is acked never leaves again."""
    unacked: list[Sequence[SentFrame]] = []
    settled: set[SentFrame] = set()
    resize = list(rooms)
    for is_acked, pick in [*verdicts, *[(True, 0)] * 2000]:
        if resize and pick % 5 == 0:
            box.resize(resize.pop())
        if pieces := fill(box).pieces:
            assert not settled & set(pieces), "what was acked is not sent again"
            assert len(set(pieces)) == len(pieces)
            assert sum(piece.cost for piece in pieces) <= box.room
            unacked.append(pieces)
        if not unacked:
            break
        pieces = unacked.pop(pick % len(unacked))
        if is_acked:
            settled |= set(pieces)
            box.acked(pieces)
        else:
            box.retransmit_lost(pieces)
    assert box.idle
    assert box.held == 0


@given(
    st.sampled_from(STARTS),
    st.lists(st.integers(0, 1200), max_size=30),
    st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=200),
    st.lists(st.sampled_from((240, 300, 600, 1200)), max_size=6),
)
def test_every_message_leaves_in_the_end(
    start: int, sizes: list[int], verdicts: list[tuple[bool, int]], rooms: list[int]
) -> None:
    box = send_queue(first_sequence=start)
    for size in sizes:
        push(box, bytes(size))
    settle(box, sizes, verdicts, rooms)
