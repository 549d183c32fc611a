"""Reassembly of messages that are larger than one packet."""

from bisect import bisect_right
from typing import Final, NamedTuple

from sphtp.core.channel.frames import Buffer, Fragment
from sphtp.errors import RemoteError


class OversizeError(RemoteError):
    """The error for a message of ``size`` bytes, which is larger than ``max_message``."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a message of {size} bytes is over the limit of {limit}")


class MessageProgress(NamedTuple):
    """The progress of a large message of which only some fragments have arrived."""

    lane: int
    received: int
    """Bytes that have arrived so far."""
    total: int
    """Bytes of the whole message, as it was packed by the sender."""


class Reassembly:
    """The fragments of one message. Memory is used only for bytes that have arrived.

    Fragments are identified by their offset and may overlap: a sender cuts a message again when the
    path suddenly takes only smaller packets. The new bytes of each are kept as they arrived, in
    order of offset, and all are joined when the message is complete. Neighbours are joined before,
    now and then, so that there are few pieces: two or so for each gap, and one for each ``JOINED``
    bytes. So memory is little more than the bytes received, and each fragment takes about the same
    time in any order, even at one byte each.
    """

    __slots__ = ("_chunks", "_most", "_starts", "islands", "size", "total")

    JOINED: Final = 1024
    FEW: Final = 4

    def __init__(self, total: int) -> None:
        self.total = total
        self.size = 0
        # The number of contiguous parts that have arrived.
        self.islands = 0
        self._starts: list[int] = []
        self._chunks: list[Buffer] = []
        # Neighbours are joined when there are more pieces than this and one for each ``JOINED``
        # bytes. A join copies all bytes, so it must be rare.
        self._most = self.FEW

    @property
    def gaps(self) -> int:
        """The number of gaps between the parts that have arrived."""
        return max(self.islands - 1, 0)

    def check(self, frame: Fragment) -> None:
        """Raise ``RemoteError`` if a fragment has another total size than the earlier ones."""
        if frame.total != self.total:
            raise RemoteError(f"a message of {self.total} bytes now has {frame.total}")

    def is_apart(self, frame: Fragment) -> bool:
        """Return True if a fragment touches no part that has arrived, so that it adds a gap."""
        start, end = frame.offset, frame.offset + len(frame.payload)
        place = bisect_right(self._starts, end)
        return not place or self._end(place - 1) < start

    def add(self, offset: int, payload: Buffer) -> int:
        """Store the new bytes of a fragment; ignore any beyond the end of the message.

        Return the change in the number of gaps, which may be negative.
        """
        starts, end, more = self._starts, offset + len(payload), 0
        is_without_gap = not starts or (self.islands == 1 and not starts[0])
        if is_without_gap and offset == self.size and offset < end <= self.total:
            # The path without loss and reordering: no gap, and this is the next fragment.
            starts.append(offset)
            self._chunks.append(payload)
            self.size = end
            self.islands = 1
        else:
            more = -self.gaps
            self._fill_in(offset, min(end, self.total), payload)
            more += self.gaps
        if len(self._chunks) > self._most + self.size // self.JOINED:
            self._join()
        return more

    def finish(self) -> bytes | None:
        """Return the whole message; None while a part is missing."""
        return b"".join(self._chunks) if self.size == self.total else None

    def _fill_in(self, offset: int, end: int, payload: Buffer) -> None:
        start = offset
        while start < end:
            place = bisect_right(self._starts, start)
            covered = self._end(place - 1) if place else -1
            if covered > start:
                start = covered
                continue
            has_next = place < len(self._starts)
            stop = min(end, self._starts[place]) if has_next else end
            touches_next = has_next and stop == self._starts[place]
            self.islands += 1 - (covered == start) - touches_next
            self._starts.insert(place, start)
            self._chunks.insert(place, payload[start - offset : stop - offset])
            self.size += stop - start
            start = stop

    def _join(self) -> None:
        """Join the pieces that touch each other."""
        starts: list[int] = []
        islands: list[list[Buffer]] = []
        end = -1
        for start, chunk in zip(self._starts, self._chunks, strict=True):
            if start != end:
                starts.append(start)
                islands.append([])
            islands[-1].append(chunk)
            end = start + len(chunk)
        self._starts, self._chunks = starts, [b"".join(island) for island in islands]
        self._most = self.FEW + 2 * len(starts)

    def _end(self, place: int) -> int:
        return self._starts[place] + len(self._chunks[place])
