"""Which datagrams are missing: ranges, so that a hole of a billion costs as much as one of one."""

from bisect import bisect_left, bisect_right
from operator import attrgetter

from sphtp.core.stream.ranges import Span
from sphtp.core.stream.receiver.gap_table import GapState


class Gap:
    """A range of missing datagrams that have a past in common.

    ``since`` is when it was found, ``naks`` how many NAKs have named it. ``due`` is when its timer
    rings, if it runs, or rang (seconds).
    """

    __slots__ = ("due", "first", "last", "naks", "since", "state")

    def __init__(self, first: int, last: int, since: float, state: GapState) -> None:
        self.first = first
        self.last = last
        self.since = since
        self.state = state
        self.naks = 0
        self.due = since

    @property
    def span(self) -> Span:
        """The numbers."""
        return Span(self.first, self.last)

    @property
    def size(self) -> int:
        """How many numbers."""
        return self.last - self.first + 1

    def cut(self, at: int) -> "Gap":
        """Keep what is below ``at``; return the rest, without a timer."""
        rest = Gap(at, self.last, self.since, self.state)
        rest.naks, rest.due = self.naks, self.due
        self.last = at - 1
        return rest


class LossMap:
    """The gaps, in order; those that were found later have higher numbers."""

    __slots__ = ("_firsts", "_gaps")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._gaps: list[Gap] = []

    def __len__(self) -> int:
        """How many gaps."""
        return len(self._gaps)

    @property
    def total(self) -> int:
        """How many datagrams."""
        return sum(map(attrgetter("size"), self._gaps))

    @property
    def oldest(self) -> Gap:
        """The lowest gap, which was found first; there must be one."""
        return self._gaps[0]

    def add(self, gap: Gap) -> None:
        """Put in a gap above all others."""
        self._firsts.append(gap.first)
        self._gaps.append(gap)

    def find(self, number: int) -> Gap | None:
        """Return the gap that holds ``number``."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0 or number > self._gaps[place].last:
            return None
        return self._gaps[place]

    def touches(self, first: int, last: int) -> bool:
        """Whether any number from ``first`` to ``last`` is missing."""
        place = bisect_right(self._firsts, last) - 1
        return place >= 0 and first <= last and self._gaps[place].last >= first

    def within(self, first: int, last: int) -> list[Gap]:
        """Return the gaps that begin from ``first`` to ``last``."""
        return self._gaps[bisect_left(self._firsts, first) : bisect_right(self._firsts, last)]

    def take_below(self, number: int) -> list[Gap]:
        """Take out the gaps that begin below ``number``."""
        return self.take_oldest(bisect_left(self._firsts, number))

    def take_old(self, now: float, age: float) -> list[Gap]:
        """Take out the gaps that were found ``age`` seconds ago, or earlier."""
        # As a timer counts: what rang for a gap must find it.
        return self.take_oldest(bisect_right(self._gaps, now, key=lambda gap: gap.since + age))

    def take_oldest(self, number: int) -> list[Gap]:
        """Take out so many gaps."""
        taken = self._gaps[:number]
        del self._firsts[:number], self._gaps[:number]
        return taken

    def split(self, gap: Gap, at: int) -> Gap:
        """Cut a gap in two; return the upper one, which begins with ``at``."""
        rest = gap.cut(at)
        place = bisect_left(self._firsts, at)
        self._firsts.insert(place, at)
        self._gaps.insert(place, rest)
        return rest

    def remove(self, gap: Gap) -> None:
        """Take out a gap that is in."""
        place = bisect_left(self._firsts, gap.first)
        del self._firsts[place], self._gaps[place]
