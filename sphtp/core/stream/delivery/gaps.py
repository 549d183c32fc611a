"""Where messages of a topic are missing, and which datagrams can hold them.

Numbers of messages and of datagrams grow together. So what is missing between two messages can only
be in a datagram between theirs, and when the transport misses none there it is done with that gap.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter

from sphtp.core.stream.events import LossReason
from sphtp.core.stream.ranges import Span


class Gap:
    """The messages from ``first`` to ``last``, missing ``since`` then (seconds).

    The datagrams that may hold them are those between ``after`` and ``before``, neither included.
    """

    __slots__ = ("after", "before", "first", "last", "reason", "since")

    def __init__(self, span: Span, after: int, before: int, since: float) -> None:
        self.first, self.last = span
        self.after = after
        self.before = before
        self.since = since
        self.reason: LossReason | None = None

    @property
    def span(self) -> Span:
        """The messages."""
        return Span(self.first, self.last)

    def rest(self, first: int, last: int) -> "Gap":
        """A part of this gap, as old and as hopeless."""
        part = Gap(Span(first, last), self.after, self.before, self.since)
        part.reason = self.reason
        return part


_LAST = attrgetter("last")
_BEFORE = attrgetter("before")


class Gaps:
    """The gaps of a topic, in order. Later ones are never older than earlier ones."""

    __slots__ = ("_gaps",)

    def __init__(self) -> None:
        self._gaps: list[Gap] = []

    def open(self, gap: Gap) -> None:
        """Add a gap behind all others."""
        self._gaps.append(gap)

    def take(self, first: int, last: int) -> list[Span]:
        """Take numbers out, whether they came or are lost; return those that were missing."""
        low, high = self._place(first, last)
        if low == high:
            return []
        touched = self._gaps[low:high]
        left = []
        if touched[0].first < first:
            left.append(touched[0].rest(touched[0].first, first - 1))
        if touched[-1].last > last:
            left.append(touched[-1].rest(last + 1, touched[-1].last))
        self._gaps[low:high] = left
        return [Span(max(gap.first, first), min(gap.last, last)) for gap in touched]

    def isolate(self, number: int) -> None:
        """Cut a gap that holds this number and others, so that it is alone in one."""
        place, end = self._place(number, number)
        if place == end:
            return
        gap = self._gaps[place]
        spans = ((gap.first, number - 1), (number, number), (number + 1, gap.last))
        self._gaps[place:end] = [gap.rest(*span) for span in spans if span[0] <= span[1]]

    def narrow(self, first: int, last: int, sqn: int) -> None:
        """These messages came in datagram ``sqn``: what is before them was sent before."""
        gaps = self._gaps
        low, high = self._place(first, last)
        for place in range(low - 1, -1, -1):
            if gaps[place].before <= sqn:
                break
            gaps[place].before = sqn
        for place in range(high, len(gaps)):
            if gaps[place].after >= sqn:
                break
            gaps[place].after = sqn

    def around(self, first: int, last: int) -> list[Gap]:
        """Return the gaps that datagrams from ``first`` to ``last`` fill, or stand beside."""
        found = list[Gap]()
        if not self._gaps or self._gaps[-1].before < first:
            return found
        for place in range(bisect_left(self._gaps, first, key=_BEFORE), len(self._gaps)):
            if self._gaps[place].after > last:
                break
            found.append(self._gaps[place])
        return found

    def within(self, first: int, last: int) -> list[Span]:
        """Return which of these numbers are missing."""
        low, high = self._place(first, last)
        return [Span(max(gap.first, first), min(gap.last, last)) for gap in self._gaps[low:high]]

    @property
    def oldest(self) -> Gap:
        """The first gap, which is also the oldest; there must be one."""
        return self._gaps[0]

    def _place(self, first: int, last: int) -> tuple[int, int]:
        # What comes is most often behind everything that is missing.
        if not self._gaps or self._gaps[-1].last < first:
            return len(self._gaps), len(self._gaps)
        low = high = bisect_left(self._gaps, first, key=_LAST)
        while high < len(self._gaps) and self._gaps[high].first <= last:
            high += 1
        return low, high

    def __iter__(self) -> Iterator[Gap]:
        return iter(tuple(self._gaps))

    def __len__(self) -> int:
        return len(self._gaps)
