"""Sets of numbers as ranges: a gap of a million costs as much as a gap of one."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """The numbers from ``first`` to ``last``, both included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """Count of the numbers."""
        return self.last - self.first + 1


class RangeSet:
    """A set of numbers, kept as ordered spans that neither touch nor overlap."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for span in spans:
            self.add(*span)

    def add(self, first: int, last: int) -> None:
        """Add the numbers from ``first`` to ``last``."""
        # Spans that touch are joined, too.
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]

    def discard(self, first: int, last: int) -> list[Span]:
        """Remove the numbers from ``first`` to ``last``. Return the spans of removed numbers."""
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last)
        if low >= high:
            return []
        taken = [
            Span(max(a, first), min(b, last))
            for a, b in zip(self._firsts[low:high], self._lasts[low:high], strict=True)
        ]
        before = Span(self._firsts[low], first - 1)
        after = Span(last + 1, self._lasts[high - 1])
        left = [span for span in (before, after) if span.size > 0]
        self._firsts[low:high] = [span.first for span in left]
        self._lasts[low:high] = [span.last for span in left]
        return taken

    def clear(self) -> None:
        """Remove all numbers."""
        self._firsts.clear()
        self._lasts.clear()

    def within(self, first: int, last: int) -> list[Span]:
        """Return the spans of numbers from ``first`` to ``last`` that are in the set."""
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last)
        return [
            Span(max(a, first), min(b, last))
            for a, b in zip(self._firsts[low:high], self._lasts[low:high], strict=True)
        ]

    def without(self, first: int, last: int) -> list[Span]:
        """Return the spans of numbers from ``first`` to ``last`` that are not in the set."""
        missing, at = list[Span](), first
        for span in self.within(first, last):
            if at < span.first:
                missing.append(Span(at, span.first - 1))
            at = span.last + 1
        if at <= last:
            missing.append(Span(at, last))
        return missing

    @property
    def total(self) -> int:
        """Count of the numbers."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    @property
    def first(self) -> int:
        """The lowest number. The set must not be empty."""
        return self._firsts[0]

    @property
    def last(self) -> int:
        """The highest number. The set must not be empty."""
        return self._lasts[-1]

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._firsts, number) - 1
        return place >= 0 and number <= self._lasts[place]

    def __iter__(self) -> Iterator[Span]:
        return map(Span, self._firsts, self._lasts)

    def __len__(self) -> int:
        """Return the number of spans."""
        return len(self._firsts)
