"""The transmission window: the datagrams that a source still holds for repairs.

It is bounded in bytes (of records, headers not counted) and in age. The newest datagram is never
evicted: an empty window could repair no tail.
"""

from collections import deque
from collections.abc import Sequence
from itertools import accumulate

from sphtp.core.stream.settings import OVERHEAD
from sphtp.core.stream.wire import DATA_OVERHEAD, Window


class TransmissionWindow:
    """Records of datagrams by sqn, from ``trail`` to ``lead``; sizes in bytes, ages in seconds."""

    __slots__ = (
        "_age",
        "_batches",
        "_ends",
        "_floor",
        "_limit",
        "_records",
        "lead",
        "position",
        "size",
        "trail",
    )

    def __init__(self, first: int, limit: int, age: float) -> None:
        self.lead = first - 1
        self.position = 0
        """The bytes that all datagrams so far are charged with."""
        # The position behind each datagram that is kept, and that before the first of them.
        self._ends: dict[int, int] = {}
        self._floor = 0
        self.trail = first
        self.size = 0
        self._limit = limit
        self._age = age
        self._records: dict[int, bytes] = {}
        # What left together is as old: when, and the last sqn.
        self._batches: deque[tuple[float, int]] = deque()

    @property
    def span(self) -> Window:
        """The lead and the trail, as every datagram carries them."""
        return Window(self.lead, self.trail)

    def add(self, now: float, records: Sequence[bytes]) -> int:
        """Add new datagrams under the next sqns and evict the oldest. Return the first new sqn."""
        first = self.lead + 1
        self.lead += len(records)
        self._records.update(zip(range(first, self.lead + 1), records, strict=True))
        self.size += sum(map(len, records))
        charges = (DATA_OVERHEAD + OVERHEAD + len(some) for some in records)
        ends = list(accumulate(charges, initial=self.position))[1:]
        self._ends.update(zip(range(first, self.lead + 1), ends, strict=True))
        self.position = ends[-1]
        self._batches.append((now, self.lead))
        self.expire(now)
        return first

    def position_of(self, sqn: int) -> int:
        """Return the position after a datagram; for an evicted one, that after the last evicted."""
        if sqn >= self.lead:
            return self.position
        return self._ends[sqn] if sqn >= self.trail else self._floor

    def find(self, sqn: int) -> bytes:
        """Return the records of a datagram. Raises ``KeyError`` if it is not in the window."""
        return self._records[sqn]

    def expire(self, now: float) -> None:
        """Evict the oldest, as long as there are too many bytes or they are too old."""
        trail, size, records = self.trail, self.size, self._records
        trail_by_age = self._trail_by_age(now - self._age)
        while trail < self.lead and (size > self._limit or trail < trail_by_age):
            size -= len(records.pop(trail))
            self._floor = self._ends.pop(trail)
            trail += 1
        self.trail, self.size = trail, size
        batches = self._batches
        while batches and batches[0][1] < trail:
            batches.popleft()

    def _trail_by_age(self, oldest: float) -> int:
        trail = self.trail
        for at, last in self._batches:
            if at >= oldest:
                break
            trail = last + 1
        return trail

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, sqn: int) -> bool:
        return sqn in self._records
