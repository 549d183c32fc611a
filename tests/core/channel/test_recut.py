"""The path takes only smaller packets than before: everything still arrives, once."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.delivery import Lane
from sphtp.core.channel.frames import Fragment, Messages, Skip
from sphtp.core.channel.path_mtu import RETRY_AFTER
from sphtp.core.channel.pieces import Piece, make_fragment
from sphtp.core.channel.recut import recut, resource
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.sources import Large, Single, Small
from sphtp.core.channel.ticket import Outcome, Ticket
from sphtp.testing import Faults, Pair
from tests.core.channel.talk import follow, send_once
from tests.soaked import soaked


def rebuild(pieces: list[Piece]) -> dict[int, bytes]:
    """The messages that pieces carry, whole or in fragments without overlap."""
    messages: dict[int, bytes] = {}
    for piece in sorted(pieces):
        if isinstance(piece.frame, Messages):
            assert len(piece.frame.payloads) == piece.count
            for number, payload in enumerate(piece.frame.payloads, piece.first_id):
                assert number not in messages
                messages[number] = payload
        else:
            assert isinstance(piece.frame, Fragment)
            so_far = messages.setdefault(piece.first_id, b"")
            assert piece.frame.offset == len(so_far)
            messages[piece.first_id] += piece.frame.payload
            ends = len(messages[piece.first_id]) == piece.frame.total
            assert piece.count == ends
    return messages


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=8), st.integers(20, 400))
def test_messages_are_cut_into_what_fits(payloads: list[bytes], room: int) -> None:
    piece = Small(payloads).take(3, 70_000, 10_000, 99)
    assert piece is not None
    ticket = Ticket(0.0)
    piece.tickets = [ticket]
    pieces = recut(piece, room)
    if piece.cost <= room:
        assert pieces == [piece]
        return
    assert all(it.cost <= room for it in pieces)
    assert rebuild(pieces) == dict(enumerate(payloads, 70_000))
    assert sum(it.size for it in pieces) == piece.size
    assert ticket.parts == len(pieces)
    assert piece.acked
    assert not piece.tickets


@given(st.binary(min_size=1, max_size=2000), st.data())
def test_a_fragment_is_cut_into_smaller_ones(payload: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(payload) - 1))
    end = data.draw(st.integers(start + 1, len(payload)))
    piece = make_fragment(0, 5, payload, start, end)
    pieces = recut(piece, data.draw(st.integers(15, 500)))
    frames = [it.frame for it in pieces]
    assert all(isinstance(it, Fragment) and it.total == len(payload) for it in frames)
    assert b"".join(it.payload for it in frames) == payload[start:end]  # type: ignore[union-attr]
    assert sum(it.count for it in pieces) == piece.count
    assert [it.index for it in pieces] == sorted(it.index for it in pieces)


def test_what_is_settled_or_small_stays() -> None:
    piece = make_fragment(0, 5, bytes(1000), 0, 1000)
    piece.acked = True
    assert recut(piece, 100) == [piece]
    given_up = make_fragment(0, 5, bytes(1000), 0, 1000)
    given_up.skip()
    assert recut(given_up, 20) == [given_up]
    assert given_up.frame == Skip(0, 5, 1000)


def test_what_waits_is_told_apart_anew() -> None:
    tickets = [Ticket(0.0) for _ in range(2)]
    small = Small()
    for size, ticket in ((10, tickets[0]), (500, tickets[1]), (20, None)):
        small.append(bytes(size), ticket)
    before, large, behind = resource(small, 100)
    assert isinstance(before, Small)
    assert isinstance(large, Large)
    assert isinstance(behind, Small)
    assert before.rest == [(bytes(10), tickets[0])]
    assert large.ticket is tickets[1]
    assert behind.rest == [(bytes(20), None)]
    perishable = Single(bytes(500), tickets[0])
    (cut,) = resource(perishable, 100)
    assert isinstance(cut, Large)
    assert cut.ticket is tickets[0]
    assert list(resource(perishable, 1000)) == [perishable]


SETTINGS = ChannelSettings(
    lanes=(Lane(), Lane(ordered=False)), congestion="fixed:1e6", timeout=100, keepalive=1
)


def sends_many_sizes(pair: Pair, count: int) -> list[bytes]:
    random = Random(pair.seed)
    sizes = [random.choice((0, 30, 1000, 1400, 5000, 40_000, 200_000)) for _ in range(count)]
    return [b"%d " % number + random.randbytes(size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("lane", [0, 1])
@pytest.mark.parametrize("seed", [0, *soaked(range(1, 4))])
@pytest.mark.parametrize("later", [Faults(mtu=1200), Faults(mtu=1300, loss=0.1, jitter=0.02)])
def test_a_path_that_shrinks_under_way_loses_and_repeats_nothing(
    lane: int, seed: int, later: Faults
) -> None:
    pair = Pair(seed, settings=SETTINGS)
    left, right = pair.open()
    assert pair.transfer(left, right, [bytes(10**6)]) == [bytes(10**6)]
    assert left.port.transport is not None
    mtu = left.port.transport.send_side.path.mtu
    assert mtu.size > 30_000
    payloads = sends_many_sizes(pair, 60)
    tickets = [follow(left, payload, pair.now, lane=lane) for payload in payloads]
    received: list[bytes] = []
    pair.touch(left)
    pair.run(0.5)
    pair.network.set_default(later)

    def is_over() -> bool:
        received.extend(pair.receive(right))
        pair.touch(right)
        return len(received) >= len(payloads)

    pair.drive(is_over, RETRY_AFTER)
    pair.run(5)
    assert (received if lane == 0 else sorted(received)) == (
        payloads if lane == 0 else sorted(payloads)
    )
    assert not pair.receive(right)
    assert mtu.size == 1200
    assert [ticket.outcome for ticket in tickets] == [Outcome.DELIVERED] * len(tickets)
    assert left.port.transport.send_side.send_queue.held == 0


def test_what_is_sent_once_and_no_packet_takes_any_more_is_lost_and_holds_nothing_up(
    lose: Callable[..., None],
) -> None:
    pair = Pair(1, settings=SETTINGS)
    left, right = pair.open()
    assert pair.transfer(left, right, [bytes(10**6)]) == [bytes(10**6)]
    pair.network.set_default(Faults(mtu=1200))
    large = [send_once(left, bytes(20_000)) for _ in range(50)]
    left.port.send_many([b"x" * 3000] * 20)
    small = send_once(left, b"small")
    pair.touch(left)
    pair.run(20)
    assert {ticket.outcome for ticket in large} == {Outcome.LOST}
    assert small.outcome is not None
    left.close(pair.now)
    pair.touch(left)
    pair.drive(lambda: right.closed is not None)
    assert [it for it in pair.receive(right) if it != b"small"] == [b"x" * 3000] * 20
