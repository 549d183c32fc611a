"""The send side of a lane: messages wait here, in order, until packets that hold them are acked."""

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from sphtp.core.channel.delivery import FLAG, Lane
from sphtp.core.channel.flow import SendCredit
from sphtp.core.channel.frames import LENGTH_OVERHEAD, MESSAGES_OVERHEAD
from sphtp.core.channel.pieces import Large, Piece, Single, Small, Source
from sphtp.core.channel.recut import recut, resource
from sphtp.core.channel.ticket import Ticket


class SendLane:
    """Reliable messages between the oldest unacked id and the next id to be given."""

    __slots__ = (
        "_byte",
        "_flying",
        "_next_id",
        "_oldest_unacked",
        "_resend",
        "_unsent",
        "_unsent_id",
        "options",
        "served",
    )

    def __init__(self, number: int, options: Lane, first_id: int) -> None:
        self.options = options
        # Bytes sent, by weight: of equal priority, the lane that had least comes next.
        self.served = 0.0
        self._byte = number if options.ordered else number | FLAG
        self._oldest_unacked = first_id
        self._next_id = first_id
        self._unsent_id = first_id
        self._unsent: deque[Source] = deque()
        self._resend: list[Piece] = []
        self._flying: deque[Piece] = deque()

    @property
    def waiting(self) -> int:
        """Messages not yet acked; those behind a message still unacked count too."""
        return self._next_id - self._oldest_unacked

    @property
    def wants_to_send(self) -> bool:
        """Whether ``take`` may have something to give."""
        return bool(self._resend or self._unsent)

    def push(self, payload: bytes, room: int, ticket: Ticket | None = None) -> None:
        """Queue a message; it is cut into fragments when it does not fit ``room`` whole."""
        tail = self._unsent[-1] if self._unsent else None
        if len(payload) > room - MESSAGES_OVERHEAD - LENGTH_OVERHEAD:
            self._unsent.append(Large(payload, ticket))
        elif ticket is not None and ticket.is_special:
            self._unsent.append(Single(payload, ticket))
        else:
            if not isinstance(tail, Small) or tail.is_full:
                tail = Small()
                self._unsent.append(tail)
            tail.append(payload, ticket)
        self._next_id += 1

    def push_many(self, payloads: Sequence[bytes], room: int) -> None:
        """Queue messages; faster than one by one."""
        if max(map(len, payloads)) > room - MESSAGES_OVERHEAD - LENGTH_OVERHEAD:
            for payload in payloads:
                self.push(payload, room)
            return
        self._unsent.append(Small(payloads))
        self._next_id += len(payloads)

    def take(self, room: int, credit: SendCredit) -> Piece | None:
        """Take the next piece that fits: lost ones first, the oldest before all.

        What never left before is paid for with ``credit``.
        """
        # A late ack may have settled what was given up.
        while self._resend and self._resend[0].acked:
            heappop(self._resend)
        if self._resend:
            return heappop(self._resend) if self._resend[0].cost <= room else None
        return self._take_unsent(room, credit)

    def acked(self, piece: Piece) -> None:
        """Forget a piece whose packet was acked."""
        piece.acked = True
        flying = self._flying
        while flying and flying[0].acked:
            first = flying.popleft()
            self._oldest_unacked = first.first_id + first.count

    def lost(self, piece: Piece) -> None:
        """Put a piece in line again."""
        heappush(self._resend, piece)

    def give_up(self, ticket: Ticket) -> None:
        """Send no more of a message, but word that nothing comes under its id."""
        for source in self._unsent:
            if not isinstance(source, Small) and source.ticket is ticket:
                source.is_given_up = True
        for piece in self._flying:
            if ticket in piece.tickets and not piece.acked:
                piece.skip()
                self.lost(piece)

    def cut_anew(self, room: int) -> None:
        """Cut what is too large for packets that have become smaller.

        Packets on their way still name the pieces that were; those count as settled.
        """
        flying = deque(smaller for piece in self._flying for smaller in recut(piece, room))
        known = set(self._flying)
        self._resend = [piece for piece in self._resend if not piece.acked]
        self._resend += [piece for piece in flying if piece not in known]
        heapify(self._resend)
        self._flying = flying
        self._unsent = deque(part for source in self._unsent for part in resource(source, room))

    def _take_unsent(self, room: int, credit: SendCredit) -> Piece | None:
        left = credit.left
        if not self._unsent or left <= 0:
            return None
        source = self._unsent[0]
        piece = source.take(self._byte, self._unsent_id, room, left)
        if piece is None:
            return None
        if source.is_empty:
            self._unsent.popleft()
        self._unsent_id += piece.count
        self._flying.append(piece)
        credit.spend(piece.count, piece.size)
        return piece
