"""The at-most-once gate: which messages of a topic are still to come, whichever way they take.

Every number is in one of four places: above ``top``, where nobody has spoken of it; in a gap, where
the transport still tries to get it; wanted from the source's history, because the transport has
given it up; or settled, that is handed on or lost.
"""

from sphtp.core.stream.delivery.gaps import Gap, Gaps
from sphtp.core.stream.ranges import RangeSet, Span


class Gate:
    """Lets each number through once. ``first`` is the first one, ``sqn`` a datagram before it.

    Numbers below ``bottom`` may come or not: nobody knows yet.
    """

    __slots__ = ("_sqn", "bottom", "gaps", "top", "wanted")

    def __init__(self, first: int, sqn: int) -> None:
        self.bottom = self.top = first
        self._sqn = sqn
        self.gaps = Gaps()
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
                self.gaps.open(Gap(Span(self.top, first - 1), self._sqn, sqn, now))
            new.append(Span(max(first, self.top), last))
            self.advance(last + 1, sqn)
        return new

    def take_known(self, first: int, last: int) -> list[Span]:
        """Let numbers through that are known to be missing; return them."""
        return sorted(self.gaps.take(first, last) + self.wanted.discard(first, last))

    def expect(self, now: float, top: int, before: int) -> None:
        """All below ``top`` was sent, with datagrams below ``before``."""
        if top > self.top:
            self.gaps.open(Gap(Span(self.top, top - 1), self._sqn, before, now))
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
