"""What waits in a lane, and what packets take of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.frames import OVERHEAD, SKIP_OVERHEAD, SMALLEST_DATAGRAM, Messages, Skip
from sphtp.core.channel.framing import encode_frames
from sphtp.core.channel.pieces import Piece
from sphtp.core.channel.sources import Large, Small
from sphtp.core.channel.ticket import Ticket


def test_a_piece_takes_as_many_messages_as_fit_and_are_allowed() -> None:
    small = Small([b"x" * 10] * 20)
    piece = small.take(0, 7, 6 + 12 * 3 + 11, 99)
    assert piece is not None
    assert piece.frame == Messages(0, 7, [b"x" * 10] * 3)
    assert (piece.count, piece.size, piece.cost) == (3, 30, 42)
    assert piece.charge == (3, 30)
    limited = small.take(0, 10, 1000, 2)
    assert limited is not None
    assert limited.count == 2
    assert small.take(0, 12, 17, 99) is None, "not even one fits"
    assert [payload for payload, _ in small.rest] == [b"x" * 10] * 15
    rest = small.take(0, 12, 1000, 99)
    assert rest is not None
    assert rest.count == 15
    assert small.is_empty


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=40), st.integers(0, 200))
def test_no_piece_costs_more_than_its_room_and_none_is_lost(
    payloads: list[bytes], room: int
) -> None:
    small, taken = Small(payloads), list[bytes]()
    while (piece := small.take(0, 0, room, 99)) is not None:
        assert isinstance(piece.frame, Messages)
        assert len(encode_frames([piece.frame])) <= piece.cost <= room
        taken += piece.frame.payloads
    assert taken == payloads[: len(taken)]
    assert small.is_empty or len(payloads[len(taken)]) + 8 > room


def test_whoever_follows_a_message_follows_its_piece() -> None:
    small, tickets = Small(), [Ticket(0.0) for _ in range(3)]
    for ticket in (tickets[0], None, tickets[1], tickets[2]):
        small.append(b"x", ticket)
    first, second = small.take(0, 0, 6 + 9, 99), small.take(0, 3, 100, 99)
    assert first is not None
    assert second is not None
    assert list(first.tickets) == tickets[:2]
    assert list(second.tickets) == tickets[2:]


def test_a_queue_of_single_messages_lets_go_of_the_old_ones() -> None:
    small = Small()
    for _ in range(Small.FULL):
        assert not small.is_full
        small.append(b"", None)
    assert small.is_full


@pytest.mark.parametrize("room", [240, 1000, 65_000])
def test_a_large_message_is_cut_to_its_packets_and_paid_for_at_once(room: int) -> None:
    large, pieces = Large(bytes(range(256)) * 200, None), list[Piece]()
    while not large.is_empty:
        assert large.is_begun == bool(pieces)
        piece = large.take(5, 9, room, 1)
        assert piece is not None
        assert len(encode_frames([piece.frame])) == piece.cost <= room
        pieces.append(piece)
    assert sum(piece.count for piece in pieces) == 1
    assert pieces[-1].count == 1
    assert [piece.charge for piece in pieces] == [(1, 51_200), *[(0, 0)] * (len(pieces) - 1)]


def test_a_fragment_that_is_hardly_worth_it_waits_for_the_next_packet() -> None:
    large = Large(bytes(1000), None)
    assert large.take(0, 0, Large.LEAST + 13, 1) is None
    assert large.take(0, 0, Large.LEAST + 14, 1) is not None
    end = Large(bytes(20), None).take(0, 0, 34, 1)
    assert end is not None, "unless there is no more of it"


def test_the_smallest_packets_take_fragments() -> None:
    assert Large(bytes(1000), None).take(0, 0, SMALLEST_DATAGRAM - OVERHEAD, 1) is not None


def test_a_ticket_knows_how_many_parts_its_message_has() -> None:
    ticket = Ticket(0.0)
    large = Large(bytes(1000), ticket)
    for parts in (2, 3, 4, 4):
        assert large.take(0, 0, 14 + 250, 1) is not None
        assert ticket.parts == parts


def test_what_has_begun_is_cut_off_by_word_of_it() -> None:
    large = Large(bytes(1000), Ticket(0.0, deadline=1.0))
    begun = large.take(0, 8, 300, 1)
    assert begun is not None
    rest = large.cut_off(0, 8)
    assert (rest.frame, rest.cost, rest.count) == (Skip(0, 8, 1000), SKIP_OVERHEAD, 1)
    assert begun.charge[1] + rest.charge[1] == 1000
    assert large.is_empty
    begun.skip()
    begun.skip()
    assert begun.frame == Skip(0, 8, 1000)


@given(st.integers(0, 300), st.integers(1, 50))
def test_of_one_size_or_not_messages_cost_the_same(size: int, count: int) -> None:
    alike, added = Small([bytes(size)] * count), Small()
    for _ in range(count):
        added.append(bytes(size), None)
    assert alike._costs == added._costs
    added.append(b"", None)
    alike.append(b"", None)
    assert alike._costs == added._costs
