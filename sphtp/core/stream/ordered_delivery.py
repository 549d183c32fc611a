"""Ordered delivery: messages wait for missing fragments, for earlier messages, and for the reader.

Each number of a topic comes here once, as a message or as a loss. With ordered delivery, the order
map keeps early messages until all before them have come. In the order of arrival, no message waits
for others. The reader's queue then has messages, losses, and the end.
"""

from collections import deque
from typing import NamedTuple, Protocol

from sphtp.core.stream.events import Batch, Item, Loss, StreamEnd
from sphtp.core.stream.records import FragmentRecord


class ReaderQueue:
    """Items that wait for the reader."""

    __slots__ = ("_queue", "_sizes", "delivered", "lost", "size")

    def __init__(self) -> None:
        self.size = 0
        """Bytes of messages that wait for the reader."""
        self._queue = deque[Item]()
        # The size of each batch in the queue.
        self._sizes = deque[int]()
        self.delivered = 0
        self.lost = 0

    def add(self, item: Batch | Loss) -> None:
        """Add messages or a loss. Adjacent losses with one reason become one."""
        if isinstance(item, Batch):
            self._add_batch(item)
        else:
            self._add_loss(item)

    def end(self, end: StreamEnd) -> None:
        """Add the end of the stream."""
        self._queue.append(end)

    def poll(self) -> Item | None:
        """Remove and return the next item; None if no item waits."""
        if not self._queue:
            return None
        item = self._queue.popleft()
        if type(item) is Batch:
            self.size -= self._sizes.popleft()
        return item

    def _add_batch(self, batch: Batch) -> None:
        size = sum(map(len, batch.payloads))
        self.size += size
        self._sizes.append(size)
        self.delivered += len(batch.payloads)
        self._queue.append(batch)

    def _add_loss(self, loss: Loss) -> None:
        self.lost += loss.last - loss.first + 1
        self._queue.append(self._join(loss))

    def _join(self, loss: Loss) -> Loss:
        if not self._queue:
            return loss
        before = self._queue[-1]
        if type(before) is not Loss or before.reason is not loss.reason:
            return loss
        if before.last + 1 != loss.first:
            return loss
        self._queue.pop()
        return Loss(before.first, loss.last, loss.reason)


_UNKNOWN = -1


class DeliveryOrder(Protocol):
    """The order in which items go to the reader's queue: interface."""

    @property
    def count(self) -> int:
        """The number of messages and losses that wait for earlier messages."""
        ...

    @property
    def size(self) -> int:
        """Bytes of messages that wait for earlier messages."""
        ...

    def begin(self, first: int) -> None:
        """Begin delivery with the number ``first``."""
        ...

    def put(self, first: int, last: int, item: Batch | Loss) -> None:
        """Take the item of the numbers from ``first`` to ``last``."""
        ...

    def lead(self, number: int) -> int:
        """Return the distance, in numbers, of a message from the first one that others wait for."""
        ...


class ArrivalOrder:
    """The order of arrival: every item goes to the reader at once."""

    __slots__ = ("_items", "count", "size")

    def __init__(self, items: ReaderQueue) -> None:
        self._items = items
        self.count = 0
        self.size = 0

    def begin(self, first: int) -> None:
        """Do nothing: no item waits for the beginning."""

    def put(self, first: int, last: int, item: Batch | Loss) -> None:
        """Pass the item to the reader."""
        self._items.add(item)

    def lead(self, number: int) -> int:
        """Return 0, because no message waits for others."""
        return 0


class _OrderMapEntry(NamedTuple):
    last: int
    item: Batch | Loss
    messages: int
    size: int


class OrderMap:
    """The order of the numbers: items wait until all before them have come.

    ``first`` is the reference of ``lead`` before ``begin``.
    """

    __slots__ = ("_entries", "_first", "_items", "_next", "count", "size")

    def __init__(self, items: ReaderQueue, first: int) -> None:
        self._items = items
        self._first = first
        self._next = _UNKNOWN
        self._entries: dict[int, _OrderMapEntry] = {}
        self.count = 0
        self.size = 0

    def begin(self, first: int) -> None:
        """Begin delivery with the number ``first``.

        Pass the waiting items from there to the first gap on to the reader.
        """
        self._first = self._next = first
        self._release()

    def put(self, first: int, last: int, item: Batch | Loss) -> None:
        """Pass the item and those that waited for it to the reader, or keep it if it is early."""
        if first != self._next:
            self._keep(first, _entry(last, item))
            return
        self._items.add(item)
        self._next = last + 1
        if self._entries:
            self._release()

    def lead(self, number: int) -> int:
        """Return the distance of a message from the first missing one, in numbers."""
        return number - (self._first if self._next == _UNKNOWN else self._next)

    def _keep(self, first: int, entry: _OrderMapEntry) -> None:
        self._entries[first] = entry
        self.count += entry.messages
        self.size += entry.size

    def _release(self) -> None:
        while (entry := self._entries.pop(self._next, None)) is not None:
            self._items.add(entry.item)
            self._next = entry.last + 1
            self.count -= entry.messages
            self.size -= entry.size


def _entry(last: int, item: Batch | Loss) -> _OrderMapEntry:
    if isinstance(item, Batch):
        return _OrderMapEntry(last, item, len(item.payloads), sum(map(len, item.payloads)))
    return _OrderMapEntry(last, item, 1, 0)


class PartialMessage:
    """A message of ``parts`` fragments, some of which have arrived."""

    __slots__ = ("_parts", "parts", "size")

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.size = 0
        # Not a list of ``parts`` items, because a forged number could be large.
        self._parts: dict[int, bytes] = {}

    @property
    def count(self) -> int:
        """Count of fragments that have arrived."""
        return len(self._parts)

    def add(self, fragment: FragmentRecord) -> bool:
        """Take a fragment. Return False if it has arrived before."""
        if fragment.part in self._parts:
            return False
        self._parts[fragment.part] = fragment.payload
        self.size += len(fragment.payload)
        return True

    def join(self) -> bytes | None:
        """Return the whole message; None while fragments are missing."""
        if len(self._parts) < self.parts:
            return None
        return b"".join(map(self._parts.__getitem__, range(self.parts)))


class PartialMessages:
    """Reassembly: the incomplete messages of a topic, by number.

    ``count`` is the number of their fragments, ``size`` the bytes of these. A message of which one
    fragment is lost is lost as a whole.
    """

    __slots__ = ("_messages", "count", "size")

    def __init__(self) -> None:
        self._messages: dict[int, PartialMessage] = {}
        self.count = 0
        self.size = 0

    def find(self, number: int) -> PartialMessage | None:
        """Return the incomplete message with this number; None if no fragment has arrived."""
        return self._messages.get(number)

    def within(self, first: int, last: int) -> list[int]:
        """Return the numbers of the incomplete messages from ``first`` to ``last``."""
        messages = self._messages
        if last - first < len(messages):
            return [number for number in range(first, last + 1) if number in messages]
        return [number for number in messages if first <= number <= last]

    def add(self, fragment: FragmentRecord) -> PartialMessage | None:
        """Take a fragment. Return its message; None if the fragment has arrived before."""
        message = self._messages.get(fragment.first)
        if message is None:
            message = self._messages[fragment.first] = PartialMessage(fragment.parts)
        if not message.add(fragment):
            return None
        self.count += 1
        self.size += len(fragment.payload)
        return message

    def remove(self, number: int) -> None:
        """Remove a message, because it is complete or lost."""
        message = self._messages.pop(number)
        self.count -= message.count
        self.size -= message.size

    def __len__(self) -> int:
        """Return the number of incomplete messages."""
        return len(self._messages)
