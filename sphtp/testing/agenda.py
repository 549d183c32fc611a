"""Who has to be looked after when; of many, only those whose time has come are asked."""

from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Agenda(Generic[T]):
    """One time for each, in seconds; those of one time in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._dues: dict[T, float] = {}
        self._order = count()

    def set(self, item: T, due: float | None) -> None:
        """Let the time of ``item`` be ``due``, and no other; None is never."""
        if due is None:
            self._dues.pop(item, None)
        elif self._dues.get(item) != due:
            self._dues[item] = due
            heappush(self._heap, (due, next(self._order), item))

    def next_time(self) -> float | None:
        """When the first time comes."""
        while self._heap and not self._is_meant():
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[T]:
        """Take those whose time has come; they have none from then on."""
        due = list[T]()
        while (when := self.next_time()) is not None and when <= now:
            item = heappop(self._heap)[2]
            del self._dues[item]
            due.append(item)
        return due

    def _is_meant(self) -> bool:
        due, _, item = self._heap[0]
        return self._dues.get(item) == due
