"""What the reader of a topic is told, in this order: messages, losses, and the end."""

from collections import deque
from typing import NamedTuple

from sphtp.core.stream.events import Batch, Loss, LossReason
from sphtp.core.stream.ranges import RangeSet


class End(NamedTuple):
    """The session is over, and all of the topic was told."""


Item = Batch | Loss | End


class Items:
    """A queue of items.

    Unless a beginning was ``promised``, losses before the first message are not told: for the
    reader the stream begins there. Messages that come while ``limit`` bytes or more wait are told
    as lost.
    """

    __slots__ = (
        "_is_begun",
        "_leading",
        "_limit",
        "_queue",
        "_reason",
        "_size",
        "delivered",
        "lost",
    )

    def __init__(self, limit: int, *, promised: bool) -> None:
        self._limit = limit
        self._size = 0
        self._queue = deque[Item]()
        self._is_begun = promised
        # In order of arrival, messages may come after losses behind them.
        self._leading = RangeSet()
        self._reason = LossReason.WINDOW
        self.delivered = 0
        self.lost = 0

    @property
    def room(self) -> int:
        """How many bytes of messages may still come."""
        return max(self._limit - self._size, 0)

    def add(self, item: Batch | Loss | None, last: int) -> None:
        """Tell messages up to the number ``last``, or a loss, or nothing.

        Adjacent losses for one reason are one.
        """
        if isinstance(item, Batch):
            self._add_batch(item, last)
        elif item is not None:
            self._add_loss(item)

    def end(self) -> None:
        """Tell the end."""
        self._queue.append(End())

    def poll(self) -> Item | None:
        """Return the next item; None when there is none."""
        if not self._queue:
            return None
        item = self._queue.popleft()
        if type(item) is Batch:
            self._size -= _size_of(item)
        return item

    def _add_batch(self, batch: Batch, last: int) -> None:
        if self._size >= self._limit:
            self._add_loss(Loss(batch.first, last, LossReason.OVERRUN))
            return
        self._size += _size_of(batch)
        self.delivered += len(batch.payloads)
        self._queue.append(batch)
        self._is_begun = True
        if self._leading and self._leading.last > batch.first:
            self._follow(batch.first)

    def _follow(self, number: int) -> None:
        """Tell the losses behind the first message by number, which need not be the first told."""
        for first, last in self._leading.discard(number, self._leading.last):
            self._add_loss(Loss(first, last, self._reason))

    def _add_loss(self, loss: Loss) -> None:
        if self._is_begun:
            self.lost += loss.last - loss.first + 1
            self._queue.append(self._join(loss))
        else:
            self._leading.add(loss.first, loss.last)
            self._reason = loss.reason

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


def _size_of(batch: Batch) -> int:
    return sum(map(len, batch.payloads))
