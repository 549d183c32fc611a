"""What has to be kept of a lane's messages from when they leave until they are acked.

A piece is what one frame carries: many whole messages with consecutive ids, one fragment of a large
message, or word that a message was given up. Nothing is kept per message; a piece that is lost is
sent again as it is.
"""

from collections.abc import Sequence
from typing import Final

from sphtp.core.channel.frames import (
    FRAGMENT_OVERHEAD,
    SKIP_OVERHEAD,
    Fragment,
    Messages,
    Skip,
)
from sphtp.core.channel.ticket import Ticket
from sphtp.core.serial import wrap

SETTLED: Final = Skip(0, 0, 0)
"""Stands for what a settled piece carried."""


class Piece:
    """One frame of a lane, and what it means for the lane when it is acked.

    ``first_id`` and ``index`` give its place in the lane, ``count`` how many messages end with it,
    ``size`` the bytes of messages in it, and ``cost`` the bytes that its frame takes, at most.
    ``tickets`` are to be told of its ack. ``copies`` is with how many further packets it should go
    again, ``flights`` in how many it is on its way, ``queued`` whether it is in line again and
    ``rides`` whether it waits for its next copy.
    ``charge`` is what it costs of the receiver's credit, in messages and bytes.
    """

    __slots__ = ("acked", "charge", "copies", "cost", "count", "first_id", "flights", "frame",
                 "index", "queued", "rides", "size", "tickets")  # fmt: skip

    def __init__(
        self,
        frame: Messages | Fragment | Skip,
        first_id: int,
        size: int,
        cost: int,
        index: int = 0,
        count: int = 1,
        tickets: Sequence[Ticket] = (),
    ) -> None:
        self.frame = frame
        self.first_id = first_id
        self.index = index
        self.count = count
        self.size = size
        self.cost = cost
        self.tickets = tickets
        self.charge = (count, size)
        self.copies = tickets[0].copies if tickets else 0
        self.flights = 0
        self.queued = False
        self.rides = False
        self.acked = False

    def __lt__(self, other: "Piece") -> bool:
        return (self.first_id, self.index) < (other.first_id, other.index)

    def settle(self) -> None:
        """Count as acked, and let go of the messages: packets that are lost still name this."""
        self.acked = True
        self.frame, self.tickets = SETTLED, ()

    def skip(self) -> None:
        """Carry word that the message was given up, instead of it."""
        if not isinstance(self.frame, Skip):
            total = self.frame.total if isinstance(self.frame, Fragment) else self.size
            self.frame = Skip(self.frame.lane, wrap(self.first_id), total)
            self.cost = SKIP_OVERHEAD


def make_fragment(
    lane: int, message_id: int, payload: bytes, start: int, end: int, tickets: Sequence[Ticket] = ()
) -> Piece:
    """Make the piece that carries ``payload[start:end]``; the first one pays for the message."""
    part = memoryview(payload)[start:end]
    frame = Fragment(lane, wrap(message_id), start, len(payload), part)
    is_last = end == len(payload)
    cost = FRAGMENT_OVERHEAD + len(part)
    piece = Piece(frame, message_id, len(part), cost, start, int(is_last), tickets)
    piece.charge = (0, 0) if start else (1, len(payload))
    return piece
