"""Who is due when, for many: a heap whose stale entries are skipped."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

INFINITY = float("inf")

# Stale entries that are not worth a rebuild.
SLACK = 64


class Agenda:
    """Keeps one time per key; setting and asking cost the logarithm of how many there are.

    A time that moves away, as it does with every packet of a busy channel, changes nothing: the key
    is taken at its old time, and whoever takes it sets it anew.
    """

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def set(self, key: int, when: float | None) -> None:
        """Set, move or, with None, remove a key's time."""
        if when is None:
            self._due.pop(key, None)
        elif when < self._due.get(key, INFINITY):
            self._due[key] = when
            heappush(self._heap, (when, key))
            self._compact()

    def next(self) -> float | None:
        """The earliest time, or None."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> Iterator[int]:
        """Remove and yield the keys whose time has come."""
        while (when := self.next()) is not None and when <= now:
            _, key = heappop(self._heap)
            del self._due[key]
            yield key

    def _compact(self) -> None:
        """Drop the stale entries, once they are the most."""
        if len(self._heap) > SLACK + 2 * len(self._due):
            self._heap = [(when, key) for key, when in self._due.items()]
            heapify(self._heap)
