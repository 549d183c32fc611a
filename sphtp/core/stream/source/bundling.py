"""Bundling: messages of all topics, in the order in which they were sent, into datagrams."""

from collections import deque

from sphtp.core.stream.source.numbering import Numbered
from sphtp.core.stream.source.queued import QueuedMessage, QueuedRun


class Bundler:
    """Messages that wait; ``capacity`` is what a datagram holds, ``part`` a fragment, in bytes."""

    __slots__ = ("_capacity", "_part", "_queue", "tails", "waiting")

    def __init__(self, topics: int, capacity: int, part: int) -> None:
        self.waiting = 0
        """How much waits, in bytes and two for each message."""
        self.tails = dict.fromkeys(range(topics), 0)
        """For each topic the number after the last one that left."""
        self._capacity = capacity
        self._part = part
        self._queue: deque[QueuedRun | QueuedMessage] = deque()

    def add(self, topic: int, numbered: Numbered) -> None:
        """Let messages wait."""
        queue = self._queue
        if numbered.parts > 1:
            queue.append(QueuedMessage(topic, numbered, self._part))
            self.waiting += queue[-1].size
            return
        before = queue[-1].size if queue else 0
        if queue and queue[-1].extend(topic, numbered):
            self.waiting -= before
        else:
            queue.append(QueuedRun(topic, numbered))
        self.waiting += queue[-1].size

    def begins(self, topic: int) -> int:
        """The number of the first message of a topic of which nothing has left."""
        head = self._queue[0] if self._queue else None
        is_cut = isinstance(head, QueuedMessage) and head.topic == topic and head.is_begun
        return self.tails[topic] + is_cut

    def pop_many(self, most: int) -> list[bytes]:
        """Take the records of at most ``most`` datagrams, each as full as it gets."""
        datagrams = list[bytes]()
        while self._queue and len(datagrams) < most:
            datagrams.append(self._pop())
        return datagrams

    def _pop(self) -> bytes:
        records, room = list[bytes](), self._capacity
        while self._queue:
            head = self._queue[0]
            size = head.size
            record = head.pop(room)
            if record is None:
                break
            self.waiting -= size - head.size
            self.tails[head.topic] = head.next
            records.append(record)
            room -= len(record)
            if head.size:
                break
            self._queue.popleft()
        return records[0] if len(records) == 1 else b"".join(records)
