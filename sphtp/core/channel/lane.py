"""The send side of a lane: messages wait here, in order, until packets that hold them are acked."""

from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Final

from sphtp.core.channel.delivery import FLAG, Lane
from sphtp.core.channel.flow import SendCredit
from sphtp.core.channel.frames import MESSAGES_OVERHEAD
from sphtp.core.channel.pieces import Piece
from sphtp.core.channel.recut import recut, resource
from sphtp.core.channel.runs import FragmentRun
from sphtp.core.channel.sources import Large, Single, Small, Source
from sphtp.core.channel.ticket import Ticket
from sphtp.core.payloads import LENGTH_OVERHEAD

MOST: Final = 16_384
"""Messages between the oldest unacked and the newest one: a quarter of what 16 bits tell apart."""


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
        "_window",
        "held",
        "options",
        "served",
    )

    def __init__(self, number: int, options: Lane, first_id: int, window: int = MOST) -> None:
        self.options = options
        # Bytes of messages that are not acked.
        self.held = 0
        # Bytes sent, by weight: of equal priority, the lane that had least comes next.
        self.served = 0.0
        self._byte = number if options.ordered else number | FLAG
        # Ids that the receiver tells apart, counted from the oldest that it lacks.
        self._window = min(window, MOST)
        self._oldest_unacked = first_id
        self._next_id = first_id
        self._unsent_id = first_id
        self._unsent: deque[Source] = deque()
        self._resend: list[Piece] = []
        self._flying: deque[Piece | FragmentRun] = deque()

    @property
    def waiting(self) -> int:
        """Messages not yet acked; those behind a message still unacked count too."""
        return self._next_id - self._oldest_unacked

    @property
    def wants_to_send(self) -> bool:
        """Whether ``take`` may have something to give."""
        return bool(self._resend or self._unsent)

    @property
    def sends_again(self) -> bool:
        """Whether what comes next has left before."""
        return bool(self._resend)

    @property
    def is_bulk(self) -> bool:
        """Whether a large message comes next."""
        return not self._resend and bool(self._unsent) and isinstance(self._unsent[0], Large)

    def room_for(self, sizes: Sequence[int], messages: int, size: int) -> int:
        """How many messages, given by their sizes, a buffer for so many and ``size`` bytes takes.

        A message larger than the buffer goes when it is alone.
        """
        free = max(0, messages - self.waiting)
        if self.held + sum(sizes) <= size:
            return min(free, len(sizes))
        ends = accumulate(sizes[:free], initial=self.held)
        fitting = sum([end <= size for end in ends]) - 1
        return max(fitting, min(free, int(not self.held)))

    def has_room(self, size: int, messages: int, most: int) -> bool:
        """Whether a buffer for so many messages and ``most`` bytes takes one more of ``size``."""
        return self.waiting < messages and (self.held + size <= most or not self.held)

    def push(self, payload: bytes, room: int, ticket: Ticket | None = None) -> None:
        """Queue a message; it is cut into fragments when it does not fit ``room`` whole."""
        self.held += len(payload)
        tail = self._unsent[-1] if self._unsent else None
        if len(payload) > room - MESSAGES_OVERHEAD - LENGTH_OVERHEAD:
            self._unsent.append(Large(payload, ticket))
        elif ticket is not None and (tail is None or ticket.is_special):
            # Mostly it leaves before another one comes.
            self._unsent.append(Single(payload, ticket))
        else:
            if not isinstance(tail, Small) or tail.is_full:
                tail = Small()
                self._unsent.append(tail)
            tail.append(payload, ticket)
        self._next_id += 1

    def push_many(
        self, payloads: Sequence[bytes], room: int, sizes: Sequence[int] | None = None
    ) -> None:
        """Queue messages; faster than one by one, and more so if their ``sizes`` are known."""
        sizes = sizes or list(map(len, payloads))
        if max(sizes) > room - MESSAGES_OVERHEAD - LENGTH_OVERHEAD:
            for payload in payloads:
                self.push(payload, room)
            return
        self.held += sum(sizes)
        self._unsent.append(Small(payloads, sizes))
        self._next_id += len(payloads)

    def take(self, room: int, credit: SendCredit) -> Piece | None:
        """Take the next piece that fits: lost ones first, the oldest before all.

        What never left before is paid for with ``credit``.
        """
        # A late ack may have settled what was given up.
        while self._resend and self._resend[0].acked:
            heappop(self._resend)
        if not self._resend:
            return self._take_unsent(room, credit)
        if self._resend[0].cost > room:
            return None
        piece = heappop(self._resend)
        piece.queued = False
        return piece

    def take_lone(self, room: int, credit: SendCredit) -> Piece | None:
        """Take the one small message that waits; None where ``take`` has to be asked."""
        source = self._unsent[0] if len(self._unsent) == 1 and not self._resend else None
        if not isinstance(source, Single) or source.ticket.is_special:
            return None
        piece = self._take_unsent(room, credit)
        if piece is not None:
            piece.flights = 1
        return piece

    def take_load(self, room: int, credit: SendCredit) -> tuple[list[Piece], int]:
        """Take what a packet has room for, and return that with the room that is left.

        Nothing waits to go again, and nothing that goes has left before.
        """
        pieces: list[Piece] = []
        while (piece := self._take_unsent(room, credit)) is not None:
            piece.flights = 1
            room -= piece.cost
            pieces.append(piece)
        return pieces, room

    def take_run(self, room: int, most: int, credit: SendCredit) -> FragmentRun | None:
        """Take fragments of one message for ``most`` packets, when that is all there is to send.

        None where ``take`` has to be asked.
        """
        source = self._unsent[0] if self._unsent and not self._resend else None
        if not isinstance(source, Large):
            return None
        if not source.is_begun and not self._allowed(credit):
            return None
        run = source.take_run(self._byte, self._unsent_id, room, most)
        if run is not None:
            self._flying.append(run)
            credit.spend(*run.charge)
        return run

    def acked(self, piece: Piece) -> None:
        """Forget a piece whose packet was acked."""
        self.held -= piece.size
        piece.settle()
        self._advance()

    def run_acked(self, run: FragmentRun, bits: int) -> int:
        """Forget fragments whose packets were acked; return their bytes."""
        size = run.settle(bits)
        self.held -= size
        self._advance()
        return size

    def _advance(self) -> None:
        flying = self._flying
        while flying and flying[0].acked:
            first = flying.popleft()
            self._oldest_unacked = first.first_id + first.count

    def again(self, piece: Piece) -> None:
        """Put a piece in line again, once."""
        if not piece.queued:
            piece.queued = True
            heappush(self._resend, piece)

    def give_up(self, tickets: AbstractSet[Ticket]) -> None:
        """Send no more of messages, but word that nothing comes under their ids."""
        for source in self._unsent:
            if not isinstance(source, Small) and source.ticket in tickets:
                source.is_given_up = True
        for piece in self._pieces(tickets):
            if not piece.acked and not tickets.isdisjoint(piece.tickets):
                piece.skip()
                self.again(piece)

    def cut_anew(self, room: int) -> None:
        """Cut what is too large for packets that have become smaller.

        Packets on their way still name the pieces that were; those count as settled.
        """
        known = dict.fromkeys(self._pieces())
        flying = [smaller for piece in known for smaller in recut(piece, room)]
        self._resend = [piece for piece in self._resend if not piece.acked]
        for piece in flying:
            if piece not in known:
                piece.queued = True
                self._resend.append(piece)
        heapify(self._resend)
        self._flying = deque(flying)
        self._unsent = deque(part for source in self._unsent for part in resource(source, room))

    def _take_unsent(self, room: int, credit: SendCredit) -> Piece | None:
        if not self._unsent:
            return None
        source = self._unsent[0]
        # What is begun was paid for.
        left = 1 if source.is_begun else self._allowed(credit)
        piece = source.take(self._byte, self._unsent_id, room, left) if left else None
        if piece is None:
            return None
        if source.is_empty:
            self._unsent.popleft()
        self._unsent_id += piece.count
        self._flying.append(piece)
        credit.spend(*piece.charge)
        return piece

    def _allowed(self, credit: SendCredit) -> int:
        """How many messages may leave that have not begun to."""
        return max(min(credit.left, self._oldest_unacked + self._window - self._unsent_id), 0)

    def _pieces(self, tickets: AbstractSet[Ticket] | None = None) -> Iterator[Piece]:
        """What is on its way; runs by their pieces, or with ``tickets`` those that they follow."""
        for it in self._flying:
            if isinstance(it, Piece):
                yield it
                continue
            if tickets is None or not tickets.isdisjoint(it.tickets):
                it.break_up()
            yield from it.parts()
