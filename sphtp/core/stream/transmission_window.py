"""The transmission window: the datagrams that a source still holds for repairs.

The window is bounded in bytes (of records, headers not counted) and in age. It never evicts the
newest datagram, because an empty window could repair no tail.

Session messages announce the window of a silent stream. The first one leaves a minimum interval
after the last new data; then the interval doubles up to a maximum. Repairs and NCFs do not count as
data. For a generation interval after a NAK for a datagram in the window the minimum interval holds,
because some receivers may miss the end, too. While data flows, one session message leaves in every
maximum interval.
"""

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import Final

from sphtp.core.stream.settings import OVERHEAD, StreamSettings
from sphtp.core.stream.wire import DATA_OVERHEAD, Window


class TransmissionWindow:
    """The records of each datagram, by sequence number (sqn), from ``trail`` to ``lead``.

    Sizes are in bytes, ages in seconds.
    """

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
        """The bytes charged for all datagrams so far."""
        # The position after each kept datagram, and the one before the first of them.
        self._ends: dict[int, int] = {}
        self._floor = 0
        self.trail = first
        self.size = 0
        self._limit = limit
        self._age = age
        self._records: dict[int, bytes] = {}
        # Datagrams added together have the same age: the time, and the last sqn.
        self._batches: deque[tuple[float, int]] = deque()

    @property
    def span(self) -> Window:
        """The lead and the trail."""
        return Window(self.lead, self.trail)

    def add(self, now: float, records: Sequence[bytes]) -> int:
        """Add new datagrams under the next sqns, and evict old ones. Return the first new sqn."""
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
        """Return the position after a datagram; for an evicted one, that after the last evicted.

        For a future one, return the present position.
        """
        if sqn >= self.lead:
            return self.position
        return self._ends[sqn] if sqn >= self.trail else self._floor

    def find(self, sqn: int) -> bytes:
        """Return the records of a datagram. Raises ``KeyError`` if it is not in the window."""
        return self._records[sqn]

    def expire(self, now: float) -> None:
        """Evict the oldest datagrams while there are too many bytes, or they are too old.

        The newest datagram stays.
        """
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


LAST_SESSION_MESSAGES: Final = 3
"""Session messages that announce the end of a source."""


class SessionMessageSchedule:
    """The times and the numbers of session messages. Times are in seconds."""

    __slots__ = (
        "_forced",
        "_generation",
        "_held_until",
        "_ignore",
        "_interval",
        "_last",
        "_left",
        "_max",
        "_min",
        "due",
        "number",
    )

    def __init__(self, now: float, settings: StreamSettings) -> None:
        self.due: float | None = now
        """The time of the next session message; None if there will be none."""
        self.number = 0
        """The number of the next session message."""
        self._min = settings.session_min
        self._max = settings.session_max
        self._generation = settings.generation
        self._ignore = settings.ignore
        # The interval before the session message that is due.
        self._interval = 0.0
        self._last = now
        self._held_until = -inf
        self._forced = -inf
        self._left: int | None = None

    def handle_data(self, now: float) -> None:
        """Schedule the next session message anew: new data left, which announces the window.

        It leaves after the minimum interval, and a maximum interval after the last one at the
        latest.
        """
        self._interval = self._min
        self.due = min(now + self._min, self._last + self._max)

    def handle_nak(self, now: float) -> None:
        """Keep the minimum interval for a generation interval: a receiver misses datagrams."""
        self._held_until = now + self._generation
        self._hasten(now + self._min)

    def handle_joined(self, now: float) -> None:
        """Send a session message now, because a new receiver needs the window."""
        self._interval = 0.0
        self._hasten(now)

    def handle_out_of_window(self, now: float) -> None:
        """Announce the trail, once in an ignore interval: a NAK named an evicted datagram."""
        if now - self._forced >= self._ignore:
            self._forced = now
            self._hasten(now)

    def handle_awaited(self, now: float, since: float, interval: float) -> None:
        """Request a report that is awaited since ``since``, once in every ``interval``."""
        # The wait is for reports without a request: most come within a round trip.
        self._hasten(max(self._last + interval, since + interval, now))

    def close(self, now: float) -> None:
        """Send a session message now, and then one in every minimum interval: the source closes."""
        self._held_until = inf
        self._hasten(now)

    def finish(self, now: float) -> None:
        """Send three more session messages, then no more."""
        self.close(now)
        self._left = LAST_SESSION_MESSAGES

    def poll(self, now: float) -> int | None:
        """Return the number of the session message that leaves now; None if none is due."""
        if self.due is None or now < self.due:
            return None
        number = self.number
        self.number += 1
        self._last = now
        is_held = now < self._held_until
        doubled = self._min if is_held else max(2 * self._interval, self._min)
        self._interval = min(doubled, self._max)
        self.due = now + self._interval
        if self._left is not None:
            self._left -= 1
            self.due = self.due if self._left else None
        return number

    def _hasten(self, due: float) -> None:
        if self.due is not None:
            self.due = min(self.due, due)
