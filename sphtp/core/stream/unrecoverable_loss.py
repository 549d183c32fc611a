"""Where messages of a topic are missing, and which datagrams can hold them.

Numbers of messages and of datagrams grow together. So what is missing between two messages can only
be in a datagram between theirs, and when the transport misses none there it is done with that gap.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter

from sphtp.core.stream.events import LossReason
from sphtp.core.stream.ranges import RangeSet, Span


class MessageGap:
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

    def rest(self, first: int, last: int) -> "MessageGap":
        """A part of this gap, as old and as hopeless."""
        part = MessageGap(Span(first, last), self.after, self.before, self.since)
        part.reason = self.reason
        return part


_LAST = attrgetter("last")
_BEFORE = attrgetter("before")


class MessageGaps:
    """The gaps of a topic, in order. Later ones are never older than earlier ones."""

    __slots__ = ("_gaps",)

    def __init__(self) -> None:
        self._gaps: list[MessageGap] = []

    def open(self, gap: MessageGap) -> None:
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

    def around(self, first: int, last: int) -> list[MessageGap]:
        """Return the gaps that datagrams from ``first`` to ``last`` fill, or stand beside."""
        found = list[MessageGap]()
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
    def oldest(self) -> MessageGap:
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

    def __iter__(self) -> Iterator[MessageGap]:
        return iter(tuple(self._gaps))

    def __len__(self) -> int:
        return len(self._gaps)


# The at-most-once gate: which messages of a topic are still to come, whichever way they take.
#
# Every number is in one of four places: above ``top``, where nobody has spoken of it; in a gap,
# where the transport still tries to get it; wanted from the source's history, because the
# transport has given it up; or settled, that is handed on or lost.


class PendingMessages:
    """Lets each number through once. ``first`` is the first one, ``sqn`` a datagram before it.

    Numbers below ``bottom`` may come or not: nobody knows yet.
    """

    __slots__ = ("_sqn", "bottom", "gaps", "top", "wanted")

    def __init__(self, first: int, sqn: int) -> None:
        self.bottom = self.top = first
        self._sqn = sqn
        self.gaps = MessageGaps()
        self.wanted = RangeSet()

    @property
    def is_settled(self) -> bool:
        """Whether nothing below ``top`` is still to come."""
        return not self.gaps and not self.wanted

    @property
    def oldest(self) -> Span | None:
        """The first numbers that are missing."""
        spans = [self.gaps.oldest.span] if self.gaps else []
        spans += [next(iter(self.wanted))] if self.wanted else []
        return min(spans, default=None)

    def begin(self, first: int) -> None:
        """Whatever is below ``bottom``, and not below ``first``, is wanted; nothing else is."""
        if first < self.bottom:
            self.wanted.add(first, self.bottom - 1)
        self.bottom = 0

    def advance(self, top: int, sqn: int) -> None:
        """Let all below ``top`` through: the next in order came, with datagram ``sqn``."""
        self.top = top
        self._sqn = sqn

    def take(self, now: float, first: int, last: int, sqn: int) -> list[Span]:
        """Let numbers through that came with datagram ``sqn``; return those that are new."""
        new = self.take_known(first, last) if first < self.top else []
        if self.gaps:
            self.gaps.narrow(first, last, sqn)
        if last >= self.top:
            if first > self.top:
                self.gaps.open(MessageGap(Span(self.top, first - 1), self._sqn, sqn, now))
            new.append(Span(max(first, self.top), last))
            self.advance(last + 1, sqn)
        return new

    def take_known(self, first: int, last: int) -> list[Span]:
        """Let numbers through that are known to be missing; return them."""
        return sorted(self.gaps.take(first, last) + self.wanted.discard(first, last))

    def expect(self, now: float, top: int, before: int) -> None:
        """All below ``top`` was sent, with datagrams below ``before``."""
        if top > self.top:
            self.gaps.open(MessageGap(Span(self.top, top - 1), self._sqn, before, now))
            self.top = top

    def is_missing(self, number: int) -> bool:
        """Whether a number is known to be missing."""
        return number in self.wanted or bool(self.gaps.within(number, number))

    def narrow(self, number: int, sqn: int) -> None:
        """Take note that a part of the message ``number`` came with datagram ``sqn``."""
        self.gaps.isolate(number)
        self.gaps.narrow(number, number, sqn)

    def settle(self, first: int, last: int) -> None:
        """Let none of these through any more."""
        self.take_known(first, last)
        self.top = max(self.top, last + 1)

    def want(self, first: int, last: int) -> None:
        """Expect these from the source's history, and from the transport no longer."""
        self.settle(first, last)
        self.wanted.add(first, last)
