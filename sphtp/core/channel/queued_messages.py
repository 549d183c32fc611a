"""Messages that wait in a lane until packets have taken all of them.

A ``MessageRun`` holds n >= 1 small messages, of which a packet takes as many as fit; a
``FragmentedMessage`` is one that no packet takes whole. Both hand out what a packet carries as
``SentFrame``. Messages that are sent once wait in an ``UnreliableQueue``.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from sphtp.core.channel.frames import (
    FRAGMENT_OVERHEAD,
    MAX_MESSAGES_PER_FRAME,
    MESSAGES_OVERHEAD,
    RUN_OVERHEAD,
    SKIP_OVERHEAD,
    UNRELIABLE_OVERHEAD,
    Messages,
    Skip,
    Unreliable,
)
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.sent_packets import FragmentRun, SentFrame, make_fragment
from sphtp.core.payloads import LENGTH_OVERHEAD
from sphtp.core.serial import MASK

LONGEST_RUN: Final = 4096
"""Messages in a run that grows one by one, after which a new one starts: to let go of the old."""

FEWEST_PACKETS: Final = 2
"""Packets that are worth to be filled as one batch."""

LEAST_FRAGMENT: Final = 128
"""A fragment smaller than this waits for the next packet, unless it is the message's end; the
smallest packet has room for more."""

WHOLE_OVERHEAD: Final = MESSAGES_OVERHEAD + LENGTH_OVERHEAD
"""Bytes that a message costs which is alone in its frame."""

ONCE_OVERHEAD: Final = UNRELIABLE_OVERHEAD + LENGTH_OVERHEAD
"""The same, for a message that is sent once."""


class MessageRun:
    """n >= 1 whole messages that wait to be sent, in order.

    One of which something is asked, by its ticket, is alone in its run.
    """

    __slots__ = ("_cost", "_costs", "_payloads", "_taken", "_tickets", "is_alone", "is_empty",
                 "is_withdrawn")  # fmt: skip

    is_begun = False
    """True if the message next to leave has been paid for."""

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
        """True if further messages may be added."""
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
        """The messages that fill a packet, their bytes, and the packets that they can fill so.

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
        """True if all of it has been taken."""
        return self._offset == len(self._payload)

    @property
    def is_begun(self) -> bool:
        """True if a part of it has left, and with it all of it was paid for."""
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
