"""One lane's messages: ids, order, and what is kept until it is acked."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.flow_control import SendCredit
from sphtp.core.channel.frames import FLAG, Fragment, Messages, Skip
from sphtp.core.channel.receipts import Outcome, Receipts, Ticket
from sphtp.core.channel.send_lane import MOST, SendLane
from sphtp.core.channel.sent_packets import SentFrame
from sphtp.core.channel.settings import Lane
from sphtp.core.serial import wrap
from tests.profiles import brisk

STARTS = (0, 32767, 65535, 2**32 - 1)
ROOM = 300


def credit(messages: int = 10**6, size: int = 10**9) -> SendCredit:
    return SendCredit(messages, size)


def push(lane: SendLane, *payloads: bytes, room: int = ROOM, ticket: Ticket | None = None) -> None:
    if ticket is None:
        lane.push_many(payloads, list(map(len, payloads)), room)
    else:
        assert lane.push(payloads[0], len(payloads[0]), room, 1000, 10**6, ticket)


def take_all(lane: SendLane, room: int = ROOM) -> list[SentFrame]:
    """All that packets with so much room take, one after the other."""
    frames: list[SentFrame] = []
    before = -1
    while len(frames) > before:
        before = len(frames)
        lane.fill(room, credit(), frames)
    return frames


@pytest.mark.parametrize("start", STARTS)
def test_ids_go_on_from_the_first_whatever_is_sent(start: int) -> None:
    lane = SendLane(3, Lane(), start)
    push(lane, b"a", b"b")
    push(lane, b"c")
    push(lane, bytes(500))
    push(lane, b"e", ticket=Ticket(0.0, deadline=1.0))
    push(lane, b"f", ticket=Ticket(0.0))
    frames = [piece.frame for piece in take_all(lane)]
    kinds = [Messages, Fragment, Fragment, Messages, Messages]
    assert [type(frame) for frame in frames] == kinds
    ids = [it.message_id if isinstance(it, Fragment) else it.first_id for it in frames]  # type: ignore[union-attr]
    assert ids == [wrap(start + number) for number in (0, 3, 3, 4, 5)]
    assert {frame.lane for frame in frames} == {3}
    assert lane.waiting == 6


def test_the_flag_says_that_order_does_not_matter() -> None:
    lane = SendLane(3, Lane(ordered=False), 0)
    push(lane, b"a")
    assert take_all(lane)[0].frame.lane == 3 | FLAG


def test_nothing_goes_beyond_the_window() -> None:
    lane = SendLane(0, Lane(), 0, window=10)
    push(lane, *[b"a"] * 15)
    (piece,) = take_all(lane)
    assert piece.count == 10
    lane.acked(piece)
    assert take_all(lane)[0].count == 5


def test_a_window_is_never_more_than_the_ids_can_tell() -> None:
    lane = SendLane(0, Lane(), 0, window=65_535)
    for _ in range(3):
        push(lane, *[b"a"] * MOST, room=10**6)
    assert sum(piece.count for piece in take_all(lane, 10**6)) == MOST


def test_what_is_given_up_while_under_way_is_told_at_once() -> None:
    lane, ticket = SendLane(0, Lane(), 0), Ticket(0.0, deadline=1.0)
    push(lane, b"before")
    push(lane, b"late", ticket=ticket)
    first, second = take_all(lane)
    lane.give_up(ticket)
    lane.give_up(ticket)
    assert [piece.frame for piece in take_all(lane)] == [Skip(0, 1, 4)]
    lane.acked(second)
    lane.acked(first)
    assert lane.waiting == 0
    assert not lane.wants_to_send


def test_when_packets_shrink_everything_is_cut_anew() -> None:
    lane = SendLane(0, Lane(), 0)
    payloads = [bytes([number]) * 250 for number in range(4)]
    push(lane, *payloads, room=1000)
    push(lane, bytes(3000), room=1000)
    sent = take_all(lane, 1000)
    push(lane, *payloads, room=1000)
    lane.cut_anew(240)
    assert all(piece.acked for piece in sent if piece.cost > 240)
    again = take_all(lane, 240)
    assert all(piece.cost <= 240 for piece in again)
    assert {type(piece.frame) for piece in again} == {Fragment}
    for piece in (*again, *[piece for piece in sent if not piece.acked]):
        lane.acked(piece)
    assert lane.waiting == 0


@pytest.mark.parametrize("start", STARTS)
def test_messages_of_one_frame_that_is_cut_anew_keep_their_own_tickets(start: int) -> None:
    lane, receipts = SendLane(0, Lane(), start), Receipts()
    small, large = Ticket(0.0, size=60), Ticket(0.0, size=400)
    push(lane, bytes(300), room=1000)
    for ticket in (small, large):
        receipts.add(ticket)
        push(lane, bytes(ticket.size), room=1000, ticket=ticket)
    push(lane, bytes(100), room=1000)
    (whole,) = take_all(lane, 1000)
    assert whole.tickets == [small, large]
    lane.cut_anew(240)
    parts = take_all(lane, 240)
    assert [part.first_id - start for part in parts] == [0, 0, 1, 2, 2, 3]
    for part in parts[:2] + parts[3:4]:
        receipts.acked(1.0, part.tickets, part.size)
    assert (small.acked, small.outcome) == (0, None)
    assert (large.acked, large.outcome) == (parts[3].size, None)
    receipts.acked(2.0, parts[2].tickets, 60)
    assert (small.outcome, large.outcome) == (Outcome.DELIVERED, None)
    receipts.acked(3.0, parts[4].tickets, parts[4].size)
    assert large.outcome is Outcome.DELIVERED


@brisk
@given(
    st.sampled_from(STARTS),
    st.lists(st.lists(st.integers(0, 700), min_size=1, max_size=5), max_size=12),
    st.randoms(use_true_random=False),
)
def test_waiting_is_from_the_oldest_unacked(
    start: int, batches: list[list[int]], random: Random
) -> None:
    lane, sizes = SendLane(0, Lane(), start), [size for batch in batches for size in batch]
    for batch in batches:
        push(lane, *map(bytes, batch))
    sent = take_all(lane)
    # The last piece of each message, by which it ends.
    unacked = set(range(len(sizes)))
    parts = dict.fromkeys(unacked, 0)
    for piece in sent:
        first = piece.first_id - start
        for number in range(first, first + max(1, piece.count)):
            parts[number] += 1
    random.shuffle(sent)
    for piece in sent:
        lane.acked(piece)
        first = piece.first_id - start
        for number in range(first, first + max(1, piece.count)):
            parts[number] -= 1
        unacked = {number for number in unacked if parts[number]}
        assert lane.waiting == (len(sizes) - min(unacked) if unacked else 0)


def test_what_was_lost_goes_before_a_batch_of_what_is_new() -> None:
    lane = SendLane(0, Lane(), 0)
    push(lane, *[bytes(100)] * 20)
    first: list[SentFrame] = []
    lane.fill(ROOM, credit(), first)
    lane.retransmit(first[0])
    assert lane.take_batch(ROOM, 8, credit()) is None
    again: list[SentFrame] = []
    lane.fill(ROOM, credit(), again)
    assert again[0] is first[0]
    assert lane.take_batch(ROOM, 8, credit()) is not None


def test_a_message_cut_anew_is_given_up_whole() -> None:
    """It expires although the frames in which it left are not those that it goes again in."""
    lane = SendLane(0, Lane(), 0)
    ticket = Ticket(0.0, deadline=1.0)
    push(lane, bytes(250), ticket=ticket)
    take_all(lane)
    lane.cut_anew(ROOM // 2)
    lane.give_up(ticket)
    assert {type(sent.frame) for sent in take_all(lane)} == {Skip}
    assert (lane.held, lane.waiting) == (0, 0)
