"""The order in which a topic is told: that of its numbers, or that of arrival."""

from typing import NamedTuple, Protocol

from sphtp.core.stream.delivery.items import Items
from sphtp.core.stream.events import Batch, Loss

_UNKNOWN = -1


class Order(Protocol):
    """Brings what the gate let through in order, and tells it."""

    @property
    def count(self) -> int:
        """Messages and losses that wait for something before them."""
        ...

    @property
    def size(self) -> int:
        """Bytes of messages that wait."""
        ...

    def begin(self, first: int) -> None:
        """The first that will be told is ``first``."""
        ...

    def put(self, first: int, last: int, item: Batch | Loss | None) -> None:
        """Take the numbers from ``first`` to ``last``, none of which came before.

        None stands for numbers that nobody is to be told of.
        """
        ...

    def lead(self, number: int) -> int:
        """How far a message would be ahead of the one that all wait for."""
        ...


class ArrivalOrder:
    """Everything is told at once."""

    __slots__ = ("_items", "count", "size")

    def __init__(self, items: Items) -> None:
        self._items = items
        self.count = 0
        self.size = 0

    def begin(self, first: int) -> None:
        """Nothing waits for a beginning."""

    def put(self, first: int, last: int, item: Batch | Loss | None) -> None:
        """Tell it."""
        self._items.add(item)

    def lead(self, number: int) -> int:
        """Nothing is ever ahead."""
        return 0


class _Entry(NamedTuple):
    last: int
    item: Batch | Loss | None
    messages: int
    size: int


class OrderMap:
    """Keeps what came before its turn. ``first`` is the lowest number known before ``begin``."""

    __slots__ = ("_entries", "_first", "_items", "_next", "count", "size")

    def __init__(self, items: Items, first: int) -> None:
        self._items = items
        self._first = first
        self._next = _UNKNOWN
        self._entries: dict[int, _Entry] = {}
        self.count = 0
        self.size = 0

    def begin(self, first: int) -> None:
        """Tell what there is from ``first`` on."""
        self._first = self._next = first
        self._release()

    def put(self, first: int, last: int, item: Batch | Loss | None) -> None:
        """Tell it, and what it was in the way of; or keep it."""
        if first != self._next:
            self._keep(first, _entry(last, item))
            return
        self._items.add(item)
        self._next = last + 1
        if self._entries:
            self._release()

    def lead(self, number: int) -> int:
        """How far a message would be ahead of the one that all wait for."""
        return number - (self._first if self._next == _UNKNOWN else self._next)

    def _keep(self, first: int, entry: _Entry) -> None:
        self._entries[first] = entry
        self.count += entry.messages
        self.size += entry.size

    def _release(self) -> None:
        while (entry := self._entries.pop(self._next, None)) is not None:
            self._items.add(entry.item)
            self._next = entry.last + 1
            self.count -= entry.messages
            self.size -= entry.size


def _entry(last: int, item: Batch | Loss | None) -> _Entry:
    if isinstance(item, Batch):
        return _Entry(last, item, len(item.payloads), sum(map(len, item.payloads)))
    return _Entry(last, item, 1, 0)
