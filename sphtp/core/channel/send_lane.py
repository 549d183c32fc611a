"""The send side of a lane: messages wait here, in order, until the packets with them are acked.

Unsent messages are ``MessageRun`` (n >= 1 small messages) and ``FragmentedMessage`` objects. A
packet takes a ``SentFrame`` from the first of them, or n packets take a ``FragmentRun``. These
records are kept in order of departure until their packets are acked. Unreliable messages wait in a
queue of their own until they leave.

To retransmit means to send the content again, not the packet (RFC 9000, section 13.3). A frame is
retransmitted in these steps:

1. ``LossDetector`` (``loss_detection``) declares packets lost, or selects packets to repeat as a
   probe. It does so when an ack arrives (``SendSide.handle_ack``) or a timer expires
   (``SendSide.handle_timeout``).
2. ``SendSide._handle_lost`` passes the frames of lost packets to
   ``SendQueue.retransmit_lost``, which drops unreliable frames, and leaves out frames that are
   still in flight in another packet. ``SendSide._retransmit_as_probe`` passes those of a probe to
   ``SendQueue.retransmit`` directly, because their packets may not be lost.
3. ``SendQueue.retransmit`` leaves out unreliable frames, and frames that were acked or are queued.
   ``SendLane.retransmit`` puts the others into a heap, ``to_retransmit``, with the oldest on top.
4. When the next packet may leave (``SendSide._packets_allowed``), ``SendLane._retransmit_into``
   puts the oldest frames into it, before any unsent reliable message. It leaves out frames that a
   late ack has settled.

When the path turns out to take only smaller packets, every reliable frame and message that no
longer fits one packet is cut into smaller ones, whether it waits or is in flight. An unreliable
message that waits and no longer fits is dropped.
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
from sphtp.core.serial import MASK
from sphtp.core.wire import LENGTH_OVERHEAD

MOST: Final = 16_384
"""The most ids from the oldest unacked to the newest sent message: a quarter of the 16-bit span."""

LONGEST_RUN: Final = 4096
"""The number of messages from which a run takes no more. A run is freed as a whole, so that a
longer one would keep too many payloads."""

ANY_NUMBER: Final = 1 << 62
"""A limit that never applies: the buffer was already found to have room."""


class MessageRun:
    """n >= 1 whole messages that wait to be sent, in order.

    A message with a deadline or copies is alone in its run. ``payloads`` and ``sizes`` have the
    same length; sizes are in bytes. ``ticket`` is that of the first message.
    """

    __slots__ = ("_cost", "_costs", "_payloads", "_taken", "_tickets", "is_alone", "is_empty",
                 "is_withdrawn")  # fmt: skip

    is_begun = False
    """False, because the next message of a run never counts against the credit yet."""

    def __init__(
        self, payloads: list[bytes], sizes: Sequence[int], ticket: Ticket | None = None
    ) -> None:
        self._payloads = payloads
        # ``_costs``: the cost of the first n messages in a frame, in bytes. A bisection finds how
        # many fit. ``_cost``: the cost of each if all have one size, which is the usual case.
        cost = sizes[0] + LENGTH_OVERHEAD
        number = len(sizes)
        if number == 1:
            self._cost = cost
            self._costs = [0, cost]
        elif sizes.count(sizes[0]) == number:
            self._cost = cost
            self._costs = list(range(0, cost * number + 1, cost))
        else:
            self._cost = 0
            self._costs = list(accumulate(map(LENGTH_OVERHEAD.__add__, sizes), initial=0))
        self._taken = 0
        # True if every message has been taken.
        self.is_empty = False
        # The tickets, by the index of their messages in the run.
        self._tickets: dict[int, Ticket] = {} if ticket is None else {0: ticket}
        self.is_alone = ticket is not None and ticket.is_special
        # True if its message expired before it left.
        self.is_withdrawn = False

    @property
    def takes_more(self) -> bool:
        """True if further messages may be added."""
        return not self.is_alone and len(self._payloads) < LONGEST_RUN

    @property
    def left(self) -> int:
        """Bytes of the messages that have not been taken."""
        number = len(self._payloads) - self._taken
        return self._costs[-1] - self._costs[self._taken] - LENGTH_OVERHEAD * number

    @property
    def tickets(self) -> Sequence[Ticket]:
        """The tickets of the messages that have not been taken."""
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
        """Add messages without tickets at the end."""
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
        """Drop the payloads of a run that was given up before it left."""
        self.is_withdrawn = True
        self._payloads = [b""] * len(self._payloads)

    def take(self, lane: int, first_id: int, room: int, limit: int) -> SentFrame | None:
        """Take as many messages as fit, at most ``limit``; return None if none fits."""
        costs, taken = self._costs, self._taken
        start = costs[taken]
        end = bisect_right(costs, start + room - MESSAGES_OVERHEAD, taken) - 1
        if end > taken + 1:
            end = min(end, taken + limit, taken + MAX_MESSAGES_PER_FRAME)
            if costs[end] - start == LENGTH_OVERHEAD * (end - taken):
                # All are empty. A packet with more messages than bytes would be malformed.
                end = min(end, taken + RUN_OVERHEAD)
        number = end - taken
        if number <= 0:
            return None
        self._taken = end
        self.is_empty = end == len(self._payloads)
        cost = costs[end] - start
        tickets: Sequence[Ticket] = ()
        if self._tickets:
            tickets = self._take_tickets(range(taken, end), first_id)
        return SentFrame(
            Messages(lane, first_id & MASK, self._payloads[taken:end]),
            first_id,
            cost - LENGTH_OVERHEAD * number,
            cost + MESSAGES_OVERHEAD,
            0,
            number,
            tickets,
        )

    def _take_tickets(self, places: range, first_id: int) -> list[Ticket]:
        """Remove and return the tickets of messages that leave in one frame."""
        tickets = []
        for message_id, at in enumerate(places, first_id):
            ticket = self._tickets.pop(at, None)
            if ticket is not None:
                ticket.message_id = message_id
                tickets.append(ticket)
        return tickets

    def per_packet(self, room: int) -> tuple[int, int, int]:
        """Return the messages per full packet, their bytes, and the number of packets they fill.

        All three are 0 if the messages differ in size, are empty, or do not fit a packet.
        """
        if self._cost <= LENGTH_OVERHEAD:
            return 0, 0, 0
        number = min((room - MESSAGES_OVERHEAD) // self._cost, MAX_MESSAGES_PER_FRAME)
        if not number:
            return 0, 0, 0
        size = number * (self._cost - LENGTH_OVERHEAD)
        return number, size, (len(self._payloads) - self._taken) // number

    def cut_anew(self, whole: int) -> "Iterator[MessageRun | FragmentedMessage]":
        """Yield the messages not taken; those over ``whole`` bytes become fragmented messages."""
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
    """The messages of a lane: unreliable ones until they leave, reliable ones until they are acked.

    A reliable message gets its id when its first part leaves, so that a message that expires before
    that uses up no id. If a message expires later, the receiver already waits for its id. Then a
    SKIP frame replaces the message. It is retransmitted until it is acked, and takes no room in the
    lane. ``window`` is the most messages from the oldest unacked to the newest sent one, and
    ``unreliable`` the most unreliable messages that wait.
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
        # Unreliable messages, up to a limit.
        self.unreliable = UnreliableQueue(unreliable)
        # Bytes of the reliable messages that are not acked.
        self.held = 0
        # The lane's tag for the scheduler (``send_queue``).
        self.served = 0.0
        self._byte = number if options.ordered else number | FLAG
        # The number of ids that the receiver accepts, from the oldest one that it lacks.
        self._window = min(window, MOST)
        self._oldest_unacked = first_id
        self._next_id = first_id
        self._unsent_id = first_id
        # Unsent reliable messages, in order; and a heap of the frames to retransmit.
        self.unsent: deque[MessageRun | FragmentedMessage] = deque()
        self.to_retransmit: list[SentFrame] = []
        self._unacked: deque[SentFrame | FragmentRun] = deque()
        # The parts of each message with a deadline, so that giving one up does not search the
        # others; and the ids of those that have left, in order, until all ids up to them are acked.
        self._perishable: dict[
            Ticket, list[MessageRun | FragmentedMessage | SentFrame | FragmentRun]
        ] = {}
        self._perishable_ids: deque[tuple[int, Ticket]] = deque()
        # ``_given_up``: the number of ids in ``_perishable_ids`` whose messages were given up.
        # ``_withdrawn``: the number of withdrawn messages in ``unsent``.
        self._given_up = 0
        self._withdrawn = 0
        # Bytes by which reliable messages are ahead of unreliable ones, since both began to wait.
        self._lead = 0

    @property
    def waiting(self) -> int:
        """The number of reliable messages from the oldest unacked to the newest one.

        Acked messages behind an unacked one count. Messages that were given up do not.
        """
        return self._next_id - self._oldest_unacked - self._given_up

    @property
    def is_idle(self) -> bool:
        """True if no message waits to be sent, and no reliable one or SKIP to be acked."""
        return self._next_id == self._oldest_unacked and not self.unreliable.waiting

    @property
    def wants_to_send(self) -> bool:
        """True if ``fill`` may have something to add."""
        return bool(self.unsent or self.to_retransmit or self.unreliable.waiting)

    def may_pass(self, credit: SendCredit) -> bool:
        """Return True if no unsent reliable message waits, and one may leave by shared memory."""
        return not self.unsent and self._allowed(credit) > 0

    def pass_message(self) -> tuple[int, int]:
        """Take the id for a message that leaves by shared memory alone, and needs no ack.

        Return the lane and the id, as in a frame.
        """
        message_id = self._unsent_id
        self._unsent_id = self._next_id = message_id + 1
        if not self._unacked:
            self._oldest_unacked = self._unsent_id
        return self._byte, message_id & MASK

    def may_send(self, credit: SendCredit) -> bool:
        """Return True if ``fill`` would add something to an empty packet."""
        return bool(self.unreliable.waiting) or self._may_send_reliable(credit)

    def _may_send_reliable(self, credit: SendCredit) -> bool:
        if self.to_retransmit or not self.unsent:
            return bool(self.to_retransmit)
        return self.unsent[0].is_begun or self._allowed(credit) > 0

    def fills_packets(self, room: int) -> bool:
        """Return True if the first unsent run or message has more than ``room`` bytes left."""
        return bool(self.unsent) and self.unsent[0].left > room

    @property
    def spread(self) -> int:
        """The number of frames from the oldest unacked one to the newest sent one.

        A run of fragments counts as one.
        """
        return len(self._unacked)

    # Queueing

    def room_for(self, sizes: Sequence[int], messages: int, size: int) -> int:
        """Return the number of messages of these sizes for which a buffer has room.

        The buffer takes ``messages`` messages and ``size`` bytes. A message larger than the whole
        buffer fits when the buffer is empty.
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
        """Queue a message, if a buffer of ``messages`` messages and ``most`` bytes has room for it.

        Return the number of queued messages, 0 or 1. The message is cut into fragments if it does
        not fit whole into a packet with ``room`` bytes for frames.
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
        """Queue messages without tickets, whatever the buffer; faster than calls of ``push``."""
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
        """Add the frames that fit into a packet's room; return the room in bytes that is left.

        If reliable and unreliable messages both wait, each kind gets half of the lane's bytes,
        counted from the moment at which both began to wait. The kind with fewer bytes so far goes
        first, and the other takes the rest of the packet. So neither delays the other by more than
        a packet, and an occasional message overtakes bulk.
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
        """Take the content of 2 to ``packets`` equal packets, each with ``room`` bytes for frames.

        The packets hold the fragments of one message, or messages of one size. Return None if there
        is no such content or no credit for it, or if a retransmission or an unreliable message
        waits; the caller then uses ``fill``.
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
        """Add frames to retransmit, the oldest first, then unsent messages."""
        if self.to_retransmit:
            room = self._retransmit_into(room, frames)
        unsent = self.unsent
        while unsent and not self.to_retransmit:
            source = unsent[0]
            # A message uses up credit when it begins to leave.
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
        # A late ack may have settled a frame after its packet was declared lost.
        while waiting and (waiting[0].acked or waiting[0].cost <= room):
            frame = heappop(waiting)
            if not frame.acked:
                frame.queued = False
                frames.append(frame)
                room -= frame.cost
        return room

    def _allowed(self, credit: SendCredit) -> int:
        """Return the number of further messages that may begin to leave; 0 or less for none."""
        return min(credit.left, self._oldest_unacked + self._window - self._unsent_id)

    # Acks and losses

    def acked(self, frame: SentFrame) -> None:
        """Settle a frame whose packet was acked."""
        self.held -= frame.size
        frame.settle()
        self._advance()

    def run_acked(self, run: FragmentRun, bits: int) -> int:
        """Settle fragments whose packets were acked; return the bytes acked for the first time."""
        size = run.settle(bits)
        self.held -= size
        self._advance()
        return size

    def _advance(self) -> None:
        unacked = self._unacked
        while unacked and unacked[0].acked:
            unacked.popleft()
        # Between two frames there may be ids of messages that left by shared memory alone.
        self._oldest_unacked = unacked[0].first_id if unacked else self._unsent_id
        ids = self._perishable_ids
        while ids and ids[0][0] < self._oldest_unacked:
            if self._perishable.pop(ids.popleft()[1], None) is None:
                self._given_up -= 1

    def retransmit(self, frame: SentFrame) -> None:
        """Queue a frame for retransmission, unless it is queued already."""
        if not frame.queued:
            frame.queued = True
            heappush(self.to_retransmit, frame)

    # Expiry

    def give_up(self, ticket: Ticket) -> None:
        """Give up a message. If it has an id, queue a SKIP in its place.

        This takes time by the size of the message, not by the number of messages that wait.
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
        """Replace the content of an unacked frame by a SKIP, and queue it for retransmission."""
        if not frame.acked:
            frame.skip()
            self.held -= frame.size
            frame.size = 0
            self.retransmit(frame)

    def _cut_off(self, message: FragmentedMessage) -> None:
        """Drop the rest of the first unsent message, of which a part has left; queue a SKIP."""
        self.held -= message.left
        frame = message.cut_off(self._byte, self._unsent_id)
        self.unsent.popleft()
        self._clear_front()
        self._unsent_id += 1
        self._unacked.append(frame)
        self.retransmit(frame)

    def _withdraw(self, message: MessageRun | FragmentedMessage) -> None:
        """Drop a message of which nothing has left."""
        self.held -= message.left
        self._next_id -= 1
        self._withdrawn += 1
        message.withdraw()
        self._clear_front()
        if 2 * self._withdrawn > len(self.unsent):
            self.unsent = deque(kept for kept in self.unsent if not kept.is_withdrawn)
            self._withdrawn = 0

    def _clear_front(self) -> None:
        """Drop withdrawn messages from the front of ``unsent``."""
        while self.unsent and self.unsent[0].is_withdrawn:
            self.unsent.popleft()
            self._withdrawn -= 1

    def _note_place(self, part: SentFrame | FragmentRun, *, begins: bool) -> None:
        """Record that a part of a message with a deadline has left."""
        for ticket in part.tickets:
            if (places := self._perishable.get(ticket)) is not None:
                places.append(part)
                if begins:
                    self._perishable_ids.append((part.first_id, ticket))

    # Smaller packets

    def cut_anew(self, room: int) -> None:
        """Cut frames and messages to fit packets that have become smaller.

        ``room`` is the new room for frames in a packet, in bytes. Packets in flight still refer to
        the old frames, which count as acked.
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
                # Each fragment is cut when its packet is filled.
                self.unsent.append(source)
        self._withdrawn = 0
        self._find_perishable()

    def _unacked_frames(self) -> Iterator[SentFrame]:
        """Yield the frames from the oldest unacked one on; runs of fragments are broken up."""
        for part in self._unacked:
            if isinstance(part, SentFrame):
                yield part
            else:
                part.break_up()
                yield from part.frames()

    def _find_perishable(self) -> None:
        """Rebuild the lists of the parts of messages with a deadline."""
        self._perishable = {ticket: [] for ticket in self._perishable}
        for part in (*self.unsent, *self._unacked):
            for ticket in part.tickets:
                if ticket in self._perishable:
                    self._perishable[ticket].append(part)
