"""The numbers of messages: consecutive per topic, one each. Large ones travel in fragments."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sphtp.core.stream.records import FRAGMENT_OVERHEAD, RUN_OVERHEAD
from sphtp.errors import MessageTooLargeError


class Numbered(NamedTuple):
    """Consecutive messages of a topic from ``first`` on; a large one has several ``parts``."""

    first: int
    parts: int
    payloads: Sequence[bytes]
    lengths: Sequence[int]

    @property
    def end(self) -> int:
        """The number after the last one's."""
        return self.first + len(self.payloads)


class Numbering:
    """Gives numbers to the messages of ``topics`` topics.

    ``capacity`` is what a datagram holds, ``limit`` how large a message may be, in bytes.
    """

    def __init__(self, topics: int, capacity: int, limit: int) -> None:
        self.next = [0] * topics
        self.part = capacity - FRAGMENT_OVERHEAD
        """Bytes of each fragment but the last."""
        self._whole = capacity - RUN_OVERHEAD
        self._limit = limit

    def measure(self, payloads: Sequence[bytes]) -> list[int]:
        """Return the lengths; raises ``MessageTooLargeError`` when one is over the limit."""
        lengths = list(map(len, payloads))
        longest = max(lengths, default=0)
        if longest > self._limit:
            raise MessageTooLargeError(f"a message of {longest} bytes; allowed is {self._limit}")
        return lengths

    def number(
        self, topic: int, payloads: Sequence[bytes], lengths: Sequence[int]
    ) -> Iterator[Numbered]:
        """Number messages in order: the large ones each for itself, the others together."""
        for start, stop in self._cuts(lengths):
            parts = -(-lengths[start] // self.part) if lengths[start] > self._whole else 1
            numbered = Numbered(self.next[topic], parts, payloads[start:stop], lengths[start:stop])
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
