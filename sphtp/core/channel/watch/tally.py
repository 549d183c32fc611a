"""Counters that are told apart by what they mean."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Generic, TypeVar

T = TypeVar("T")


class Tally(Generic[T]):
    """Watches counters, and says which of them moved."""

    __slots__ = ("_counters", "_meanings", "_read", "_seen")

    def __init__(self, counters: object, meanings: Mapping[str, T]) -> None:
        self._counters = counters
        self._meanings = tuple(meanings.values())
        self._read = attrgetter(*meanings)
        self._seen: tuple[int, ...] = self._read(counters)

    def news(self) -> list[T]:
        """What the counters mean that moved since this was last asked, once for each count."""
        before, self._seen = self._seen, self._read(self._counters)
        if self._seen == before:
            return []
        moved = zip(before, self._seen, self._meanings, strict=True)
        return [meaning for old, new, meaning in moved for _ in range(new - old)]
