"""Unrecoverable loss: the messages of a topic that the transport cannot bring any more.

This module finds such messages; ``delivery`` lists the functions that make a loss final.

The transport recovers datagrams, and cannot see the messages in lost ones. But numbers of messages
and numbers of datagrams grow together: a message that is missing between two others can only be in
a datagram between theirs. So every gap in the numbers of messages has the numbers of the two
datagrams between which its messages were sent. As soon as the transport misses no datagram between
them, it cannot fill the gap any more. (Ultra Messaging waits another generation interval to detect
that.) Without traffic a timer does the same: a gap counts as unrecoverable when it is a generation
interval old.

Every number is in one of four places: not yet detected, from ``top`` on; in a gap that the
transport may still fill; wanted from the source's history; or settled, that is delivered or lost.
Each number is settled once, by transport or history, so each message is delivered at most once.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, Protocol

from sphtp.core.stream.events import GivenUp, LossReason
from sphtp.core.stream.ranges import RangeSet, Span


class MessageGap:
    """Missing messages of a topic, from ``first`` to ``last``, detected at the time ``since``.

    Only datagrams between ``after`` and ``before``, both excluded, may contain them.
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
        """The numbers of the missing messages."""
        return Span(self.first, self.last)

    def rest(self, first: int, last: int) -> "MessageGap":
        """Return a part of this gap, with the same age and reason."""
        part = MessageGap(Span(first, last), self.after, self.before, self.since)
        part.reason = self.reason
        return part


_LAST = attrgetter("last")
_BEFORE = attrgetter("before")


class MessageGaps:
    """The gaps of a topic, in the order of their numbers and of their detection."""

    __slots__ = ("_gaps",)

    def __init__(self) -> None:
        self._gaps: list[MessageGap] = []

    def open(self, gap: MessageGap) -> None:
        """Add a gap behind all others."""
        self._gaps.append(gap)

    def take(self, first: int, last: int) -> list[Span]:
        """Remove the numbers from ``first`` to ``last``. Return those that were missing."""
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
        """Split the gap that contains ``number``, so that this number has a gap of its own."""
        place, end = self._place(number, number)
        if place == end:
            return
        gap = self._gaps[place]
        spans = ((gap.first, number - 1), (number, number), (number + 1, gap.last))
        self._gaps[place:end] = [gap.rest(*span) for span in spans if span[0] <= span[1]]

    def narrow(self, first: int, last: int, sqn: int) -> None:
        """Note that the messages from ``first`` to ``last`` came in datagram ``sqn``.

        So messages below them were sent before this datagram, and those above them after it.
        """
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
        """Return the gaps that one of these datagrams may fill, or of which one is a bound."""
        found = list[MessageGap]()
        if not self._gaps or self._gaps[-1].before < first:
            return found
        for place in range(bisect_left(self._gaps, first, key=_BEFORE), len(self._gaps)):
            if self._gaps[place].after > last:
                break
            found.append(self._gaps[place])
        return found

    def within(self, first: int, last: int) -> list[Span]:
        """Return the numbers from ``first`` to ``last`` that are missing."""
        low, high = self._place(first, last)
        return [Span(max(gap.first, first), min(gap.last, last)) for gap in self._gaps[low:high]]

    @property
    def oldest(self) -> MessageGap:
        """The first gap, which is also the oldest. There must be a gap."""
        return self._gaps[0]

    def _place(self, first: int, last: int) -> tuple[int, int]:
        # Mostly the numbers are above all gaps.
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
"""Given-up ranges that are kept: messages of a gap detected later may have been in one of them."""


class MissingDatagrams(Protocol):
    """The part of ``LossMap`` used here: the datagrams that the transport tries to recover."""

    def touches(self, first: int, last: int) -> bool:
        """Return True if any datagram from ``first`` to ``last`` is missing."""
        ...


class PendingMessages:
    """The message numbers of a topic, each of which is settled once.

    ``first`` is the number of the first live message, ``sqn`` a datagram before it. Numbers below
    ``bottom`` are not missing before ``begin``, which decides which of them are wanted.
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
        """True if no message below ``top`` is missing."""
        return not self.gaps and not self.wanted

    @property
    def oldest(self) -> Span | None:
        """The lowest range of missing numbers; None if no number is missing."""
        spans = [self.gaps.oldest.span] if self.gaps else []
        spans += [next(iter(self.wanted))] if self.wanted else []
        return min(spans, default=None)

    def begin(self, first: int) -> None:
        """Mark the numbers from ``first`` to below ``bottom`` as wanted from the history."""
        if first < self.bottom:
            self.wanted.add(first, self.bottom - 1)
        self.bottom = 0

    # Arrivals

    def advance(self, top: int, sqn: int) -> None:
        """Settle the next numbers, up to ``top`` excluded, which came with datagram ``sqn``."""
        self.top = top
        self._sqn = sqn

    def take(self, now: float, first: int, last: int, sqn: int) -> list[Span]:
        """Settle the numbers that came with datagram ``sqn``. Return those that are new."""
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
        """Settle and return the numbers from ``first`` to ``last`` that are missing."""
        return sorted(self.gaps.take(first, last) + self.wanted.discard(first, last))

    def expect(self, now: float, top: int, before: int) -> None:
        """Note that all messages below ``top`` were sent, in datagrams below ``before``."""
        if top > self.top:
            self.gaps.open(MessageGap(Span(self.top, top - 1), self._sqn, before, now))
            self.top = top

    def is_missing(self, number: int) -> bool:
        """Return True if a message is missing."""
        return number in self.wanted or bool(self.gaps.within(number, number))

    def narrow(self, number: int, sqn: int) -> None:
        """Note that a fragment of the message ``number`` came with datagram ``sqn``."""
        self.gaps.isolate(number)
        self.gaps.narrow(number, number, sqn)

    def mark_settled(self, first: int, last: int) -> None:
        """Settle numbers, also those from ``top`` on."""
        self.take_known(first, last)
        self.top = max(self.top, last + 1)

    def want(self, first: int, last: int) -> None:
        """Mark numbers as wanted from the source's history, and no longer from the transport."""
        self.mark_settled(first, last)
        self.wanted.add(first, last)

    # Losses

    def handle_given_up(self, given_up: GivenUp) -> None:
        """Note that the transport has given datagrams up, for a reason."""
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

        The caller has to settle or ``want`` each gap before the next. Call this only after all
        arrived datagrams were handled: the loss map no longer contains them, so that messages in
        unhandled ones would seem lost.
        """
        for sqns in self._suspects:
            for gap in self.gaps.around(*sqns):
                if not self._missing.touches(gap.after + 1, gap.before - 1):
                    yield from self._still_missing(gap, gap.reason or self._reason_of(gap))
        self._suspects.clear()

    def expired(self, now: float, generation: float) -> Iterator[tuple[Span, LossReason]]:
        """Yield the gaps that are ``generation`` seconds old, as ``unrecoverable`` does."""
        while self.gaps and self.gaps.oldest.since + generation <= now:
            gap = self.gaps.oldest
            yield from self._still_missing(gap, gap.reason or LossReason.TIMEOUT)

    def abandoned(self) -> Iterator[tuple[Span, LossReason]]:
        """Yield all gaps at the end of the session, as ``unrecoverable`` does."""
        for gap in self.gaps:
            yield from self._still_missing(gap, gap.reason or LossReason.SESSION_END)

    def _still_missing(
        self, gap: MessageGap, reason: LossReason
    ) -> Iterator[tuple[Span, LossReason]]:
        # The caller may have settled a part of the gap since the last item.
        for missing in self.gaps.within(*gap.span):
            yield missing, reason

    def _reason_of(self, gap: MessageGap) -> LossReason:
        reasons = (past.reason for past in reversed(self._given_up) if _may_hold(past, gap))
        return next(reasons, LossReason.WINDOW)


def _may_hold(given_up: GivenUp, gap: MessageGap) -> bool:
    """Return True if given-up datagrams may have contained a message of the gap."""
    return gap.after < given_up.span.last and given_up.span.first < gap.before
