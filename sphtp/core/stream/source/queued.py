"""Messages that wait to leave, and the records that datagrams take of them.

Sizes are bytes, with two more for each message: so many may be written in front of it, and a queue
of empty ones has a bound, too.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from sphtp.core.payloads import LENGTH_OVERHEAD
from sphtp.core.stream.records import (
    FRAGMENT_OVERHEAD,
    RUN_OVERHEAD,
    Fragment,
    encode_fragment,
    equal_front,
    run_front,
)
from sphtp.core.stream.source.numbering import Numbered

SMALL: Final = 1024
"""Bytes of a message up to which copying it once more costs less than handling it alone."""


class QueuedRun:
    """Whole messages of a topic.

    Small ones become one piece of memory when they begin to leave, of which records are slices:
    that costs a fraction of putting together the messages of each datagram by themselves.
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

    def __init__(self, topic: int, numbered: Numbered) -> None:
        self.topic = topic
        self.next = numbered.first
        """The number of the message that leaves next."""
        self.size = _size(numbered.lengths)
        self._lengths = list(numbered.lengths)
        self._payloads = list(numbered.payloads)
        self._joined: memoryview | None = None
        self._at = 0
        # All of them are as long, or it is 0 and there are ends.
        self._length = 0
        self._ends = list[int]()

    def extend(self, topic: int, numbered: Numbered) -> bool:
        """Let more messages wait in here, if they belong here; else return False."""
        # What has begun to leave is let go of when all of it has.
        if topic != self.topic or self._at:
            return False
        self._payloads += numbered.payloads
        self._lengths += numbered.lengths
        self.size += _size(numbered.lengths)
        return True

    def pop(self, room: int) -> bytes | None:
        """Take a record of at most ``room`` bytes, as many messages as fit; None if none do."""
        if not self._at:
            self._prepare()
        room -= RUN_OVERHEAD
        return self._pop_equal(room) if self._length else self._pop_varied(room)

    def _prepare(self) -> None:
        """Look at what will leave now: it has stopped to grow, unless nothing of it fits."""
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
        # Where lengths stand before the messages, the length of all does not.
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
        """Return the messages from the one at ``at`` on that are taken: the bytes up to ``end``."""
        if self._joined is None:
            return self._payloads[at : self._at]
        return (self._joined[start:end],)


class QueuedMessage:
    """A message that no datagram holds; each of its fragments but the last fills one."""

    __slots__ = ("_part", "_parts", "_payload", "_step", "next", "size", "topic")

    def __init__(self, topic: int, numbered: Numbered, step: int) -> None:
        self.topic = topic
        self.next = numbered.first
        self._parts = numbered.parts
        self._payload = numbered.payloads[0]
        self._step = step
        self._part = 0
        self.size = _size(numbered.lengths)

    @property
    def is_begun(self) -> bool:
        """Whether some of the fragments have left."""
        return self._part > 0

    def extend(self, _topic: int, _numbered: Numbered) -> bool:
        """Nothing waits in here beside the message."""
        return False

    def pop(self, room: int) -> bytes | None:
        """Take the record of a fragment, if it has ``room``."""
        start = self._part * self._step
        piece = self._payload[start : start + self._step]
        if len(piece) + FRAGMENT_OVERHEAD > room:
            return None
        fragment = Fragment(self.topic, self.next, self._part, self._parts, piece)
        self._part += 1
        is_last = self._part == self._parts
        # A message has been sent when all of it was.
        self.next += is_last
        self.size -= self.size if is_last else len(piece)
        return encode_fragment(fragment)


def _ends(lengths: Sequence[int]) -> list[int]:
    return list(accumulate([length + LENGTH_OVERHEAD for length in lengths], initial=0))


def _size(lengths: Sequence[int]) -> int:
    return sum(lengths) + LENGTH_OVERHEAD * len(lengths)
