"""Lists too long for one message: cut into parts, and put together when all have come."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from sphtp.core.control.fields import Part
from sphtp.core.control.records import MAX_CANDIDATES, MAX_DATA, PeerRecord
from sphtp.core.control.topics import MAX_TOPICS_SIZE, size_of_topics

T = TypeVar("T")

MAX_CHUNK = 48 * 1024
"""Bytes of parameters that one message of many is filled with at most."""

_FIXED_SIZE = 21
_CANDIDATE_SIZE = 19
_KEY_SIZE = 48

_TOPICS_FRONT = 16

MAX_RECORD_SIZE = (
    _FIXED_SIZE
    + _CANDIDATE_SIZE * MAX_CANDIDATES
    + MAX_DATA
    + _KEY_SIZE
    + _TOPICS_FRONT
    + MAX_TOPICS_SIZE
)
"""Bytes of the parameters that hold the largest record, its key and its topics."""


def divide(items: Iterable[T], size: Callable[[T], int]) -> list[tuple[T, ...]]:
    """Divide items, in their order, so that each share fits one message."""
    shares: list[tuple[T, ...]] = []
    share: list[T] = []
    total = 0
    for item in items:
        needed = size(item)
        if share and total + needed > MAX_CHUNK:
            shares.append(tuple(share))
            share, total = [], 0
        share.append(item)
        total += needed
    if share:
        shares.append(tuple(share))
    return shares


def divide_records(records: Iterable[PeerRecord]) -> list[tuple[PeerRecord, ...]]:
    """Divide records so that each share fits one message."""
    return divide(records, _record_size)


def number(shares: list[tuple[T, ...]]) -> list[tuple[Part, tuple[T, ...]]]:
    """Give each share its part; nothing at all is one empty part."""
    shares = shares or [()]
    return [(Part(index, len(shares)), share) for index, share in enumerate(shares)]


class Assembly(Generic[T]):
    """Collects the parts of one list, in order; a gap or a new first part starts over."""

    __slots__ = ("_items", "_next")

    def __init__(self) -> None:
        self._items: list[T] = []
        self._next = 0

    def add(self, part: Part, items: Iterable[T]) -> list[T] | None:
        """Return the whole list with its last part, and None before."""
        if part.index == 0:
            self._items, self._next = [], 0
        if part.index != self._next:
            return None
        self._items += items
        self._next += 1
        if self._next < part.count:
            return None
        whole, self._items, self._next = self._items, [], 0
        return whole


def _record_size(record: PeerRecord) -> int:
    key = _KEY_SIZE if record.key else 0
    topics = _TOPICS_FRONT + size_of_topics(record.topics) if record.topics else 0
    candidates = _CANDIDATE_SIZE * len(record.candidates)
    return _FIXED_SIZE + candidates + len(record.data) + key + topics
