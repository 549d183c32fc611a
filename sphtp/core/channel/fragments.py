"""Messages larger than a packet, put together again."""

from bisect import bisect_right
from typing import NamedTuple

from sphtp.core.channel.frames import Buffer, Fragment
from sphtp.errors import RemoteError


class OversizeError(RemoteError):
    """A message is larger than ``max_message``."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a message of {size} bytes is over the limit of {limit}")


class Arriving(NamedTuple):
    """A large message of which a part has arrived."""

    lane: int
    received: int
    """Bytes of it that are here."""
    total: int
    """Bytes that it will have, as packed."""


class Reassembly:
    """The fragments of one message that have arrived. Nothing is allocated before it is here.

    Fragments are told by their offset and may overlap: a sender cuts anew when the path takes only
    smaller packets than before.
    """

    __slots__ = ("_chunks", "_starts", "size", "total")

    # What a fragment costs beside its bytes, so that a message of tiny ones is not cheap to send.
    COST = 128

    def __init__(self, total: int) -> None:
        self.total = total
        self.size = 0
        self._starts: list[int] = []
        self._chunks: list[Buffer] = []

    @property
    def held(self) -> int:
        """Memory to account for, in bytes."""
        return self.size + self.COST * len(self._chunks)

    def check(self, frame: Fragment) -> None:
        """Refuse a fragment that contradicts the earlier ones."""
        if frame.total != self.total:
            raise RemoteError(f"a message of {self.total} bytes now has {frame.total}")

    def add(self, offset: int, payload: Buffer) -> None:
        """Take in what is new of a fragment; what lies beyond the end is a liar's."""
        end = offset + len(payload)
        if offset == self.size == self._reach and offset < end <= self.total:
            # The path without loss and reordering: nothing is missing, and this comes next.
            self._starts.append(offset)
            self._chunks.append(payload)
            self.size = end
            return
        end = min(end, self.total)
        start = offset
        while start < end:
            place = bisect_right(self._starts, start)
            covered = self._end(place - 1) if place else 0
            if covered > start:
                start = covered
                continue
            stop = min(end, self._starts[place]) if place < len(self._starts) else end
            self._starts.insert(place, start)
            self._chunks.insert(place, payload[start - offset : stop - offset])
            self.size += stop - start
            start = stop

    def finish(self) -> bytes | None:
        """The whole message, or None while something is missing."""
        return b"".join(self._chunks) if self.size == self.total else None

    @property
    def _reach(self) -> int:
        """Where the last chunk ends."""
        return self._end(-1) if self._starts else 0

    def _end(self, place: int) -> int:
        return self._starts[place] + len(self._chunks[place])
