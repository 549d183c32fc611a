"""The send side of a lane: messages wait here, in order, until packets that hold them are acked.

Those that are sent once wait beside them, only until they leave.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Final

from sphtp.core.channel.delivery import FLAG, Lane
from sphtp.core.channel.flow_control import SendCredit
from sphtp.core.channel.frames import MESSAGES_OVERHEAD, Frame
from sphtp.core.channel.pieces import Piece
from sphtp.core.channel.recut import recut, resource
from sphtp.core.channel.runs import FragmentRun
from sphtp.core.channel.sources import Large, Single, Small, Source
from sphtp.core.channel.ticket import Ticket
from sphtp.core.channel.unreliable import UnreliableOutbox
from sphtp.core.payloads import LENGTH_OVERHEAD

MOST: Final = 16_384
"""Messages between the oldest unacked and the newest one: a quarter of what 16 bits tell apart."""


class SendLane:
    """What waits in a lane: messages that are sent once, and reliable ones until they are acked.

    Of the reliable ones these are the messages between the oldest unacked id and the next to be
    given. An id is given when a message first leaves: one that is given up before uses up none,
    and leaves no trace. One that is given up later has an id for which the receiver waits, so that
    word of it goes, as reliably as the message would have; but it takes no more room here.
    """

    __slots__ = (
        "_byte",
        "_flying",
        "_given_up",
        "_lead",
        "_next_id",
        "_oldest_unacked",
        "_perishable",
        "_perishable_ids",
        "_resend",
        "_unsent",
        "_unsent_id",
        "_window",
        "_withdrawn",
        "held",
        "once",
        "options",
        "served",
    )

    def __init__(
        self, number: int, options: Lane, first_id: int, window: int = MOST, once: int = MOST
    ) -> None:
        self.options = options
        # Those that are sent once, and how many of them may wait.
        self.once = UnreliableOutbox(once)
        # Bytes of reliable messages that are not acked.
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
        # Where those with a deadline are, so that giving one up does not look at the others; and
        # the ids of those that have one, in order, until the oldest unacked id has passed them.
        self._perishable: dict[Ticket, list[Source | Piece | FragmentRun]] = {}
        self._perishable_ids: deque[tuple[int, Ticket]] = deque()
        # How many of those ids were given up; how many messages behind the first in line were.
        self._given_up = 0
        self._withdrawn = 0
        # Bytes by which reliable messages are ahead of those sent once, since both waited.
        self._lead = 0

    @property
    def waiting(self) -> int:
        """Messages not yet acked; those behind a message still unacked count too.

        Those that were given up do not.
        """
        return self._next_id - self._oldest_unacked - self._given_up

    @property
    def is_idle(self) -> bool:
        """Nothing waits to be sent or acked, nor word of what was given up."""
        return self._next_id == self._oldest_unacked and not self.once.waiting

    @property
    def wants_to_send(self) -> bool:
        """Whether ``fill`` may have something to give."""
        return bool(self._resend or self._unsent or self.once.waiting)

    def may_send(self, credit: SendCredit) -> bool:
        """Whether ``fill`` has something to give, room for it or not."""
        return bool(self.once.waiting) or self._may_send_reliable(credit)

    def _may_send_reliable(self, credit: SendCredit) -> bool:
        if self._resend or not self._unsent:
            return bool(self._resend)
        return self._unsent[0].is_begun or self._allowed(credit) > 0

    @property
    def sends_again(self) -> bool:
        """Whether what comes next has left before."""
        return bool(self._resend)

    @property
    def spread(self) -> int:
        """Pieces from the oldest unacked one to the newest that left."""
        return len(self._flying)

    @property
    def is_bulk(self) -> bool:
        """Whether a large message comes next, and nothing else would share its packet."""
        if self._resend or not self._unsent or self.once.waiting:
            return False
        return isinstance(self._unsent[0], Large)

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
            self._push_alone(Large(payload, ticket), ticket)
        elif ticket is not None and (tail is None or ticket.is_special):
            # Mostly it leaves before another one comes.
            self._push_alone(Single(payload, ticket), ticket)
        else:
            if not isinstance(tail, Small) or tail.is_full:
                tail = Small()
                self._unsent.append(tail)
            tail.append(payload, ticket)
        self._next_id += 1

    def _push_alone(self, source: Single | Large, ticket: Ticket | None) -> None:
        self._unsent.append(source)
        if ticket is not None and ticket.deadline is not None:
            self._perishable[ticket] = [source]

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

    def fill(
        self,
        room: int,
        credit: SendCredit,
        frames: list[Frame],
        once: list[Ticket],
        pieces: list[Piece],
    ) -> int:
        """Add what fits into a packet's room; return the room that is left.

        Where reliable messages and those sent once both wait, they share the lane byte by byte,
        counted from when they began to: the kind that had less goes first, and the other takes
        what is left. So neither holds the other up for longer than a packet, and what comes now
        and then goes before what fills the line.
        """
        before = room
        both = bool(self.once.waiting) and self._may_send_reliable(credit)
        if both and self._lead < 0:
            room = self._fill_reliable(room, credit, pieces)
        reliable = before - room
        if self.once.waiting:
            start = room
            unreliable, tickets, room = self.once.fill(room)
            frames += unreliable
            once += tickets
            self._lead -= start - room
        if not reliable:
            start = room
            room = self._fill_reliable(room, credit, pieces)
            reliable = start - room
        self._lead = self._lead + reliable if both else 0
        self.served += (before - room) / self.options.weight
        return room

    def _fill_reliable(self, room: int, credit: SendCredit, pieces: list[Piece]) -> int:
        while (piece := self.take(room, credit)) is not None:
            room -= piece.cost
            pieces.append(piece)
        return room

    def take(self, room: int, credit: SendCredit) -> Piece | None:
        """Take the next reliable piece that fits: lost ones first, the oldest before all.

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
        if len(self._unsent) != 1 or self._resend or self.once.waiting:
            return None
        source = self._unsent[0]
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
        begins = not source.is_begun
        run = source.take_run(self._byte, self._unsent_id, room, most)
        if run is not None:
            self._flying.append(run)
            credit.spend(*run.charge)
            if self._perishable:
                self._note_place(run, begins=begins)
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
        ids = self._perishable_ids
        while ids and ids[0][0] < self._oldest_unacked:
            if self._perishable.pop(ids.popleft()[1], None) is None:
                self._given_up -= 1

    def again(self, piece: Piece) -> None:
        """Put a piece in line again, once."""
        if not piece.queued:
            piece.queued = True
            heappush(self._resend, piece)

    def give_up(self, ticket: Ticket) -> None:
        """Send no more of a message, but word that nothing comes under its id if it has one.

        The cost is that of the message, however many wait.
        """
        if self.once.give_up(ticket):
            return
        places = self._perishable.pop(ticket, None)
        if places is None:
            return
        for part in places:
            if isinstance(part, Piece):
                self._skip(part)
                continue
            if isinstance(part, FragmentRun):
                part.break_up()
                for piece in part.parts():
                    self._skip(piece)
                continue
            assert not isinstance(part, Small)
            if part.is_empty:
                continue
            if isinstance(part, Single) or not part.is_begun:
                self._withdraw(part)
                return
            self._cut_off(part)
        self._given_up += 1

    def _skip(self, piece: Piece) -> None:
        """Let go of what a piece carries, and send it again as word of that."""
        if not piece.acked:
            piece.skip()
            self.held -= piece.size
            piece.size = 0
            self.again(piece)

    def _cut_off(self, large: Large) -> None:
        """Let go of the rest of the message next in line, of which a part has left."""
        self.held -= large.left
        piece = large.cut_off(self._byte, self._unsent_id)
        self._unsent.popleft()
        self._clear_front()
        self._unsent_id += 1
        self._flying.append(piece)
        self.again(piece)

    def _withdraw(self, source: Single | Large) -> None:
        """Let go of a message of which nothing has left."""
        self.held -= source.left
        self._next_id -= 1
        self._withdrawn += 1
        source.withdraw()
        self._clear_front()
        if 2 * self._withdrawn > len(self._unsent):
            self._unsent = deque(kept for kept in self._unsent if not kept.is_withdrawn)
            self._withdrawn = 0

    def _clear_front(self) -> None:
        """Let what is next in line be something that leaves."""
        while self._unsent and self._unsent[0].is_withdrawn:
            self._unsent.popleft()
            self._withdrawn -= 1

    def _note_place(self, part: Piece | FragmentRun, *, begins: bool) -> None:
        """Note where a message with a deadline is that has just left, or gone on."""
        for ticket in part.tickets:
            if (places := self._perishable.get(ticket)) is not None:
                places.append(part)
                if begins:
                    self._perishable_ids.append((part.first_id, ticket))

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
        kept = [source for source in self._unsent if not source.is_withdrawn]
        self._unsent = deque(part for source in kept for part in resource(source, room))
        self._withdrawn = 0
        self._find_perishable()

    def _find_perishable(self) -> None:
        """Look for the messages with a deadline where they are by now."""
        self._perishable = {ticket: [] for ticket in self._perishable}
        for source in self._unsent:
            if not isinstance(source, Small) and source.ticket in self._perishable:
                self._perishable[source.ticket].append(source)
        for part in self._flying:
            for ticket in part.tickets:
                if ticket in self._perishable:
                    self._perishable[ticket].append(part)

    def _take_unsent(self, room: int, credit: SendCredit) -> Piece | None:
        if not self._unsent:
            return None
        source = self._unsent[0]
        # What is begun was paid for.
        begins = not source.is_begun
        left = self._allowed(credit) if begins else 1
        piece = source.take(self._byte, self._unsent_id, room, left) if left else None
        if piece is None:
            return None
        if source.is_empty:
            self._unsent.popleft()
            self._clear_front()
        self._unsent_id += piece.count
        self._flying.append(piece)
        credit.spend(*piece.charge)
        if self._perishable and piece.tickets:
            self._note_place(piece, begins=begins)
        return piece

    def _allowed(self, credit: SendCredit) -> int:
        """How many messages may leave that have not begun to."""
        return max(min(credit.left, self._oldest_unacked + self._window - self._unsent_id), 0)

    def _pieces(self) -> Iterator[Piece]:
        """What is on its way; runs by their pieces."""
        for it in self._flying:
            if isinstance(it, Piece):
                yield it
            else:
                it.break_up()
                yield from it.parts()
