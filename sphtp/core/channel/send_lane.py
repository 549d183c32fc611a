"""The send side of a lane: messages wait here, in order, until packets that hold them are acked.

What waits to leave is a line of ``MessageRun`` (n >= 1 small messages) and ``FragmentedMessage``. A
packet takes ``SentFrame`` from its head, or n packets a ``FragmentRun``; what left stays known, in
order of departure, until its packets are acked. To retransmit is to send content again, not
packets (RFC 9000, section 13.3): what is lost, or repeated by a probe, waits apart for its
retransmission, in a heap with the oldest on top, and goes before what never left. Messages that are
sent once wait beside all that, only until they leave.

Where the path turns out to take smaller packets only, what does not fit them any more is cut anew,
be it waiting or on its way.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Final

from sphtp.core.channel.flow_control import SendCredit
from sphtp.core.channel.frames import (
    FLAG,
    MAX_MESSAGES_PER_FRAME,
    MESSAGES_OVERHEAD,
    RUN_OVERHEAD,
    Messages,
)
from sphtp.core.channel.queued_messages import (
    FEWEST_PACKETS,
    WHOLE_OVERHEAD,
    FragmentedMessage,
    UnreliableQueue,
    cut_frame,
)
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.sent_packets import Contents, FragmentRun, SentFrame
from sphtp.core.channel.settings import Lane
from sphtp.core.payloads import LENGTH_OVERHEAD
from sphtp.core.serial import MASK

MOST: Final = 16_384
"""Messages between the oldest unacked and the newest one: a quarter of what 16 bits tell apart."""

LONGEST_RUN: Final = 4096
"""Messages in a run that grows one by one, after which a new one starts: to let go of the old."""

ANY_NUMBER: Final = 1 << 62
"""For a buffer that was found to have room."""


class MessageRun:
    """n >= 1 whole messages that wait to be sent, in order.

    One of which something is asked, by its ticket, is alone in its run.
    """

    __slots__ = ("_cost", "_costs", "_payloads", "_taken", "_tickets", "is_alone", "is_empty",
                 "is_withdrawn")  # fmt: skip

    is_begun = False
    """Whether the message next to leave has been paid for."""

    def __init__(
        self, payloads: list[bytes], sizes: Sequence[int], ticket: Ticket | None = None
    ) -> None:
        self._payloads = payloads
        # What the first n messages cost in a frame, so that how many fit is found by bisection;
        # and what each costs, where they are of one size, which is mostly so.
        cost = sizes[0] + LENGTH_OVERHEAD
        number = len(sizes)
        if number == 1 or sizes.count(sizes[0]) == number:
            self._cost = cost
            self._costs = list(range(0, cost * number + 1, cost))
        else:
            self._cost = 0
            self._costs = list(accumulate(map(LENGTH_OVERHEAD.__add__, sizes), initial=0))
        self._taken = 0
        # Whether every message has been taken.
        self.is_empty = False
        # By place, for those that somebody follows.
        self._tickets: dict[int, Ticket] = {} if ticket is None else {0: ticket}
        self.is_alone = ticket is not None and ticket.is_special
        # Whether nobody wants it any more.
        self.is_withdrawn = False

    @property
    def takes_more(self) -> bool:
        """Whether further messages may be added."""
        return not self.is_alone and len(self._payloads) < LONGEST_RUN

    @property
    def left(self) -> int:
        """Bytes of messages that have not been taken."""
        number = len(self._payloads) - self._taken
        return self._costs[-1] - self._costs[self._taken] - LENGTH_OVERHEAD * number

    @property
    def tickets(self) -> Sequence[Ticket]:
        """Those to be told of messages in it."""
        return tuple(self._tickets.values())

    def append(self, payload: bytes, size: int, ticket: Ticket | None) -> None:
        """Add a message at the end."""
        if ticket is not None:
            self._tickets[len(self._payloads)] = ticket
        cost = size + LENGTH_OVERHEAD
        if cost != self._cost:
            self._cost = 0
        self._payloads.append(payload)
        self._costs.append(self._costs[-1] + cost)

    def extend(self, payloads: Sequence[bytes], sizes: Sequence[int]) -> None:
        """Add messages at the end that nobody follows."""
        cost, last, number = sizes[0] + LENGTH_OVERHEAD, self._costs[-1], len(sizes)
        self._payloads.extend(payloads)
        if cost == self._cost and sizes.count(sizes[0]) == number:
            self._costs.extend(range(last + cost, last + cost * number + 1, cost))
            return
        self._cost = 0
        costs = accumulate(map(LENGTH_OVERHEAD.__add__, sizes), initial=last)
        next(costs)
        self._costs.extend(costs)

    def withdraw(self) -> None:
        """Let go of the messages: they are not to leave."""
        self.is_withdrawn = True
        self._payloads = [b""] * len(self._payloads)

    def take(self, lane: int, first_id: int, room: int, limit: int) -> SentFrame | None:
        """Take as many messages as fit, at most ``limit``; None when not even one does."""
        costs, taken = self._costs, self._taken
        start = costs[taken]
        end = bisect_right(costs, start + room - MESSAGES_OVERHEAD, taken) - 1
        if end > taken + 1:
            end = min(end, taken + limit, taken + MAX_MESSAGES_PER_FRAME)
            if costs[end] - start == LENGTH_OVERHEAD * (end - taken):
                # All are empty, and a packet holds no more messages than bytes.
                end = min(end, taken + RUN_OVERHEAD)
        number = end - taken
        if number <= 0:
            return None
        self._taken = end
        self.is_empty = end == len(self._payloads)
        cost = costs[end] - start
        tickets: Sequence[Ticket] = ()
        if self._tickets:
            known = self._tickets
            tickets = [known.pop(at) for at in range(taken, end) if at in known]
        return SentFrame(
            Messages(lane, first_id & MASK, self._payloads[taken:end]),
            first_id,
            cost - LENGTH_OVERHEAD * number,
            cost + MESSAGES_OVERHEAD,
            0,
            number,
            tickets,
        )

    def per_packet(self, room: int) -> tuple[int, int, int]:
        """How many messages fill a packet, their bytes, and how many packets they can fill so.

        Nothing where messages differ in size, or have none.
        """
        if self._cost <= LENGTH_OVERHEAD:
            return 0, 0, 0
        number = min((room - MESSAGES_OVERHEAD) // self._cost, MAX_MESSAGES_PER_FRAME)
        if not number:
            return 0, 0, 0
        size = number * (self._cost - LENGTH_OVERHEAD)
        return number, size, (len(self._payloads) - self._taken) // number

    def cut_anew(self, whole: int) -> "Iterator[MessageRun | FragmentedMessage]":
        """Yield what is left, with messages over ``whole`` bytes as such for fragments."""
        run: MessageRun | None = None
        for at in range(self._taken, len(self._payloads)):
            payload, ticket = self._payloads[at], self._tickets.get(at)
            if len(payload) > whole:
                if run is not None:
                    yield run
                    run = None
                yield FragmentedMessage(payload, ticket)
            elif run is None:
                run = MessageRun([payload], [len(payload)], ticket)
            else:
                run.append(payload, len(payload), ticket)
        if run is not None:
            yield run


class SendLane:
    """A lane of messages to send: those that are sent once, and reliable ones until they are acked.

    Of the reliable ones these are the messages between the oldest unacked id and the next to be
    given. An id is given when a message first leaves: one that is given up before uses up none,
    and leaves no trace. One that is given up later has an id for which the receiver waits, so that
    word of it goes, as reliably as the message would have; but it takes no more room here.
    """

    __slots__ = (
        "_byte",
        "_given_up",
        "_lead",
        "_next_id",
        "_oldest_unacked",
        "_perishable",
        "_perishable_ids",
        "_unacked",
        "_unsent_id",
        "_window",
        "_withdrawn",
        "held",
        "options",
        "served",
        "to_retransmit",
        "unreliable",
        "unsent",
    )

    def __init__(
        self, number: int, options: Lane, first_id: int, window: int = MOST, unreliable: int = MOST
    ) -> None:
        self.options = options
        # Those that are sent once, and how many of them may wait.
        self.unreliable = UnreliableQueue(unreliable)
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
        # What never left, in order; what is to leave again, in a heap.
        self.unsent: deque[MessageRun | FragmentedMessage] = deque()
        self.to_retransmit: list[SentFrame] = []
        self._unacked: deque[SentFrame | FragmentRun] = deque()
        # Where those with a deadline are, so that giving one up does not look at the others; and
        # the ids of those that have one, in order, until the oldest unacked id has passed them.
        self._perishable: dict[
            Ticket, list[MessageRun | FragmentedMessage | SentFrame | FragmentRun]
        ] = {}
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
        return self._next_id == self._oldest_unacked and not self.unreliable.waiting

    @property
    def wants_to_send(self) -> bool:
        """True if ``fill`` may have something to give."""
        return bool(self.unsent or self.to_retransmit or self.unreliable.waiting)

    def may_send(self, credit: SendCredit) -> bool:
        """True if ``fill`` has something to give, room for it or not."""
        return bool(self.unreliable.waiting) or self._may_send_reliable(credit)

    def _may_send_reliable(self, credit: SendCredit) -> bool:
        if self.to_retransmit or not self.unsent:
            return bool(self.to_retransmit)
        return self.unsent[0].is_begun or self._allowed(credit) > 0

    def fills_packets(self, room: int) -> bool:
        """True if what is first in line takes more than a packet with ``room``."""
        return bool(self.unsent) and self.unsent[0].left > room

    @property
    def spread(self) -> int:
        """Frames from the oldest unacked one to the newest that left."""
        return len(self._unacked)

    # Queueing

    def room_for(self, sizes: Sequence[int], messages: int, size: int) -> int:
        """The messages, given by sizes, that a buffer for ``messages`` and ``size`` bytes takes.

        A message larger than the buffer goes when it is alone.
        """
        free = max(0, messages - self.waiting)
        if self.held + sum(sizes) <= size:
            return min(free, len(sizes))
        ends = accumulate(sizes[:free], initial=self.held)
        fitting = sum([end <= size for end in ends]) - 1
        return max(fitting, min(free, int(not self.held)))

    def push(
        self,
        payload: bytes,
        size: int,
        room: int,
        messages: int,
        most: int,
        ticket: Ticket | None = None,
    ) -> int:
        """Queue a message, if a buffer for so many ``messages`` and ``most`` bytes takes it.

        Return how many were queued. It is cut into fragments when it does not fit ``room`` whole.
        """
        held = self.held
        if self._next_id - self._oldest_unacked - self._given_up >= messages or (
            held and held + size > most
        ):
            return 0
        self.held = held + size
        self._next_id += 1
        unsent = self.unsent
        message: MessageRun | FragmentedMessage
        if size > room - WHOLE_OVERHEAD:
            message = FragmentedMessage(payload, ticket)
        elif (
            unsent
            and type(tail := unsent[-1]) is MessageRun
            and tail.takes_more
            and (ticket is None or not ticket.is_special)
        ):
            tail.append(payload, size, ticket)
            return 1
        else:
            message = MessageRun([payload], (size,), ticket)
        unsent.append(message)
        if ticket is not None and ticket.deadline is not None:
            self._perishable[ticket] = [message]
        return 1

    def push_many(self, payloads: Sequence[bytes], sizes: Sequence[int], room: int) -> None:
        """Queue messages that nobody follows; the same as one by one, but faster."""
        if len(sizes) == 1 or max(sizes) > room - WHOLE_OVERHEAD:
            for payload, size in zip(payloads, sizes, strict=True):
                self.push(payload, size, room, ANY_NUMBER, ANY_NUMBER)
            return
        self.held += sum(sizes)
        self._next_id += len(payloads)
        tail = self.unsent[-1] if self.unsent else None
        if type(tail) is MessageRun and tail.takes_more:
            tail.extend(payloads, sizes)
        else:
            self.unsent.append(MessageRun(list(payloads), sizes))

    # Packets

    def fill(self, room: int, credit: SendCredit, frames: list[SentFrame]) -> int:
        """Add what fits into a packet's room; return the room that is left.

        Where reliable messages and those sent once both wait, they share the lane byte by byte,
        counted from when they began to: the kind that had less goes first, and the other takes
        what is left. So neither holds the other up for longer than a packet, and what comes now
        and then goes before what fills the line.
        """
        before = room
        if not self.unreliable.waiting:
            room = self._fill_reliable(room, credit, frames)
            self._lead = 0
        elif not self._may_send_reliable(credit):
            room = self.unreliable.fill(room, frames)
            self._lead = 0
        else:
            reliable = 0
            if self._lead < 0:
                room = self._fill_reliable(room, credit, frames)
                reliable = before - room
            left = self.unreliable.fill(room, frames)
            unreliable, room = room - left, left
            if not reliable:
                left = self._fill_reliable(room, credit, frames)
                reliable, room = room - left, left
            self._lead += reliable - unreliable
        self.served += (before - room) / self.options.weight
        return room

    def take_batch(self, room: int, packets: int, credit: SendCredit) -> Contents | None:
        """Take what fills several packets alike, up to ``packets``; None where ``fill`` is due.

        Those are the fragments of one message, or messages of one size; nothing else may wait to
        go before them.
        """
        if not self.unsent or self.to_retransmit or self.unreliable.waiting:
            return None
        self._lead = 0
        source = self.unsent[0]
        if isinstance(source, FragmentedMessage):
            return self._take_fragments(source, room, packets, credit)
        number, size, full = source.per_packet(room)
        if full < FEWEST_PACKETS:
            return None
        packets = min(packets, full, self._allowed(credit) // number, credit.packets_of(size))
        if packets < FEWEST_PACKETS:
            return None
        contents: list[tuple[SentFrame]] = []
        first_id = self._unsent_id
        for _ in range(packets):
            frame = source.take(self._byte, first_id, room, number)
            assert frame is not None
            frame.packets = 1
            first_id += frame.count
            contents.append((frame,))
            self._unacked.append(frame)
        self._unsent_id = first_id
        credit.spend(packets * number, packets * size)
        self.served += packets * (size + MESSAGES_OVERHEAD) / self.options.weight
        if source.is_empty:
            self.unsent.popleft()
            self._clear_front()
        return contents

    def _take_fragments(
        self, message: FragmentedMessage, room: int, packets: int, credit: SendCredit
    ) -> FragmentRun | None:
        begins = not message.is_begun
        if begins and not self._allowed(credit):
            return None
        run = message.take_run(self._byte, self._unsent_id, room, packets)
        if run is not None:
            self._unacked.append(run)
            self.served += run.size / self.options.weight
            if begins:
                credit.spend(1, len(run.payload))
            if self._perishable:
                self._note_place(run, begins=begins)
        return run

    def _fill_reliable(self, room: int, credit: SendCredit, frames: list[SentFrame]) -> int:
        """Add lost frames first, the oldest before all, then what never left."""
        if self.to_retransmit:
            room = self._retransmit_into(room, frames)
        unsent = self.unsent
        while unsent and not self.to_retransmit:
            source = unsent[0]
            # What never left before is paid for with credit; what is begun was paid for.
            begins = not source.is_begun
            allowed = self._allowed(credit) if begins else 1
            taken = source.take(self._byte, self._unsent_id, room, allowed) if allowed > 0 else None
            if taken is None:
                break
            if isinstance(source, MessageRun):
                credit.spend(taken.count, taken.size)
            elif begins:
                credit.spend(1, source.size)
            if source.is_empty:
                unsent.popleft()
                if self._withdrawn:
                    self._clear_front()
            self._unsent_id += taken.count
            self._unacked.append(taken)
            if self._perishable:
                self._note_place(taken, begins=begins)
            frames.append(taken)
            room -= taken.cost
        return room

    def _retransmit_into(self, room: int, frames: list[SentFrame]) -> int:
        waiting = self.to_retransmit
        # A late ack may have settled what was given up.
        while waiting and (waiting[0].acked or waiting[0].cost <= room):
            frame = heappop(waiting)
            if not frame.acked:
                frame.queued = False
                frames.append(frame)
                room -= frame.cost
        return room

    def _allowed(self, credit: SendCredit) -> int:
        """The number of messages that may leave and have not begun to."""
        return min(credit.left, self._oldest_unacked + self._window - self._unsent_id)

    # What became of them

    def acked(self, frame: SentFrame) -> None:
        """Forget a frame whose packet was acked."""
        self.held -= frame.size
        frame.settle()
        self._advance()

    def run_acked(self, run: FragmentRun, bits: int) -> int:
        """Forget fragments whose packets were acked; return their bytes."""
        size = run.settle(bits)
        self.held -= size
        self._advance()
        return size

    def _advance(self) -> None:
        unacked = self._unacked
        while unacked and unacked[0].acked:
            first = unacked.popleft()
            self._oldest_unacked = first.first_id + first.count
        ids = self._perishable_ids
        while ids and ids[0][0] < self._oldest_unacked:
            if self._perishable.pop(ids.popleft()[1], None) is None:
                self._given_up -= 1

    def retransmit(self, frame: SentFrame) -> None:
        """Put a frame in line again, once."""
        if not frame.queued:
            frame.queued = True
            heappush(self.to_retransmit, frame)

    # Expiry

    def give_up(self, ticket: Ticket) -> None:
        """Send no more of a message, but word that nothing comes under its id if it has one.

        The cost is that of the message, however many wait.
        """
        if self.unreliable.give_up(ticket):
            return
        places = self._perishable.pop(ticket, None)
        if places is None:
            return
        for part in places:
            if isinstance(part, SentFrame):
                self._skip(part)
            elif isinstance(part, FragmentRun):
                part.break_up()
                for frame in part.frames():
                    self._skip(frame)
            elif part.is_empty:
                continue
            elif isinstance(part, FragmentedMessage) and part.is_begun:
                self._cut_off(part)
            else:
                self._withdraw(part)
                return
        self._given_up += 1

    def _skip(self, frame: SentFrame) -> None:
        """Let go of what a frame carries, and send it again as word of that."""
        if not frame.acked:
            frame.skip()
            self.held -= frame.size
            frame.size = 0
            self.retransmit(frame)

    def _cut_off(self, message: FragmentedMessage) -> None:
        """Let go of the rest of the message next in line, of which a part has left."""
        self.held -= message.left
        frame = message.cut_off(self._byte, self._unsent_id)
        self.unsent.popleft()
        self._clear_front()
        self._unsent_id += 1
        self._unacked.append(frame)
        self.retransmit(frame)

    def _withdraw(self, message: MessageRun | FragmentedMessage) -> None:
        """Let go of a message of which nothing has left."""
        self.held -= message.left
        self._next_id -= 1
        self._withdrawn += 1
        message.withdraw()
        self._clear_front()
        if 2 * self._withdrawn > len(self.unsent):
            self.unsent = deque(kept for kept in self.unsent if not kept.is_withdrawn)
            self._withdrawn = 0

    def _clear_front(self) -> None:
        """Let what is next in line be something that leaves."""
        while self.unsent and self.unsent[0].is_withdrawn:
            self.unsent.popleft()
            self._withdrawn -= 1

    def _note_place(self, part: SentFrame | FragmentRun, *, begins: bool) -> None:
        """Note where a message with a deadline is that has just left, or gone on."""
        for ticket in part.tickets:
            if (places := self._perishable.get(ticket)) is not None:
                places.append(part)
                if begins:
                    self._perishable_ids.append((part.first_id, ticket))

    # Smaller packets

    def cut_anew(self, room: int) -> None:
        """Cut what is too large for packets that have become smaller.

        Packets on their way still name the frames that were; those count as settled.
        """
        known = dict.fromkeys(self._unacked_frames())
        unacked = [smaller for frame in known for smaller in cut_frame(frame, room)]
        self.to_retransmit = [frame for frame in self.to_retransmit if not frame.acked]
        for frame in unacked:
            if frame not in known:
                frame.queued = True
                self.to_retransmit.append(frame)
        heapify(self.to_retransmit)
        self._unacked = deque(unacked)
        whole = room - WHOLE_OVERHEAD
        kept = [source for source in self.unsent if not source.is_withdrawn]
        self.unsent = deque()
        for source in kept:
            if isinstance(source, MessageRun):
                self.unsent.extend(source.cut_anew(whole))
            else:
                # It is cut for each packet when that leaves.
                self.unsent.append(source)
        self._withdrawn = 0
        self._find_perishable()

    def _unacked_frames(self) -> Iterator[SentFrame]:
        """The messages that are on their way; runs by their frames."""
        for part in self._unacked:
            if isinstance(part, SentFrame):
                yield part
            else:
                part.break_up()
                yield from part.frames()

    def _find_perishable(self) -> None:
        """Look for the messages with a deadline where they are by now."""
        self._perishable = {ticket: [] for ticket in self._perishable}
        for part in (*self.unsent, *self._unacked):
            for ticket in part.tickets:
                if ticket in self._perishable:
                    self._perishable[ticket].append(part)
