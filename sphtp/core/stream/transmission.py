"""Transmission of new data: numbering, bundling into datagrams, and sending within the limits.

The messages of a topic have consecutive numbers; a message that is too large for a datagram travels
in fragments, which share its number. Messages of all topics wait in one queue, in the order in
which they were sent. Bundling (implicit batching) fills each datagram with as many waiting messages
as fit. Datagrams leave no faster than the data rate (``rate_limit``) and no further ahead than the
slowest receiver allows (``flow_control``). They are then kept in the transmission window.

Sizes are in bytes. Each waiting message counts two bytes more, because a datagram may contain a
length of two bytes for each message. So a queue of empty messages has a bound, too.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from sys import maxsize
from typing import Final, NamedTuple

from sphtp.core.stream.flow_control import FlowControl
from sphtp.core.stream.rate_limit import RateLimit
from sphtp.core.stream.records import (
    FRAGMENT_OVERHEAD,
    RUN_OVERHEAD,
    FragmentRecord,
    encode_fragment,
    equal_front,
    run_front,
)
from sphtp.core.stream.settings import MEBIBYTE, OVERHEAD
from sphtp.core.stream.statistics import SourceCounters
from sphtp.core.stream.transmission_window import TransmissionWindow
from sphtp.core.stream.wire import encode_new
from sphtp.core.token_bucket import Pacer
from sphtp.core.wire import LENGTH_OVERHEAD
from sphtp.errors import MessageTooLargeError


class NumberedMessages(NamedTuple):
    """Consecutive messages of a topic from ``first`` on; or one, if it has several ``parts``."""

    first: int
    parts: int
    payloads: Sequence[bytes]
    lengths: Sequence[int]

    @property
    def end(self) -> int:
        """The number after the last message."""
        return self.first + len(self.payloads)


class MessageNumberer:
    """The numbering of the messages of ``topics`` topics.

    A datagram holds ``capacity`` bytes of records. The largest message has ``limit`` bytes.
    """

    def __init__(self, topics: int, capacity: int, limit: int) -> None:
        self.next = [0] * topics
        self.part = capacity - FRAGMENT_OVERHEAD
        """Bytes of each fragment of a message but the last."""
        self._whole = capacity - RUN_OVERHEAD
        self._limit = limit

    def measure(self, payloads: Sequence[bytes]) -> list[int]:
        """Return the lengths of messages. Raises ``MessageTooLargeError`` if one is too large."""
        lengths = list(map(len, payloads))
        longest = max(lengths, default=0)
        if longest > self._limit:
            raise MessageTooLargeError(f"a message of {longest} bytes; allowed is {self._limit}")
        return lengths

    def number(
        self, topic: int, payloads: Sequence[bytes], lengths: Sequence[int]
    ) -> Iterator[NumberedMessages]:
        """Number messages in order, and yield them in groups; each large message is a group."""
        for start, stop in self._cuts(lengths):
            parts = -(-lengths[start] // self.part) if lengths[start] > self._whole else 1
            numbered = NumberedMessages(
                self.next[topic], parts, payloads[start:stop], lengths[start:stop]
            )
            self.next[topic] = numbered.end
            yield numbered

    def _cuts(self, lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
        start = 0
        if max(lengths, default=0) > self._whole:
            for at, length in enumerate(lengths):
                if length > self._whole:
                    if start < at:
                        yield start, at
                    yield at, at + 1
                    start = at + 1
        if start < len(lengths):
            yield start, len(lengths)


SMALL: Final = 1024
"""The mean size of messages up to which joining them all costs less than handling each alone."""


class QueuedRun:
    """Consecutive whole messages of a topic that wait.

    When the first of them leaves, small messages are joined into one buffer, and each record gets a
    slice of it. That costs a fraction of joining the messages of each datagram separately.
    """

    __slots__ = (
        "_at",
        "_ends",
        "_joined",
        "_length",
        "_lengths",
        "_payloads",
        "next",
        "size",
        "topic",
    )

    def __init__(self, topic: int, numbered: NumberedMessages) -> None:
        self.topic = topic
        self.next = numbered.first
        """The number of the message that leaves next."""
        self.size = _size(numbered.lengths)
        self._lengths = list(numbered.lengths)
        self._payloads = list(numbered.payloads)
        self._joined: memoryview | None = None
        self._at = 0
        # The length of every message; 0 if they differ or are empty, and then ``_ends`` is set.
        self._length = 0
        self._ends = list[int]()

    def extend(self, topic: int, numbered: NumberedMessages) -> bool:
        """Add more messages of the same topic. Return False if that is not possible."""
        # A run that has begun to leave takes no more, so that its memory is freed soon.
        if topic != self.topic or self._at:
            return False
        self._payloads += numbered.payloads
        self._lengths += numbered.lengths
        self.size += _size(numbered.lengths)
        return True

    def pop(self, room: int) -> bytes | None:
        """Remove and return a record of at most ``room`` bytes; None if no message fits."""
        if not self._at:
            self._prepare()
        room -= RUN_OVERHEAD
        return self._pop_equal(room) if self._length else self._pop_varied(room)

    def _prepare(self) -> None:
        """Compute lengths and buffer before the first message leaves."""
        lengths = self._lengths
        is_even = lengths.count(lengths[0]) == len(lengths)
        self._length = lengths[0] if is_even else 0
        self._ends = [] if self._length else _ends(lengths)
        is_small = self.size <= SMALL * len(lengths)
        self._joined = memoryview(b"".join(self._payloads)) if is_small else None

    def _pop_equal(self, room: int) -> bytes | None:
        at, number, length = self._at, self.next, self._length
        count = min(room // length, len(self._lengths) - at)
        if count <= 0:
            return None
        self._at = at + count
        self.next = number + count
        self.size -= (length + LENGTH_OVERHEAD) * count
        front = equal_front(self.topic, number, count, length)
        return b"".join((front, *self._pieces(at, at * length, (at + count) * length)))

    def _pop_varied(self, room: int) -> bytes | None:
        at, number, ends = self._at, self.next, self._ends
        # A VARIED record lacks the common length, and so has room for two bytes more.
        stop = bisect_right(ends, ends[at] + room + LENGTH_OVERHEAD) - 1
        if stop <= at:
            return None
        self._at = stop
        self.next = number + stop - at
        self.size -= ends[stop] - ends[at]
        front = run_front(self.topic, number, self._lengths[at:stop])
        start, end = (ends[place] - LENGTH_OVERHEAD * place for place in (at, stop))
        return b"".join((front, *self._pieces(at, start, end)))

    def _pieces(self, at: int, start: int, end: int) -> Sequence[bytes | memoryview]:
        """Return the pieces of the messages from the one at ``at`` on, up to the byte ``end``."""
        if self._joined is None:
            return self._payloads[at : self._at]
        return (self._joined[start:end],)


class QueuedMessage:
    """A waiting message that is too large for a datagram. Each fragment but the last fills one."""

    __slots__ = ("_part", "_parts", "_payload", "_step", "next", "size", "topic")

    def __init__(self, topic: int, numbered: NumberedMessages, step: int) -> None:
        self.topic = topic
        self.next = numbered.first
        self._parts = numbered.parts
        self._payload = numbered.payloads[0]
        self._step = step
        self._part = 0
        self.size = _size(numbered.lengths)

    @property
    def is_begun(self) -> bool:
        """True if some of the fragments have left."""
        return self._part > 0

    def extend(self, _topic: int, _numbered: NumberedMessages) -> bool:
        """Return False: other messages are never added to a large one."""
        return False

    def pop(self, room: int) -> bytes | None:
        """Remove and return the record of a fragment; None if ``room`` is too small for it."""
        start = self._part * self._step
        piece = self._payload[start : start + self._step]
        if len(piece) + FRAGMENT_OVERHEAD > room:
            return None
        fragment = FragmentRecord(self.topic, self.next, self._part, self._parts, piece)
        self._part += 1
        is_last = self._part == self._parts
        # The message counts as sent when its last fragment has left.
        self.next += is_last
        self.size -= self.size if is_last else len(piece)
        return encode_fragment(fragment)


def _ends(lengths: Sequence[int]) -> list[int]:
    return list(accumulate([length + LENGTH_OVERHEAD for length in lengths], initial=0))


def _size(lengths: Sequence[int]) -> int:
    return sum(lengths) + LENGTH_OVERHEAD * len(lengths)


class PendingBodies:
    """The queue of waiting messages of all topics.

    A datagram holds ``capacity`` bytes of records, a fragment ``part`` bytes of a message.
    """

    __slots__ = ("_capacity", "_part", "_queue", "tails", "waiting")

    def __init__(self, topics: int, capacity: int, part: int) -> None:
        self.waiting = 0
        """Bytes of the waiting messages, and two more for each message."""
        self.tails = dict.fromkeys(range(topics), 0)
        """For each topic, the number after the last message that left."""
        self._capacity = capacity
        self._part = part
        self._queue: deque[QueuedRun | QueuedMessage] = deque()

    def add(self, topic: int, numbered: NumberedMessages) -> None:
        """Add messages of a topic."""
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
        """Return the number of the first message of a topic of which nothing has left."""
        head = self._queue[0] if self._queue else None
        is_cut = isinstance(head, QueuedMessage) and head.topic == topic and head.is_begun
        return self.tails[topic] + is_cut

    def pop_many(self, most: int) -> list[bytes]:
        """Remove and return the records of at most ``most`` datagrams, each as full as possible."""
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


MOST_WAITING: Final = MEBIBYTE
"""Bytes of waiting messages from which on a source takes no more. The last ones may exceed it."""

WORTH_WAKING: Final = MOST_WAITING // 4
"""Bytes that must be free before a sender is woken, because waking costs as much as a message."""

LATE: Final = 0.01
"""Seconds by which a program may wake late without losing its data rate, on a path with a
``bandwidth_delay`` (Ultra Messaging's rate interval).

On a shorter path, such a burst would overflow a queue: at 90 % of 100 Mbit/s with a queue of 64 KB,
7 % of the datagrams were lost.
"""


class Transmission:
    """The transmission of datagrams of up to ``size`` bytes, within rate limit and flow control.

    ``is_long`` is true for a path with a ``bandwidth_delay``.
    """

    def __init__(
        self,
        size: int,
        rate_limit: RateLimit,
        pending_bodies: PendingBodies,
        window: TransmissionWindow,
        flow: FlowControl,
        counters: SourceCounters,
        *,
        is_long: bool,
    ) -> None:
        self.ready: float | None = None
        """The time at which the next datagram may leave; None if none waits, or receivers block it.
        """
        self._pending_bodies = pending_bodies
        self._window = window
        self._counters = counters
        self._size = size
        self._rate_limit = rate_limit
        self._pacer = Pacer.for_datagrams(size, rate_limit.data_rate(0.0))
        if is_long:
            self._pacer.hold = LATE
        self._flow = flow

    @property
    def waiting(self) -> int:
        """Bytes of the waiting messages, and two more for each message."""
        return self._pending_bodies.waiting

    @property
    def room(self) -> int:
        """Bytes of messages that may still be added."""
        return max(MOST_WAITING - self._pending_bodies.waiting, 0)

    def add(self, now: float, topic: int, numbered: NumberedMessages) -> None:
        """Add messages of a topic behind those that wait."""
        self._pending_bodies.add(topic, numbered)
        if self.ready is None:
            self.update(now)

    def poll(self, now: float, most: int) -> list[bytes]:
        """Remove and return the bodies of datagrams that may leave now, ``most`` at most."""
        # The pacer, too, lets a datagram leave that lacks a fraction of a byte.
        paid = (self._pacer.budget(now, self._rate_limit.data_rate(now)) + 1) // self._size
        bodies = self._send(now, min(most, paid, self._allowed()))
        self.update(now)
        return bodies

    def update(self, now: float) -> None:
        """Update ``ready``, also after receivers have reported progress."""
        if not self._pending_bodies.waiting:
            self.ready = None
        elif self._allowed() > 0:
            self.ready = self._pacer.ready_at(now, self._size, self._rate_limit.data_rate(now))
        else:
            self._flow.handle_blocked(now)
            self._rate_limit.handle_data(now, 0, waits=True)
            self.ready = None

    def _allowed(self) -> int:
        """Return the number of datagrams of full size that the receivers can take."""
        limit = self._flow.limit
        if limit is None:
            return maxsize
        return max(limit - self._window.position, 0) // (self._size + OVERHEAD)

    def _send(self, now: float, most: int) -> list[bytes]:
        datagrams = self._pending_bodies.pop_many(most)
        if not datagrams:
            return []
        first = self._window.add(now, datagrams)
        bodies = encode_new(first, self._window.trail, datagrams)
        size = sum(map(len, bodies))
        self._pacer.sent(now, size, self._rate_limit.data_rate(now))
        self._rate_limit.handle_data(now, size, waits=self._pending_bodies.waiting > 0)
        self._flow.handle_sent(now)
        self._counters.datagrams_sent += len(bodies)
        self._counters.bytes_sent += size
        return bodies
