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

    __slots__ = ("_is_begun", "_leading", "_queue", "_reason", "delivered", "lost")

    def __init__(self, *, promised: bool) -> None:
        self._queue = deque[Item]()
        self._is_begun = promised
        # In order of arrival, the first message may come after losses behind it.
        self._leading = RangeSet()
        self._reason = LossReason.WINDOW
        self.delivered = 0
        self.lost = 0

    def add(self, item: Batch | Loss | None) -> None:
        """Tell messages, or a loss, or nothing; adjacent losses for one reason are one."""
        if isinstance(item, Batch):
            self.delivered += len(item.payloads)
            self._queue.append(item)
            if not self._is_begun:
                self._begin(item.first)
        elif item is not None:
            self._add_loss(item)

    def end(self) -> None:
        """Tell the end."""
        self._queue.append(End())

    def poll(self) -> Item | None:
        """Return the next item; None when there is none."""
        return self._queue.popleft() if self._queue else None

    def _begin(self, number: int) -> None:
        self._is_begun = True
        for first, last in self._leading:
            if first > number:
                self._add_loss(Loss(first, last, self._reason))
        self._leading.clear()

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
