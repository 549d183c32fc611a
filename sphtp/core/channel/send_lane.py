"""The send side of a lane: messages wait here, in order, until packets that hold them are acked.

What waits to leave is a line of ``MessageRun`` (n >= 1 small messages) and ``FragmentedMessage``. A
packet takes ``SentFrame`` from its head, or n packets a ``FragmentRun``; what left stays known, in
order of departure, until its packets are acked. What is lost waits apart, in a heap, and goes
before what never left. Messages that are sent once wait beside all that, only until they leave.

Where the path turns out to take smaller packets only, what does not fit them any more is cut anew,
be it waiting or on its way.
"""

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate, count
from typing import Final

from sphtp.core.channel.delivery import FLAG, Lane
from sphtp.core.channel.flow_control import SendCredit
from sphtp.core.channel.frames import (
    FRAGMENT_OVERHEAD,
    MAX_MESSAGES_PER_FRAME,
    MESSAGES_OVERHEAD,
    RUN_OVERHEAD,
    SKIP_OVERHEAD,
    UNRELIABLE_OVERHEAD,
    Buffer,
    Fragment,
    Messages,
    Skip,
    Unreliable,
)
from sphtp.core.channel.sent_packets import (
    Contents,
    FragmentRun,
    SentFrame,
    make_fragment,
)
from sphtp.core.channel.ticket import Ticket
from sphtp.core.payloads import LENGTH_OVERHEAD
from sphtp.core.serial import MASK

MOST: Final = 16_384
"""Messages between the oldest unacked and the newest one: a quarter of what 16 bits tell apart."""

LONGEST_RUN: Final = 4096
"""Messages in a run that grows one by one, after which a new one starts: to let go of the old."""

FEWEST_PACKETS: Final = 2
"""Packets that are worth to be filled as one batch."""

LEAST_FRAGMENT: Final = 128
"""A fragment smaller than this waits for the next packet, unless it is the message's end; the
smallest packet has room for more."""

WHOLE_OVERHEAD: Final = MESSAGES_OVERHEAD + LENGTH_OVERHEAD
"""Bytes that a message costs which is alone in its frame."""


class MessageRun:
    """n >= 1 whole messages that wait to be sent, in order.

    One of which something is asked, by its ticket, is alone in its run.
    """

    __slots__ = ("_cost", "_costs", "_payloads", "_taken", "_tickets", "is_alone", "is_withdrawn")

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
    def is_empty(self) -> bool:
        """Whether every message has been taken."""
        return self._taken == len(self._payloads)

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

    def per_packet(self, room: int) -> tuple[int, int]:
        """How many messages fill a packet, and how many packets can be filled with as many.

        Nothing where messages differ in size, or have none.
        """
        if self._cost <= LENGTH_OVERHEAD:
            return 0, 0
        number = min((room - MESSAGES_OVERHEAD) // self._cost, MAX_MESSAGES_PER_FRAME)
        return number, (len(self._payloads) - self._taken) // number if number else 0

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


class FragmentedMessage:
    """One message that is sent in fragments, each as large as its packet takes."""

    __slots__ = ("_offset", "_payload", "is_withdrawn", "tickets")

    def __init__(self, payload: bytes, ticket: Ticket | None) -> None:
        self.tickets: Sequence[Ticket] = () if ticket is None else (ticket,)
        self.is_withdrawn = False
        self._payload = payload
        self._offset = 0

    @property
    def is_empty(self) -> bool:
        """Whether all of it has been taken."""
        return self._offset == len(self._payload)

    @property
    def is_begun(self) -> bool:
        """Whether a part of it has left, and with it all of it was paid for."""
        return self._offset > 0

    @property
    def left(self) -> int:
        """Bytes that have not been taken."""
        return len(self._payload) - self._offset

    @property
    def total(self) -> int:
        """Bytes of the whole message."""
        return len(self._payload)

    def withdraw(self) -> None:
        """Let go of the message, of which nothing has left: it is not to leave."""
        self.is_withdrawn = True
        self._payload = b""

    def cut_off(self, lane: int, message_id: int) -> SentFrame:
        """Take word that the rest of the message does not come, in place of that rest."""
        start, total = self._offset, len(self._payload)
        self._offset = total
        return SentFrame(Skip(lane, message_id & MASK, total), message_id, 0, SKIP_OVERHEAD, start)

    def take(self, lane: int, message_id: int, room: int, _limit: int) -> SentFrame | None:
        """Take the next fragment; None when it does not fit."""
        start, total = self._offset, len(self._payload)
        size = min(room - FRAGMENT_OVERHEAD, total - start)
        if size < min(LEAST_FRAGMENT, total - start):
            return None
        frame = make_fragment(lane, message_id, self._payload, start, start + size, self.tickets)
        self._offset = start + size
        if self._offset < total:
            self._await_another_part()
        return frame

    def take_run(self, lane: int, message_id: int, room: int, packets: int) -> FragmentRun | None:
        """Take fragments that fill up to ``packets``; None unless they fill some.

        The message's last fragment is left for ``take``: other messages may ride along with it.
        """
        length = room - FRAGMENT_OVERHEAD
        number = min(packets, (self.left - 1) // length)
        if number < FEWEST_PACKETS or any(ticket.copies for ticket in self.tickets):
            return None
        run = FragmentRun(
            lane, message_id, self._payload, self._offset, length, number, self.tickets
        )
        self._offset = run.end
        self._await_another_part()
        return run

    def _await_another_part(self) -> None:
        for ticket in self.tickets:
            ticket.parts += 1


class UnreliableQueue:
    """Messages of one lane that are sent once, waiting for the next packet.

    When too many wait, the oldest, which is the stalest, goes.
    """

    __slots__ = ("_limit", "_next_ids", "dropped", "waiting")

    def __init__(self, limit: int) -> None:
        self.dropped = 0
        # The oldest first; found by their tickets when they expire.
        self.waiting: OrderedDict[Ticket, tuple[int, bytes]] = OrderedDict()
        self._limit = limit
        self._next_ids: dict[int, int] = {}

    def push(self, lane: int, payload: bytes, ticket: Ticket) -> Ticket | None:
        """Queue a message; ``lane`` carries ``FLAG`` if overtaken ones are to be dropped.

        Return the ticket of the one that had to go for it, if any.
        """
        gone = None
        if len(self.waiting) >= self._limit:
            gone, _ = self.waiting.popitem(last=False)
            self.dropped += 1
        self.waiting[ticket] = lane, payload
        return gone

    def give_up(self, ticket: Ticket) -> bool:
        """Let go of a message; false when it does not wait here."""
        return self.waiting.pop(ticket, None) is not None

    def drop_over(self, size: int) -> list[Ticket]:
        """Let go of messages over ``size``, and return their tickets."""
        gone = [ticket for ticket, (_, payload) in self.waiting.items() if len(payload) > size]
        for ticket in gone:
            del self.waiting[ticket]
        self.dropped += len(gone)
        return gone

    def fill(self, room: int, frames: list[SentFrame]) -> int:
        """Add what fits into ``room``, and return the room that is left."""
        while self.waiting:
            lane, payload = self._next()
            if UNRELIABLE_OVERHEAD + LENGTH_OVERHEAD + len(payload) > room:
                break
            payloads: list[bytes] = []
            tickets: list[Ticket] = []
            before = room
            room -= UNRELIABLE_OVERHEAD
            while self.waiting:
                next_lane, payload = self._next()
                if next_lane != lane or LENGTH_OVERHEAD + len(payload) > room:
                    break
                tickets.append(self.waiting.popitem(last=False)[0])
                room -= LENGTH_OVERHEAD + len(payload)
                payloads.append(payload)
            # Numbers are for those that leave: what was dropped before must not use them up.
            first = self._next_ids.get(lane, 0)
            self._next_ids[lane] = first + len(payloads)
            frame = Unreliable(lane, first & MASK, payloads)
            size = sum(map(len, payloads))
            frames.append(
                SentFrame(frame, first, size, before - room, tickets=tickets, is_reliable=False)
            )
        return room

    def _next(self) -> tuple[int, bytes]:
        return next(iter(self.waiting.values()))


class SendLane:
    """What waits in a lane: messages that are sent once, and reliable ones until they are acked.

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
        "_resend",
        "_unacked",
        "_unsent",
        "_unsent_id",
        "_window",
        "_withdrawn",
        "held",
        "options",
        "served",
        "unreliable",
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
        self._unsent: deque[MessageRun | FragmentedMessage] = deque()
        self._resend: list[SentFrame] = []
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
        """Whether ``fill`` may have something to give."""
        return bool(self._unsent or self._resend or self.unreliable.waiting)

    def may_send(self, credit: SendCredit) -> bool:
        """Whether ``fill`` has something to give, room for it or not."""
        return bool(self.unreliable.waiting) or self._may_send_reliable(credit)

    def _may_send_reliable(self, credit: SendCredit) -> bool:
        if self._resend or not self._unsent:
            return bool(self._resend)
        return self._unsent[0].is_begun or self._allowed(credit) > 0

    @property
    def sends_again(self) -> bool:
        """Whether what comes next has left before."""
        return bool(self._resend)

    def fills_packets(self, room: int) -> bool:
        """Whether what is first in line takes more than a packet with ``room``."""
        return bool(self._unsent) and self._unsent[0].left > room

    @property
    def spread(self) -> int:
        """Frames from the oldest unacked one to the newest that left."""
        return len(self._unacked)

    # Queueing

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
        """The same for one message of ``size`` bytes, and a buffer of ``most``."""
        return self.waiting < messages and (self.held + size <= most or not self.held)

    def push(self, payload: bytes, size: int, room: int, ticket: Ticket | None = None) -> None:
        """Queue a message; it is cut into fragments when it does not fit ``room`` whole."""
        self.held += size
        self._next_id += 1
        unsent = self._unsent
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
            return
        else:
            message = MessageRun([payload], (size,), ticket)
        unsent.append(message)
        if ticket is not None and ticket.deadline is not None:
            self._perishable[ticket] = [message]

    def push_many(self, payloads: Sequence[bytes], sizes: Sequence[int], room: int) -> None:
        """Queue messages that nobody follows; the same as one by one, but faster."""
        if len(sizes) == 1 or max(sizes) > room - WHOLE_OVERHEAD:
            for payload, size in zip(payloads, sizes, strict=True):
                self.push(payload, size, room)
            return
        self.held += sum(sizes)
        self._next_id += len(payloads)
        tail = self._unsent[-1] if self._unsent else None
        if type(tail) is MessageRun and tail.takes_more:
            tail.extend(payloads, sizes)
        else:
            self._unsent.append(MessageRun(list(payloads), sizes))

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
        if not self._unsent or self._resend or self.unreliable.waiting:
            return None
        source = self._unsent[0]
        if isinstance(source, FragmentedMessage):
            return self._take_fragments(source, room, packets, credit)
        number, full = source.per_packet(room)
        if full < FEWEST_PACKETS:
            return None
        packets = min(packets, full, self._allowed(credit) // number)
        if packets < FEWEST_PACKETS:
            return None
        contents: list[tuple[SentFrame]] = []
        first_id = self._unsent_id
        size = 0
        for _ in range(packets):
            frame = source.take(self._byte, first_id, room, number)
            assert frame is not None
            frame.packets = 1
            first_id += frame.count
            size += frame.size
            contents.append((frame,))
            self._unacked.append(frame)
        self._unsent_id = first_id
        credit.spend(packets * number, size)
        self.served += (size + packets * MESSAGES_OVERHEAD) / self.options.weight
        if source.is_empty:
            self._unsent.popleft()
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
                credit.spend(1, message.total)
            if self._perishable:
                self._note_place(run, begins=begins)
        return run

    def _fill_reliable(self, room: int, credit: SendCredit, frames: list[SentFrame]) -> int:
        """Add lost frames first, the oldest before all, then what never left."""
        resend = self._resend
        while resend:
            # A late ack may have settled what was given up.
            if not resend[0].acked:
                if resend[0].cost > room:
                    return room
                frame = heappop(resend)
                frame.queued = False
                frames.append(frame)
                room -= frame.cost
            else:
                heappop(resend)
        while self._unsent and (taken := self._take_unsent(room, credit)) is not None:
            frames.append(taken)
            room -= taken.cost
        return room

    def _take_unsent(self, room: int, credit: SendCredit) -> SentFrame | None:
        """Take what never left before, which is paid for with ``credit``."""
        source = self._unsent[0]
        # What is begun was paid for.
        begins = not source.is_begun
        left = self._allowed(credit) if begins else 1
        if left <= 0:
            return None
        frame = source.take(self._byte, self._unsent_id, room, left)
        if frame is None:
            return None
        if begins:
            if type(source) is FragmentedMessage:
                credit.spend(1, source.total)
            else:
                credit.spend(frame.count, frame.size)
        if source.is_empty:
            self._unsent.popleft()
            self._clear_front()
        self._unsent_id += frame.count
        self._unacked.append(frame)
        if self._perishable and frame.tickets:
            self._note_place(frame, begins=begins)
        return frame

    def _allowed(self, credit: SendCredit) -> int:
        """How many messages may leave that have not begun to."""
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

    def again(self, frame: SentFrame) -> None:
        """Put a frame in line again, once."""
        if not frame.queued:
            frame.queued = True
            heappush(self._resend, frame)

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
            self.again(frame)

    def _cut_off(self, message: FragmentedMessage) -> None:
        """Let go of the rest of the message next in line, of which a part has left."""
        self.held -= message.left
        frame = message.cut_off(self._byte, self._unsent_id)
        self._unsent.popleft()
        self._clear_front()
        self._unsent_id += 1
        self._unacked.append(frame)
        self.again(frame)

    def _withdraw(self, message: MessageRun | FragmentedMessage) -> None:
        """Let go of a message of which nothing has left."""
        self.held -= message.left
        self._next_id -= 1
        self._withdrawn += 1
        message.withdraw()
        self._clear_front()
        if 2 * self._withdrawn > len(self._unsent):
            self._unsent = deque(kept for kept in self._unsent if not kept.is_withdrawn)
            self._withdrawn = 0

    def _clear_front(self) -> None:
        """Let what is next in line be something that leaves."""
        while self._unsent and self._unsent[0].is_withdrawn:
            self._unsent.popleft()
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
        unacked = [smaller for frame in known for smaller in _cut_frame(frame, room)]
        self._resend = [frame for frame in self._resend if not frame.acked]
        for frame in unacked:
            if frame not in known:
                frame.queued = True
                self._resend.append(frame)
        heapify(self._resend)
        self._unacked = deque(unacked)
        whole = room - WHOLE_OVERHEAD
        kept = [source for source in self._unsent if not source.is_withdrawn]
        self._unsent = deque()
        for source in kept:
            if isinstance(source, MessageRun):
                self._unsent.extend(source.cut_anew(whole))
            else:
                # It is cut for each packet when that leaves.
                self._unsent.append(source)
        self._withdrawn = 0
        self._find_perishable()

    def _unacked_frames(self) -> Iterator[SentFrame]:
        """What is on its way; runs by their frames."""
        for part in self._unacked:
            if isinstance(part, SentFrame):
                yield part
            else:
                part.break_up()
                yield from part.frames()

    def _find_perishable(self) -> None:
        """Look for the messages with a deadline where they are by now."""
        self._perishable = {ticket: [] for ticket in self._perishable}
        for part in (*self._unsent, *self._unacked):
            for ticket in part.tickets:
                if ticket in self._perishable:
                    self._perishable[ticket].append(part)


def _cut_frame(frame: SentFrame, room: int) -> list[SentFrame]:
    """Return the frame itself if it fits ``room``, or smaller ones that carry the same.

    The frame then counts as acked: packets on their way still name it. Whoever follows a message in
    it is told when all the smaller ones are acked.
    """
    if frame.acked or frame.cost <= room:
        return [frame]
    content = frame.frame
    if isinstance(content, Messages):
        smaller = list(_cut_messages(content, frame.first_id, room))
    else:
        assert isinstance(content, Fragment)
        smaller = list(
            _cut_fragment(
                content.lane, frame.first_id, content.payload, content.offset, content.total, room
            )
        )
    for ticket in frame.tickets:
        ticket.parts += len(smaller) - 1
    for part in smaller:
        part.tickets, part.copies = frame.tickets, frame.copies
    frame.settle()
    return smaller


def _cut_messages(frame: Messages, first_id: int, room: int) -> Iterator[SentFrame]:
    for message_id, payload in zip(count(first_id), frame.payloads):
        cost = WHOLE_OVERHEAD + len(payload)
        if cost <= room:
            alone = Messages(frame.lane, message_id & MASK, [payload])
            yield SentFrame(alone, message_id, len(payload), cost)
        else:
            yield from _cut_fragment(frame.lane, message_id, payload, 0, len(payload), room)


def _cut_fragment(
    lane: int, message_id: int, payload: Buffer, offset: int, total: int, room: int
) -> Iterator[SentFrame]:
    size = room - FRAGMENT_OVERHEAD
    for start in range(0, len(payload), size):
        part = payload[start : start + size]
        at = offset + start
        frame = Fragment(lane, message_id & MASK, at, total, part)
        ends = int(at + len(part) == total)
        yield SentFrame(frame, message_id, len(part), FRAGMENT_OVERHEAD + len(part), at, ends)
