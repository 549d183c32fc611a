"""Messages that are sent once: no more than once, and of a sequenced lane only the latest."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.flow_control import COST
from sphtp.core.channel.frames import FLAG, Unreliable, encode_frames
from sphtp.core.channel.queued_messages import UnreliableQueue
from sphtp.core.channel.receipts import Outcome, Ticket
from sphtp.core.channel.receive_queue import UnreliableReceiveQueue
from sphtp.core.channel.sent_packets import SentFrame
from sphtp.core.channel.settings import ChannelSettings, Delivery
from sphtp.core.serial import wrap
from sphtp.testing import Faults, Pair
from tests.cases import each
from tests.core.channel.talk import follow

SEQUENCED = FLAG


def push(box: UnreliableQueue, *payloads: bytes, lane: int = 0) -> list[Ticket]:
    tickets = [Ticket(0.0) for _ in payloads]
    for payload, ticket in zip(payloads, tickets, strict=True):
        box.push(lane, payload, ticket)
    return tickets


def fill(box: UnreliableQueue, room: int) -> tuple[list[Unreliable], list[Ticket], int]:
    """What fits: frames, those who follow what is in them, and the room that is left."""
    sent: list[SentFrame] = []
    left = box.fill(room, sent)
    frames = [it.frame for it in sent if isinstance(it.frame, Unreliable)]
    return frames, [ticket for it in sent for ticket in it.tickets], left


def test_messages_in_a_row_of_one_lane_share_a_frame() -> None:
    box = UnreliableQueue(99)
    tickets = push(box, b"a", b"bc") + push(box, b"d", lane=SEQUENCED) + push(box, b"e")
    frames, sent, room = fill(box, 100)
    assert frames == [
        Unreliable(0, 0, [b"a", b"bc"]),
        Unreliable(SEQUENCED, 0, [b"d"]),
        Unreliable(0, 2, [b"e"]),
    ]
    assert sent == tickets
    assert room == 100 - len(encode_frames(frames))
    assert not box.waiting


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=40))), st.integers(50, 200))
def test_no_packet_is_overfull_and_each_message_leaves_once(
    messages: list[tuple[int, bytes]], room: int
) -> None:
    box = UnreliableQueue(1000)
    for lane, payload in messages:
        push(box, payload, lane=lane)
    sent: list[tuple[int, bytes]] = []
    while box.waiting:
        frames, tickets, left = fill(box, room)
        assert len(encode_frames(frames)) == room - left <= room
        row = [(frame.lane, payload) for frame in frames for payload in frame.payloads]
        assert len(tickets) == len(row)
        sent += row
    assert sent == messages


def test_those_that_are_dropped_use_up_no_numbers() -> None:
    """Or the peer would take what comes after a burst of them for older than what it has."""
    box, receive_queue = UnreliableQueue(2), UnreliableReceiveQueue(99, 10**6)
    for round_ in range(3):
        push(box, *[b"%d" % round_] * 40_000, lane=SEQUENCED)
        (frame,), _, _ = fill(box, 100)
        receive_queue.insert(frame, round_)
    assert receive_queue.take(99) == [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert receive_queue.overtaken == 0


def test_what_nobody_needs_any_more_does_not_leave() -> None:
    box = UnreliableQueue(9)
    first, second = push(box, b"a", b"b")
    assert box.give_up(first)
    assert not box.give_up(first)
    assert fill(box, 100)[:2] == ([Unreliable(0, 0, [b"b"])], [second])


def test_overtaken_messages_of_a_sequenced_lane_are_dropped() -> None:
    box = UnreliableReceiveQueue(99, 10**6)
    for sequence, payloads in ((0, [b"0"]), (3, [b"3", b"4"]), (1, [b"1", b"2"]), (4, [b"5"])):
        box.insert(Unreliable(SEQUENCED, 0, payloads), sequence)
    assert box.take(99) == [b"0", b"3", b"4", b"5"]
    assert box.overtaken == 2


def test_several_frames_of_a_sequenced_lane_share_a_packet() -> None:
    """As when others of the lane, which are not sequenced, lie between."""
    box = UnreliableReceiveQueue(99, 10**6)
    frames = (
        Unreliable(SEQUENCED, 0, [b"0"]),
        Unreliable(0, 0, [b"u"]),
        Unreliable(SEQUENCED, 1, [b"1"]),
    )
    for frame in frames:
        box.insert(frame, 7)
    assert box.take(99) == [b"0", b"u", b"1"]


def test_without_the_flag_they_are_kept_and_lanes_are_told_apart() -> None:
    box = UnreliableReceiveQueue(99, 10**6)
    box.insert(Unreliable(0, 5, [b"5"]), 5)
    box.insert(Unreliable(0, 4, [b"4"]), 4)
    box.insert(Unreliable(SEQUENCED | 1, 5, [b"one 5"]), 5)
    box.insert(Unreliable(SEQUENCED | 2, 4, [b"two 4"]), 4)
    assert box.take(99) == [b"5", b"4", b"one 5", b"two 4"]


@each("lost", [1, 32_767, 32_768, 40_000, 65_535, 65_536, 100_000, 2**20])
def test_however_many_are_lost_in_a_row_the_next_one_counts(lost: int) -> None:
    box = UnreliableReceiveQueue(99, 10**6)
    box.insert(Unreliable(SEQUENCED, 0, [b"before"]), 10)
    late = Unreliable(SEQUENCED, wrap(lost - 1), [b"late"])
    box.insert(Unreliable(SEQUENCED, wrap(lost), [b"after"]), 12)
    box.insert(late, 11)
    assert box.take(99) == [b"before", b"after"]
    assert box.overtaken == 1


def test_sequenced_lanes_go_on_through_wraps() -> None:
    box, random, newest = UnreliableReceiveQueue(99, 10**6), Random(1), -1
    for number in range(65_536 + 1000):
        late = max(0, number - random.choice((0, 0, 0, 1, 5)))
        if late == newest:
            continue
        box.insert(Unreliable(SEQUENCED, late & 0xFFFF, [b"%d" % late]), late)
        expected = [b"%d" % late] if late > newest else []
        newest = max(newest, late)
        assert box.take(9) == expected


def test_of_too_many_the_oldest_goes() -> None:
    box = UnreliableReceiveQueue(3, 10**6)
    box.insert(Unreliable(0, 0, [b"a", b"b", b"c", b"d", b"e"]), 0)
    assert (box.unread, box.dropped, box.held) == (3, 2, 3 * (1 + COST))
    assert box.take(2) == [b"c", b"d"]
    assert box.take(2) == [b"e"]
    assert box.held == 0


def test_a_flood_of_one_lane_takes_no_place_of_another_until_it_is_read() -> None:
    box = UnreliableReceiveQueue(100, 10**6)
    for number in range(100):
        box.insert(Unreliable(1, number, [b"%d" % number]), number)
    for number in range(500):
        box.insert(Unreliable(0, number, [b"flood"]), 100 + number)
    assert box.dropped == 400
    assert box.take(150) == [b"%d" % number for number in range(100)] + [b"flood"] * 50
    assert box.take(99) == [b"flood"] * 50


def test_bytes_of_all_lanes_are_bounded_and_the_fullest_pays() -> None:
    box = UnreliableReceiveQueue(100, 20_000)
    box.insert(Unreliable(1, 0, [b"kept"]), 0)
    for number in range(100):
        box.insert(Unreliable(2, number, [bytes(1000)]), number + 1)
        assert box.held <= 20_000
    taken = box.take(999)
    assert (len(taken), taken[0]) == (16, b"kept")
    assert box.dropped == 85
    assert box.held == 0


def test_sequenced_messages_go_on_after_any_time_in_the_dark() -> None:
    """At 51,000 messages/s, 0.8 s without the path are more than half of all ids."""
    settings = ChannelSettings(congestion="fixed:1e7", unreliable_buffer=4096)
    pair = Pair(1, Faults(delay=0.01), settings)
    left, right = pair.open()
    follow(left, b"before", pair.now, delivery=Delivery.SEQUENCED)
    pair.touch(left)
    pair.run(1)
    pair.network.set_default(Faults(blocked=True))
    for _ in range(40):
        for _ in range(1000):
            follow(left, b"dark", pair.now, delivery=Delivery.SEQUENCED)
        pair.touch(left)
        pair.run(0.02)
    pair.network.set_default(Faults(delay=0.01))
    pair.run(3)
    assert left.port.statistics().unreliable_dropped == 0, "all have left"
    tickets = []
    for number in range(20):
        tickets.append(follow(left, b"%d" % number, pair.now, delivery=Delivery.SEQUENCED))
        pair.touch(left)
        pair.run(0.05)
    received = [payload for payload in pair.receive(right) if payload != b"dark"]
    assert received == [b"before", *[b"%d" % number for number in range(20)]]
    assert {ticket.outcome for ticket in tickets} == {Outcome.ARRIVED}


@pytest.mark.parametrize("delivery", [Delivery.UNRELIABLE, Delivery.SEQUENCED])
def test_on_a_bad_network_none_comes_twice(delivery: Delivery) -> None:
    pair = Pair(1, Faults(loss=0.2, duplicate=0.3, jitter=0.05))
    left, right = pair.open()
    received: list[int] = []
    tickets: list[Ticket] = []
    for number in range(500):
        tickets.append(follow(left, b"%d" % number, pair.now, delivery=delivery))
        pair.touch(left)
        pair.run(0.01)
        received += map(int, pair.receive(right))
    pair.run(1)
    received += map(int, pair.receive(right))
    assert len(set(received)) == len(received)
    assert set(received) <= set(range(500))
    in_order = received == sorted(received)
    assert in_order == (delivery is Delivery.SEQUENCED)
    if delivery is Delivery.UNRELIABLE:
        assert 350 < len(received) < 450
    else:
        assert 100 < len(received) < 350, "those overtaken are dropped"
    assert {ticket.outcome for ticket in tickets} == {Outcome.ARRIVED, Outcome.LOST}
