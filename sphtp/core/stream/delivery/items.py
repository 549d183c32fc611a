"""What the reader of a topic is told, in this order: messages, losses, and the end."""

from collections import deque

from sphtp.core.stream.events import Batch, Loss, StreamEnd

Item = Batch | Loss | StreamEnd


class Items:
    """A queue of items."""

    __slots__ = ("_queue", "_sizes", "delivered", "lost", "size")

    def __init__(self) -> None:
        self.size = 0
        """Bytes of messages that wait for the reader."""
        self._queue = deque[Item]()
        # Of the batches in it.
        self._sizes = deque[int]()
        self.delivered = 0
        self.lost = 0

    def add(self, item: Batch | Loss | None) -> None:
        """Tell messages, or a loss, or nothing; adjacent losses for one reason are one."""
        if type(item) is Batch:
            self._add_batch(item)
        elif type(item) is Loss:
            self._add_loss(item)

    def end(self, end: StreamEnd) -> None:
        """Tell the end."""
        self._queue.append(end)

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
