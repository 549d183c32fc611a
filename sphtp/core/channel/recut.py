"""Cutting anew what was packed for larger packets, when the path takes only smaller ones."""

from collections.abc import Iterator
from itertools import count

from sphtp.core.channel.frames import (
    FRAGMENT_OVERHEAD,
    MESSAGES_OVERHEAD,
    Buffer,
    Fragment,
    Messages,
)
from sphtp.core.channel.pieces import Piece
from sphtp.core.channel.sources import Large, Small, Source
from sphtp.core.payloads import LENGTH_OVERHEAD
from sphtp.core.serial import wrap


def recut(piece: Piece, room: int) -> list[Piece]:
    """Return the piece itself if it fits ``room``, or smaller ones that carry the same.

    The piece then counts as acked: packets on their way still name it. Whoever follows a message in
    it is told when all the smaller ones are acked.
    """
    if piece.acked or piece.cost <= room:
        return [piece]
    pieces = list(_CUTS[type(piece.frame)](piece, room))
    for ticket in piece.tickets:
        ticket.parts += len(pieces) - 1
    for smaller in pieces:
        smaller.tickets, smaller.copies = piece.tickets, piece.copies
    piece.settle()
    return pieces


def resource(source: Source, room: int) -> Iterator[Source]:
    """Yield what waits to be sent, with whole messages over ``room`` as such for fragments."""
    whole = room - MESSAGES_OVERHEAD - LENGTH_OVERHEAD
    if not isinstance(source, Small):
        yield source.for_packets_of(whole)
        return
    small = Small()
    for payload, ticket in source.rest:
        if len(payload) <= whole:
            small.append(payload, ticket)
            continue
        if not small.is_empty:
            yield small
        yield Large(payload, ticket)
        small = Small()
    if not small.is_empty:
        yield small


def _cut_messages(piece: Piece, room: int) -> Iterator[Piece]:
    frame = piece.frame
    assert isinstance(frame, Messages)
    for message_id, payload in zip(count(piece.first_id), frame.payloads):
        cost = MESSAGES_OVERHEAD + LENGTH_OVERHEAD + len(payload)
        if cost <= room:
            alone = Messages(frame.lane, wrap(message_id), [payload])
            yield Piece(alone, message_id, len(payload), cost)
        else:
            yield from _fragments(frame.lane, message_id, payload, 0, len(payload), room)


def _cut_fragment(piece: Piece, room: int) -> Iterator[Piece]:
    frame = piece.frame
    assert isinstance(frame, Fragment)
    yield from _fragments(
        frame.lane, piece.first_id, frame.payload, frame.offset, frame.total, room
    )


def _fragments(
    lane: int, message_id: int, payload: Buffer, offset: int, total: int, room: int
) -> Iterator[Piece]:
    size = room - FRAGMENT_OVERHEAD
    for start in range(0, len(payload), size):
        part = payload[start : start + size]
        at = offset + start
        frame = Fragment(lane, wrap(message_id), at, total, part)
        ends = at + len(part) == total
        yield Piece(frame, message_id, len(part), FRAGMENT_OVERHEAD + len(part), at, int(ends))


_CUTS = {Messages: _cut_messages, Fragment: _cut_fragment}
