"""Messages that are sent once: waiting for a packet on one side, sorted out on the other."""

from collections import deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from sphtp.core.channel.delivery import FLAG
from sphtp.core.channel.frames import UNRELIABLE_OVERHEAD, Unreliable
from sphtp.core.channel.ticket import Ticket
from sphtp.core.payloads import LENGTH_OVERHEAD
from sphtp.core.serial import unwrap, wrap

OVERHEAD: Final = UNRELIABLE_OVERHEAD + LENGTH_OVERHEAD
"""Bytes that a packet spends on such a message beside its payload."""


class UnreliableOutbox:
    """Waits for the next packet; when too many wait, the oldest, which is the stalest, goes."""

    __slots__ = ("_limit", "_next_ids", "_waiting", "dropped")

    def __init__(self, limit: int) -> None:
        self.dropped = 0
        self._limit = limit
        self._next_ids: dict[int, int] = {}
        self._waiting: deque[tuple[int, bytes, Ticket]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def push(self, lane: int, payload: bytes, ticket: Ticket) -> Ticket | None:
        """Queue a message; ``lane`` carries ``FLAG`` if overtaken ones are to be dropped.

        Return the ticket of the one that had to go for it, if any.
        """
        gone = None
        if len(self._waiting) >= self._limit:
            gone = self._waiting.popleft()[2]
            self.dropped += 1
        self._waiting.append((lane, payload, ticket))
        return gone

    def give_up(self, tickets: AbstractSet[Ticket]) -> None:
        """Let go of messages that nobody needs any more."""
        if self._waiting:
            self._waiting = deque(entry for entry in self._waiting if entry[2] not in tickets)

    def drop_over(self, size: int) -> list[Ticket]:
        """Let go of messages over ``size``, and return their tickets."""
        gone = [ticket for _, payload, ticket in self._waiting if len(payload) > size]
        self.dropped += len(gone)
        self.give_up(set(gone))
        return gone

    def fill(self, room: int) -> tuple[list[Unreliable], list[Ticket], int]:
        """Take what fits into ``room``; return frames, tickets, and the room that is left."""
        frames: list[Unreliable] = []
        tickets: list[Ticket] = []
        while self._waiting and OVERHEAD + len(self._waiting[0][1]) <= room:
            lane = self._waiting[0][0]
            payloads: list[bytes] = []
            room -= UNRELIABLE_OVERHEAD
            while self._continues(lane, room):
                _, payload, ticket = self._waiting.popleft()
                room -= LENGTH_OVERHEAD + len(payload)
                payloads.append(payload)
                tickets.append(ticket)
            # Numbers are for those that leave: what was dropped before must not use them up.
            first = self._next_ids.get(lane, 0)
            self._next_ids[lane] = first + len(payloads)
            frames.append(Unreliable(lane, wrap(first), payloads))
        return frames, tickets, room

    def _continues(self, lane: int, room: int) -> bool:
        if not self._waiting:
            return False
        next_lane, payload, _ = self._waiting[0]
        return next_lane == lane and LENGTH_OVERHEAD + len(payload) <= room


class UnreliableInbox:
    """Keeps messages until they are read; when too many are there, the oldest goes."""

    __slots__ = ("_limit", "_newest", "_ready", "dropped", "overtaken")

    def __init__(self, limit: int) -> None:
        self.dropped = 0
        self.overtaken = 0
        self._limit = limit
        self._newest: dict[int, int] = {}
        self._ready: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return sum(map(len, self._ready))

    def insert(self, frame: Unreliable) -> int:
        """Take messages in, but of a sequenced lane only those later than any before.

        Return how many had to go for them.
        """
        payloads = self._latest(frame) if frame.lane & FLAG else frame.payloads
        self._ready.extend(payloads)
        gone = max(len(self._ready) - self._limit, 0)
        for _ in range(gone):
            self._ready.popleft()
        self.dropped += gone
        return gone

    def take(self, limit: int) -> list[bytes]:
        """Take up to ``limit`` messages."""
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    def _latest(self, frame: Unreliable) -> Sequence[bytes]:
        newest = self._newest.get(frame.lane, -1)
        first = unwrap(frame.first_id, newest)
        skipped = min(max(0, newest + 1 - first), len(frame.payloads))
        self.overtaken += skipped
        self._newest[frame.lane] = max(newest, first + len(frame.payloads) - 1)
        return frame.payloads[skipped:]
