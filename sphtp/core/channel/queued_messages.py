"""Messages that wait in a lane until packets have taken all of them.

A ``FragmentedMessage`` yields a ``SentFrame`` for one packet, or a ``FragmentRun`` for several.
Runs of small messages are in ``send_lane``. Unreliable messages wait in an ``UnreliableQueue``.
When packets become smaller, ``cut_frame`` cuts sent frames into smaller ones.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from sphtp.core.channel.frames import (
    FRAGMENT_OVERHEAD,
    MESSAGES_OVERHEAD,
    SKIP_OVERHEAD,
    UNRELIABLE_OVERHEAD,
    Buffer,
    Fragment,
    Messages,
    Skip,
    Unreliable,
)
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.sent_packets import FragmentRun, SentFrame, make_fragment
from sphtp.core.serial import MASK
from sphtp.core.wire import LENGTH_OVERHEAD

FEWEST_PACKETS: Final = 2
"""The fewest packets that are worth a batch."""

LEAST_FRAGMENT: Final = 128
"""The fewest bytes that a packet takes from a waiting message as a fragment, unless they end the
message. If less fits, they wait for the next packet. An empty packet of the smallest size has room
for more."""

WHOLE_OVERHEAD: Final = MESSAGES_OVERHEAD + LENGTH_OVERHEAD
"""Bytes that a message, alone in its frame, costs beside its payload."""

ONCE_OVERHEAD: Final = UNRELIABLE_OVERHEAD + LENGTH_OVERHEAD
"""Bytes that an unreliable message, alone in its frame, costs beside its payload."""


class FragmentedMessage:
    """A message too large for one datagram; each fragment but the last fills the rest of one."""

    __slots__ = ("_offset", "_payload", "is_withdrawn", "tickets")

    def __init__(self, payload: bytes, ticket: Ticket | None) -> None:
        self.tickets: Sequence[Ticket] = () if ticket is None else (ticket,)
        self.is_withdrawn = False
        self._payload = payload
        self._offset = 0

    @property
    def is_empty(self) -> bool:
        """True if the whole message has been taken."""
        return self._offset == len(self._payload)

    @property
    def is_begun(self) -> bool:
        """True if a part has been taken, so that the whole message counts against the credit."""
        return self._offset > 0

    @property
    def left(self) -> int:
        """Bytes that have not been taken."""
        return len(self._payload) - self._offset

    @property
    def size(self) -> int:
        """Bytes of the whole message."""
        return len(self._payload)

    def withdraw(self) -> None:
        """Drop the payload of a message of which no part has been taken."""
        self.is_withdrawn = True
        self._payload = b""

    def cut_off(self, lane: int, message_id: int) -> SentFrame:
        """Return a frame with a SKIP, in place of the rest of the message."""
        start, total = self._offset, len(self._payload)
        self._offset = total
        return SentFrame(Skip(lane, message_id & MASK, total), message_id, 0, SKIP_OVERHEAD, start)

    def take(self, lane: int, message_id: int, room: int, _limit: int) -> SentFrame | None:
        """Take the next fragment; return None if less than the smallest fragment fits."""
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
        """Take fragments that fill up to ``packets`` packets.

        Return None if they fill fewer than two, or if the message has copies. The last fragment is
        left for ``take``, so that other messages can share its packet.
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
    """The unreliable messages of one lane that wait for a packet.

    When too many wait, the oldest one is dropped, because it is the most outdated.
    """

    __slots__ = ("_limit", "_next_ids", "dropped", "waiting")

    def __init__(self, limit: int) -> None:
        self.dropped = 0
        # The oldest first; by ticket, so that an expired message is found at once.
        self.waiting: OrderedDict[Ticket, tuple[int, bytes]] = OrderedDict()
        self._limit = limit
        self._next_ids: dict[int, int] = {}

    def push(self, lane: int, payload: bytes, ticket: Ticket) -> Ticket | None:
        """Queue a message; ``lane`` has ``FLAG`` set if the receiver drops overtaken messages.

        If too many wait, drop the oldest and return its ticket; otherwise return None.
        """
        gone = None
        if len(self.waiting) >= self._limit:
            gone, _ = self.waiting.popitem(last=False)
            self.dropped += 1
        self.waiting[ticket] = lane, payload
        return gone

    def give_up(self, ticket: Ticket) -> bool:
        """Drop a message; return False if it is not in this queue."""
        return self.waiting.pop(ticket, None) is not None

    def drop_over(self, size: int) -> list[Ticket]:
        """Drop the messages of more than ``size`` bytes; return their tickets."""
        gone = [ticket for ticket, (_, payload) in self.waiting.items() if len(payload) > size]
        for ticket in gone:
            del self.waiting[ticket]
        self.dropped += len(gone)
        return gone

    def fill(self, room: int, frames: list[SentFrame]) -> int:
        """Add frames with the oldest messages, up to ``room`` bytes; return the room left."""
        while self.waiting:
            lane, payload = self._next()
            if ONCE_OVERHEAD + len(payload) > room:
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
            # A message gets its id when it leaves, so that a dropped one uses up none.
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


def cut_frame(frame: SentFrame, room: int) -> list[SentFrame]:
    """Return the frame itself if it fits ``room`` bytes, else smaller frames with the same content.

    An acked frame is returned as it is. Packets in flight still refer to a frame that was cut,
    which then counts as acked. In a ticket, each smaller frame with a part of its message is one
    part.
    """
    if frame.acked or frame.cost <= room:
        return [frame]
    content = frame.frame
    if isinstance(content, Messages):
        smaller = list(_cut_messages(content, frame.first_id, room, frame.tickets))
    else:
        assert isinstance(content, Fragment)
        smaller = list(
            _cut_fragment(
                content.lane,
                frame.first_id,
                content.payload,
                content.offset,
                content.total,
                room,
                frame.tickets,
            )
        )
    for ticket in frame.tickets:
        ticket.parts -= 1
    for part in smaller:
        part.copies = frame.copies
        for ticket in part.tickets:
            ticket.parts += 1
    frame.settle()
    return smaller


def _cut_messages(
    frame: Messages, first_id: int, room: int, tickets: Sequence[Ticket]
) -> Iterator[SentFrame]:
    by_message = {ticket.message_id: (ticket,) for ticket in tickets}
    for message_id, payload in zip(count(first_id), frame.payloads):
        own = by_message.get(message_id, ())
        cost = WHOLE_OVERHEAD + len(payload)
        if cost <= room:
            alone = Messages(frame.lane, message_id & MASK, [payload])
            yield SentFrame(alone, message_id, len(payload), cost, tickets=own)
        else:
            yield from _cut_fragment(frame.lane, message_id, payload, 0, len(payload), room, own)


def _cut_fragment(
    lane: int,
    message_id: int,
    payload: Buffer,
    offset: int,
    total: int,
    room: int,
    tickets: Sequence[Ticket],
) -> Iterator[SentFrame]:
    size = room - FRAGMENT_OVERHEAD
    for start in range(0, len(payload), size):
        part = payload[start : start + size]
        at = offset + start
        frame = Fragment(lane, message_id & MASK, at, total, part)
        ends = int(at + len(part) == total)
        cost = FRAGMENT_OVERHEAD + len(part)
        yield SentFrame(frame, message_id, len(part), cost, at, ends, tickets)
