"""Messages that are sent once: no more than once, and of a sequenced lane only the latest."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.delivery import FLAG, Delivery
from sphtp.core.channel.frames import Unreliable
from sphtp.core.channel.framing import encode_frames
from sphtp.core.channel.ticket import Ticket
from sphtp.core.channel.unreliable import UnreliableInbox, UnreliableOutbox
from sphtp.testing import Faults, Pair
from tests.core.channel.talk import follow

SEQUENCED = FLAG


def push(box: UnreliableOutbox, *payloads: bytes, lane: int = 0) -> list[Ticket]:
    tickets = [Ticket(0.0) for _ in payloads]
    for payload, ticket in zip(payloads, tickets, strict=True):
        box.push(lane, payload, ticket)
    return tickets


def test_messages_in_a_row_of_one_lane_share_a_frame() -> None:
    box = UnreliableOutbox(99)
    tickets = push(box, b"a", b"bc") + push(box, b"d", lane=SEQUENCED) + push(box, b"e")
    frames, sent, room = box.fill(100)
    assert frames == [
        Unreliable(0, 0, [b"a", b"bc"]),
        Unreliable(SEQUENCED, 0, [b"d"]),
        Unreliable(0, 2, [b"e"]),
    ]
    assert sent == tickets
    assert room == 100 - len(encode_frames(frames))
    assert not box


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=40))), st.integers(50, 200))
def test_no_packet_is_overfull_and_each_message_leaves_once(
    messages: list[tuple[int, bytes]], room: int
) -> None:
    box = UnreliableOutbox(1000)
    for lane, payload in messages:
        push(box, payload, lane=lane)
    sent: list[tuple[int, bytes]] = []
    while box:
        frames, tickets, left = box.fill(room)
        assert len(encode_frames(frames)) == room - left <= room
        row = [(frame.lane, payload) for frame in frames for payload in frame.payloads]
        assert len(tickets) == len(row)
        sent += row
    assert sent == messages


def test_those_that_are_dropped_use_up_no_numbers() -> None:
    """Or the peer would take what comes after a burst of them for older than what it has."""
    box, inbox = UnreliableOutbox(2), UnreliableInbox(99)
    for round_ in range(3):
        push(box, *[b"%d" % round_] * 40_000, lane=SEQUENCED)
        (frame,), _, _ = box.fill(100)
        inbox.insert(frame)
    assert inbox.take(99) == [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert inbox.overtaken == 0


def test_what_nobody_needs_any_more_does_not_leave() -> None:
    box = UnreliableOutbox(9)
    first, second = push(box, b"a", b"b")
    box.give_up({first})
    assert box.fill(100)[:2] == ([Unreliable(0, 0, [b"b"])], [second])


def test_overtaken_messages_of_a_sequenced_lane_are_dropped() -> None:
    box = UnreliableInbox(99)
    for first, payloads in ((0, [b"0"]), (3, [b"3", b"4"]), (1, [b"1", b"2"]), (4, [b"4", b"5"])):
        box.insert(Unreliable(SEQUENCED, first, payloads))
    assert box.take(99) == [b"0", b"3", b"4", b"5"]
    assert box.overtaken == 3


def test_without_the_flag_they_are_kept_and_lanes_are_told_apart() -> None:
    box = UnreliableInbox(99)
    box.insert(Unreliable(0, 5, [b"5"]))
    box.insert(Unreliable(0, 4, [b"4"]))
    box.insert(Unreliable(SEQUENCED | 1, 5, [b"one 5"]))
    box.insert(Unreliable(SEQUENCED | 2, 4, [b"two 4"]))
    assert box.take(99) == [b"5", b"4", b"one 5", b"two 4"]


def test_sequenced_lanes_go_on_through_wraps() -> None:
    box, random, newest = UnreliableInbox(99), Random(1), -1
    for number in range(3 * 65_536):
        late = max(0, number - random.choice((0, 0, 0, 1, 5)))
        box.insert(Unreliable(SEQUENCED, late & 0xFFFF, [b"%d" % late]))
        expected = [b"%d" % late] if late > newest else []
        newest = max(newest, late)
        assert box.take(9) == expected


def test_of_too_many_the_oldest_goes() -> None:
    box = UnreliableInbox(3)
    box.insert(Unreliable(0, 0, [b"a", b"b", b"c", b"d", b"e"]))
    assert (len(box), box.dropped, box.held) == (3, 2, 3)
    assert box.take(2) == [b"c", b"d"]
    assert box.take(2) == [b"e"]


@pytest.mark.parametrize("delivery", [Delivery.UNRELIABLE, Delivery.SEQUENCED])
def test_on_a_bad_network_none_comes_twice(delivery: Delivery) -> None:
    pair = Pair(1, Faults(loss=0.2, duplicate=0.3, jitter=0.05))
    left, right = pair.open()
    received: list[int] = []
    for number in range(500):
        follow(left, b"%d" % number, pair.now, delivery=delivery)
        pair.touch(left)
        pair.run(0.01)
        received += map(int, pair.receive(right))
    assert len(set(received)) == len(received)
    assert set(received) <= set(range(500))
    in_order = received == sorted(received)
    assert in_order == (delivery is Delivery.SEQUENCED)
    if delivery is Delivery.UNRELIABLE:
        assert 350 < len(received) < 450
    else:
        assert 100 < len(received) < 350, "those overtaken are dropped"
