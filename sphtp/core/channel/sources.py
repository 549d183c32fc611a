"""What waits in a lane to be sent, and hands out what packets take of it."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from sphtp.core.channel.frames import (
    FRAGMENT_OVERHEAD,
    MAX_MESSAGES_PER_FRAME,
    MESSAGES_OVERHEAD,
    RUN_OVERHEAD,
    SKIP_OVERHEAD,
    Messages,
    Skip,
)
from sphtp.core.channel.pieces import Piece, make_fragment
from sphtp.core.channel.runs import FragmentRun
from sphtp.core.channel.ticket import Ticket
from sphtp.core.payloads import LENGTH_OVERHEAD
from sphtp.core.serial import wrap

FEWEST: Final = 2
"""Fragments that are worth to be taken as one."""


class Small:
    """Whole messages that wait to be sent, in order, and of which nothing special is asked."""

    __slots__ = ("_costs", "_payloads", "_taken", "_tickets")

    # A queue that grows by single messages starts a new one now and then, to let go of the old.
    FULL = 4096

    is_begun = False
    """Whether the message next to leave has been paid for."""
    is_withdrawn = False
    """Whether nobody wants it any more."""

    def __init__(self, payloads: Sequence[bytes] = (), sizes: Sequence[int] | None = None) -> None:
        self._payloads = list(payloads)
        # What the first n messages cost in a frame, so that how many fit is found by bisection.
        self._costs = _costs(sizes or list(map(len, self._payloads)))
        self._taken = 0
        # By place; messages sent many at a time have none.
        self._tickets: dict[int, Ticket] = {}

    @property
    def is_full(self) -> bool:
        """Whether further messages should start another one."""
        return len(self._payloads) >= self.FULL

    @property
    def is_empty(self) -> bool:
        """Whether every message has been taken."""
        return self._taken == len(self._payloads)

    @property
    def rest(self) -> list[tuple[bytes, Ticket | None]]:
        """What has not been taken."""
        places = range(self._taken, len(self._payloads))
        return [(self._payloads[at], self._tickets.get(at)) for at in places]

    def append(self, payload: bytes, ticket: Ticket | None) -> None:
        """Add a message at the end."""
        if ticket is not None:
            self._tickets[len(self._payloads)] = ticket
        self._payloads.append(payload)
        self._costs.append(self._costs[-1] + LENGTH_OVERHEAD + len(payload))

    def take(self, lane: int, first_id: int, room: int, limit: int) -> Piece | None:
        """Take as many messages as fit, at most ``limit``; None when not even one does."""
        taken, start = self._taken, self._costs[self._taken]
        end = bisect_right(self._costs, start + room - MESSAGES_OVERHEAD, taken) - 1
        end = min(end, taken + limit, taken + MAX_MESSAGES_PER_FRAME)
        count = end - taken
        if count <= 0:
            return None
        if count > RUN_OVERHEAD and self._costs[end] - start == LENGTH_OVERHEAD * count:
            # All are empty, and a packet holds no more messages than bytes.
            count, end = RUN_OVERHEAD, taken + RUN_OVERHEAD
        frame = Messages(lane, wrap(first_id), self._payloads[taken:end])
        self._taken = end
        cost = self._costs[end] - start
        size = cost - LENGTH_OVERHEAD * count
        piece = Piece(frame, first_id, size, cost + MESSAGES_OVERHEAD, count=count)
        if self._tickets:
            places = range(taken, end)
            piece.tickets = [self._tickets.pop(at) for at in places if at in self._tickets]
        return piece


class Single:
    """One whole message that is alone, or of which something is asked."""

    __slots__ = ("_payload", "is_empty", "is_withdrawn", "ticket")

    def __init__(self, payload: bytes, ticket: Ticket) -> None:
        self._payload = payload
        self.ticket = ticket
        self.is_empty = False
        self.is_withdrawn = False

    is_begun = False

    @property
    def left(self) -> int:
        """Bytes that have not been taken."""
        return 0 if self.is_empty else len(self._payload)

    def for_packets_of(self, whole: int) -> "Single | Large":
        """The same message, for packets that take ``whole`` bytes of one."""
        return self if len(self._payload) <= whole else Large(self._payload, self.ticket)

    def withdraw(self) -> None:
        """Let go of the message: it is not to leave."""
        self.is_withdrawn = True
        self._payload = b""

    def take(self, lane: int, first_id: int, room: int, _limit: int) -> Piece | None:
        """Take the message; None when it does not fit."""
        size = len(self._payload)
        frame = Messages(lane, wrap(first_id), [self._payload])
        cost = MESSAGES_OVERHEAD + LENGTH_OVERHEAD + size
        if cost > room:
            return None
        self.is_empty = True
        return Piece(frame, first_id, size, cost, tickets=(self.ticket,))


class Large:
    """One message that is sent in fragments, each as large as its packet takes."""

    __slots__ = ("_offset", "_payload", "is_withdrawn", "ticket")

    # A fragment smaller than this waits for the next packet, unless it is the message's end; the
    # smallest packet has room for more.
    LEAST = 128

    def __init__(self, payload: bytes, ticket: Ticket | None) -> None:
        self.ticket = ticket
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

    def for_packets_of(self, _whole: int) -> "Large":
        """Itself: it is cut for each packet when that leaves."""
        return self

    def withdraw(self) -> None:
        """Let go of the message, of which nothing has left: it is not to leave."""
        self.is_withdrawn = True
        self._payload = b""

    def cut_off(self, lane: int, message_id: int) -> Piece:
        """Take word that the rest of the message does not come, in place of that rest."""
        start, total = self._offset, len(self._payload)
        self._offset = total
        word = Skip(lane, wrap(message_id), total)
        piece = Piece(word, message_id, 0, SKIP_OVERHEAD, start)
        piece.charge = (0, 0)
        return piece

    def take(self, lane: int, first_id: int, room: int, _limit: int) -> Piece | None:
        """Take the next fragment; None when it does not fit."""
        start, total = self._offset, len(self._payload)
        size = min(room - FRAGMENT_OVERHEAD, total - start)
        if size < min(self.LEAST, total - start):
            return None
        tickets = (self.ticket,) if self.ticket else ()
        piece = make_fragment(lane, first_id, self._payload, start, start + size, tickets)
        self._offset = start + size
        if self.ticket is not None and not self.is_empty:
            self.ticket.parts += 1
        return piece

    def take_run(self, lane: int, first_id: int, room: int, most: int) -> FragmentRun | None:
        """Take fragments that fill up to ``most`` packets; None unless they fill two at least.

        The message's last fragment is left for ``take``: other messages may ride along with it.
        """
        length, left = room - FRAGMENT_OVERHEAD, len(self._payload) - self._offset
        number = min(most, (left - 1) // length)
        if number < FEWEST or (self.ticket and self.ticket.copies):
            return None
        tickets = (self.ticket,) if self.ticket else ()
        run = FragmentRun(lane, first_id, self._payload, self._offset, length, number, tickets)
        self._offset = run.end
        for ticket in tickets:
            ticket.parts += 1
        return run


def _costs(sizes: Sequence[int]) -> list[int]:
    """What the first n of messages cost, for each n."""
    if sizes and sizes.count(sizes[0]) == len(sizes):
        # Mostly they are of one size, and then nothing is added up.
        cost = sizes[0] + LENGTH_OVERHEAD
        return list(range(0, cost * len(sizes) + 1, cost))
    return list(accumulate(map(LENGTH_OVERHEAD.__add__, sizes), initial=0))


Source = Small | Single | Large
