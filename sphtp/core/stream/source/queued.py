"""Messages that wait to leave, and the records that datagrams take of them.

Sizes are bytes, with two more for each message: so many may be written in front of it, and a queue
of empty ones has a bound, too.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from sphtp.core.payloads import LENGTH_OVERHEAD
from sphtp.core.stream.records import (
    FRAGMENT_OVERHEAD,
    RUN_OVERHEAD,
    Fragment,
    Run,
    encode_equal,
    encode_fragment,
    encode_run,
)
from sphtp.core.stream.source.numbering import Numbered


class QueuedRun:
    """Whole messages of a topic."""

    __slots__ = ("_at", "_ends", "_length", "_payloads", "next", "size", "topic")

    def __init__(self, topic: int, numbered: Numbered) -> None:
        self.topic = topic
        self.next = numbered.first
        """The number of the message that leaves next."""
        self._payloads = list(numbered.payloads)
        self._at = 0
        lengths = numbered.lengths
        # All of them are as long, or it is 0 and there are ends.
        is_even = lengths.count(lengths[0]) == len(lengths)
        self._length = lengths[0] if is_even else 0
        self._ends = [] if self._length else _ends(lengths)
        self.size = _size(lengths)

    def extend(self, topic: int, numbered: Numbered) -> bool:
        """Let more messages wait in here, if they belong here; else return False."""
        # What has begun to leave is let go of when all of it has.
        if topic != self.topic or self._at:
            return False
        lengths, length = numbered.lengths, self._length
        if length and lengths.count(length) != len(lengths):
            self._ends = _ends([length] * len(self._payloads))
            self._length = 0
        if not self._length:
            self._ends += _ends(lengths, self._ends[-1])[1:]
        self._payloads += numbered.payloads
        self.size += _size(lengths)
        return True

    def pop(self, room: int) -> bytes | None:
        """Take a record of at most ``room`` bytes, as many messages as fit; None if none do."""
        at, stop, number = self._at, self._stop(room), self.next
        if stop <= at:
            return None
        payloads = self._payloads[at:stop]
        self._at = stop
        self.next = number + stop - at
        if self._length:
            self.size -= (self._length + LENGTH_OVERHEAD) * (stop - at)
            return encode_equal(self.topic, number, payloads, self._length)
        self.size -= self._ends[stop] - self._ends[at]
        return encode_run(Run(self.topic, number, payloads))

    def _stop(self, room: int) -> int:
        room -= RUN_OVERHEAD
        if self._length:
            return min(self._at + room // self._length, len(self._payloads))
        # Where lengths stand before the messages, the length of all does not.
        return bisect_right(self._ends, self._ends[self._at] + room + LENGTH_OVERHEAD) - 1


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
        self.next += 1
        is_last = self._part == self._parts
        self.size -= self.size if is_last else len(piece)
        return encode_fragment(fragment)


def _ends(lengths: Sequence[int], start: int = 0) -> list[int]:
    return list(accumulate([length + LENGTH_OVERHEAD for length in lengths], initial=start))


def _size(lengths: Sequence[int]) -> int:
    return sum(lengths) + LENGTH_OVERHEAD * len(lengths)
