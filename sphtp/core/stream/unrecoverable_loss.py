"""Unrecoverable loss: the messages of a topic that are still to come, and those lost for good.

The transport recovers datagrams, and does not know the messages in lost ones. But numbers of
messages and numbers of datagrams grow together: a message that is missing between two others can
only be in a datagram between theirs. So every gap in the numbers of messages knows the two
datagrams between which it was sent, and as soon as the transport misses none there, nothing will
fill the gap. (Ultra Messaging waits another generation interval for that.) Without traffic a timer
does the same: a gap is lost when it is a generation interval old.

Every number is in one of four places: above ``top``, not known of yet; in a gap, where the
transport still tries to get it; wanted from the source's history, because the transport has given
it up; or settled, that is delivered or lost. Each number is settled once, whether by transport or
history, so each message is delivered at most once. ``DeliveryPipeline.lose`` reports a final loss,
which nothing revokes.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, Protocol

from sphtp.core.stream.events import GivenUp, LossReason
from sphtp.core.stream.ranges import RangeSet, Span


class MessageGap:
    """Missing messages of a topic, from ``first`` to ``last``; ``since`` is a time in seconds.

    Only datagrams between ``after`` and ``before``, neither included, may hold them.
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
        """Return a part of this gap, with the same age and reason."""
        part = MessageGap(Span(first, last), self.after, self.before, self.since)
        part.reason = self.reason
        return part


_LAST = attrgetter("last")
_BEFORE = attrgetter("before")


class MessageGaps:
    """The gaps of a topic, in order; later ones are never older than earlier ones."""

    __slots__ = ("_gaps",)

    def __init__(self) -> None:
        self._gaps: list[MessageGap] = []

    def open(self, gap: MessageGap) -> None:
        """Add a gap behind all others."""
        self._gaps.append(gap)

    def take(self, first: int, last: int) -> list[Span]:
        """Remove numbers, whether they came or are lost. Return those that were missing."""
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
        """Split a gap that holds this number and others, so that it has a gap of its own."""
        place, end = self._place(number, number)
        if place == end:
            return
        gap = self._gaps[place]
        spans = ((gap.first, number - 1), (number, number), (number + 1, gap.last))
        self._gaps[place:end] = [gap.rest(*span) for span in spans if span[0] <= span[1]]

    def narrow(self, first: int, last: int, sqn: int) -> None:
        """Note that these came in datagram ``sqn``, so that those below them were sent before."""
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
        """Return those of these numbers that are missing."""
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


RECENT: Final = 64
"""The given up ranges that are remembered: a gap may come to light with the same datagram."""


class MissingDatagrams(Protocol):
    """The datagrams that the transport still tries to recover: its ``LossMap``."""

    def touches(self, first: int, last: int) -> bool:
        """Return True if any number from ``first`` to ``last`` is missing."""
        ...


class PendingMessages:
    """The numbers of a topic, each of which is settled once.

    ``first`` is the first number, ``sqn`` a datagram before it. Only ``begin`` decides which
    numbers below ``bottom`` are wanted.
    """

    __slots__ = ("_given_up", "_missing", "_sqn", "_suspects", "bottom", "gaps", "top", "wanted")

    def __init__(self, first: int, sqn: int, missing: MissingDatagrams) -> None:
        self.bottom = self.top = first
        self.gaps = MessageGaps()
        self.wanted = RangeSet()
        self._sqn = sqn
        self._missing = missing
        self._given_up = deque[GivenUp](maxlen=RECENT)
        # Datagrams that arrived or were given up: gaps around them may be unrecoverable now.
        self._suspects = list[Span]()

    @property
    def is_settled(self) -> bool:
        """True if nothing below ``top`` is still to come."""
        return not self.gaps and not self.wanted

    @property
    def oldest(self) -> Span | None:
        """The first numbers that are missing."""
        spans = [self.gaps.oldest.span] if self.gaps else []
        spans += [next(iter(self.wanted))] if self.wanted else []
        return min(spans, default=None)

    def begin(self, first: int) -> None:
        """Want the numbers from ``first`` to below ``bottom`` from the history."""
        if first < self.bottom:
            self.wanted.add(first, self.bottom - 1)
        self.bottom = 0

    # What comes

    def advance(self, top: int, sqn: int) -> None:
        """Settle all below ``top``: the next message in order came, with datagram ``sqn``."""
        self.top = top
        self._sqn = sqn

    def take(self, now: float, first: int, last: int, sqn: int) -> list[Span]:
        """Settle numbers that came with datagram ``sqn``; return those that are new."""
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
        """Settle those of the numbers that are known to be missing. Return them."""
        return sorted(self.gaps.take(first, last) + self.wanted.discard(first, last))

    def expect(self, now: float, top: int, before: int) -> None:
        """Note that all below ``top`` were sent, with datagrams below ``before``."""
        if top > self.top:
            self.gaps.open(MessageGap(Span(self.top, top - 1), self._sqn, before, now))
            self.top = top

    def is_missing(self, number: int) -> bool:
        """Return True if a number is known to be missing."""
        return number in self.wanted or bool(self.gaps.within(number, number))

    def narrow(self, number: int, sqn: int) -> None:
        """Note that a part of the message ``number`` came with datagram ``sqn``."""
        self.gaps.isolate(number)
        self.gaps.narrow(number, number, sqn)

    def mark_settled(self, first: int, last: int) -> None:
        """Settle numbers, known or not."""
        self.take_known(first, last)
        self.top = max(self.top, last + 1)

    def want(self, first: int, last: int) -> None:
        """Expect these numbers from the source's history only."""
        self.mark_settled(first, last)
        self.wanted.add(first, last)

    # What does not come

    def handle_given_up(self, given_up: GivenUp) -> None:
        """Note that the transport gave datagrams up, and the reason."""
        self._given_up.append(given_up)
        for gap in self.gaps.around(*given_up.span):
            if _may_hold(given_up, gap):
                gap.reason = given_up.reason
        self._suspects.append(given_up.span)

    def suspect(self, sqn: int) -> None:
        """Note that a datagram arrived, so that the gaps around it may be unrecoverable now."""
        if self.gaps:
            self._suspects.append(Span(sqn, sqn))

    def unrecoverable(self) -> Iterator[tuple[Span, LossReason]]:
        """Yield the gaps that the transport can no longer fill.

        Settle or want each of them at once. Call this when the transport has delivered all its
        datagrams: a datagram between the transport and this object counts as missing nowhere.
        """
        for sqns in self._suspects:
            for gap in self.gaps.around(*sqns):
                if not self._missing.touches(gap.after + 1, gap.before - 1):
                    yield from self._lost(gap, gap.reason or self._reason_of(gap))
        self._suspects.clear()

    def expired(self, now: float, generation: float) -> Iterator[tuple[Span, LossReason]]:
        """Yield the gaps that are a generation interval old, as ``unrecoverable`` does."""
        while self.gaps and self.gaps.oldest.since + generation <= now:
            gap = self.gaps.oldest
            yield from self._lost(gap, gap.reason or LossReason.TIMEOUT)

    def abandoned(self) -> Iterator[tuple[Span, LossReason]]:
        """Yield all gaps at the end of the session, as ``unrecoverable`` does."""
        for gap in self.gaps:
            yield from self._lost(gap, gap.reason or LossReason.SESSION_END)

    def _lost(self, gap: MessageGap, reason: LossReason) -> Iterator[tuple[Span, LossReason]]:
        for missing in self.gaps.within(*gap.span):
            yield missing, reason

    def _reason_of(self, gap: MessageGap) -> LossReason:
        reasons = (past.reason for past in reversed(self._given_up) if _may_hold(past, gap))
        return next(reasons, LossReason.WINDOW)


def _may_hold(given_up: GivenUp, gap: MessageGap) -> bool:
    """Return True if a message of the gap may have been in the datagrams that were given up."""
    return gap.after < given_up.span.last and given_up.span.first < gap.before
