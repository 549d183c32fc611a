"""Which messages are asked for: a window of what is wanted, the oldest first."""

from collections import deque

from sphtp.core.stream.fetch.wire import MOST_SPANS
from sphtp.core.stream.ranges import RangeSet, Span


class FetchWindow:
    """At most ``size`` messages of ``wanted``, each for ``timeout`` seconds since it was first in.

    What is no longer wanted has left the window, too.
    """

    __slots__ = ("_asked", "_expiries", "_size", "_timeout", "_wanted")

    def __init__(self, wanted: RangeSet, size: int, timeout: float) -> None:
        self._wanted = wanted
        self._size = size
        self._timeout = timeout
        self._asked = RangeSet()
        self._expiries = deque[tuple[float, Span]]()

    @property
    def next_due(self) -> float | None:
        """When the first of those in the window expires."""
        while self._expiries and not self._wanted.within(*self._expiries[0][1]):
            self._expiries.popleft()
        return self._expiries[0][0] if self._expiries else None

    def fill(self, now: float) -> list[Span]:
        """Return what is to be asked for now; nothing while half of the window is asked for."""
        held = [part for span in self._asked for part in self._wanted.within(*span)]
        self._asked = RangeSet(held)
        number = self._asked.total
        # Half a window at once, so that requests are not as many as messages.
        if 2 * number > self._size:
            return []
        spans = self._choose(self._size - number)
        for span in spans:
            self._asked.add(*span)
            self._expiries.append((now + self._timeout, span))
        return spans

    def expire(self, now: float) -> list[Span]:
        """Return what was asked for too long ago."""
        expired = list[Span]()
        while (due := self.next_due) is not None and due <= now:
            expired.append(self._expiries.popleft()[1])
        return expired

    def open(self) -> None:
        """Take nothing as asked for; what was keeps its age."""
        self._asked.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._asked.clear()
        self._expiries.clear()

    def _choose(self, room: int) -> list[Span]:
        spans = list[Span]()
        for wanted in self._wanted:
            for first, last in self._asked.without(*wanted):
                spans.append(Span(first, min(last, first + room - 1)))
                room -= spans[-1].size
                if not room or len(spans) == MOST_SPANS:
                    return spans
        return spans
