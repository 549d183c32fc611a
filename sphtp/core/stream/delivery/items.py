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
    reader the stream begins there.
    """

    __slots__ = (
        "_is_begun",
        "_leading",
        "_queue",
        "_reason",
        "_sizes",
        "delivered",
        "lost",
        "size",
    )

    def __init__(self, *, promised: bool) -> None:
        self.size = 0
        """Bytes of messages that wait for the reader."""
        self._queue = deque[Item]()
        # Of the batches in it.
        self._sizes = deque[int]()
        self._is_begun = promised
        # In order of arrival, messages may come after losses behind them.
        self._leading = RangeSet()
        self._reason = LossReason.WINDOW
        self.delivered = 0
        self.lost = 0

    def add(self, item: Batch | Loss | None) -> None:
        """Tell messages, or a loss, or nothing; adjacent losses for one reason are one."""
        if type(item) is Batch:
            self._add_batch(item)
        elif type(item) is Loss:
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
            self.size -= self._sizes.popleft()
        return item

    def _add_batch(self, batch: Batch) -> None:
        size = sum(map(len, batch.payloads))
        self.size += size
        self._sizes.append(size)
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
