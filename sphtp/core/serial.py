"""Numbers that wrap around (RFC 1982), and the sequence buffer (Fiedler, "Sequence Buffers").

Sequences have 64 bits inside and never wrap in practice; on the wire they are cut to few: packets
and messages of a channel to 16, datagrams of a stream, credit and revisions to 32. The receiver
restores the full number as the one nearest to a reference that it already knows. That is right as
long as the two are less than half a span apart, which windows take care of.
"""

from operator import itemgetter
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class SerialNumber:
    """Arithmetic of numbers of which the lowest ``bits`` travel."""

    __slots__ = ("half", "mask", "span")

    def __init__(self, bits: int) -> None:
        self.span = 1 << bits
        self.mask = self.span - 1
        self.half = self.span >> 1

    def wrap(self, number: int) -> int:
        """Cut a full number to the bits that travel."""
        return number & self.mask

    def unwrap(self, short: int, reference: int) -> int:
        """Restore the full number nearest to ``reference`` whose low bits are ``short``.

        May be negative when ``reference`` is near zero; a caller that counts from zero treats a
        negative result as too old.
        """
        half = self.half
        return reference + ((short - reference + half) & self.mask) - half

    def ahead(self, number: int, other: int) -> int:
        """Return by how much ``number`` is ahead of ``other``; below zero when it is behind.

        Either may be cut. Half a span counts as behind, whichever way one looks (RFC 1982 leaves
        that open).
        """
        half = self.half
        return ((number - other + half) & self.mask) - half


SEQUENCE: Final = SerialNumber(16)
"""Packets and messages of a channel."""

SPAN: Final = SEQUENCE.span
MASK: Final = SEQUENCE.mask
HALF: Final = SEQUENCE.half

wrap: Final = SEQUENCE.wrap
unwrap: Final = SEQUENCE.unwrap


class SequenceBuffer(Generic[T]):
    """A rolling buffer of ``size`` entries indexed by sequence modulo its capacity.

    Insert, find and remove take constant time. Inserting a sequence beyond the highest one walks
    over the numbers skipped and clears their entries, so that nothing old is ever found under a
    new number; the walk is at most the capacity long. The capacity starts small and doubles, up to
    ``size``, when two entries that both still count would share a place: most channels are idle.
    """

    __slots__ = ("_entries", "_sequences", "highest", "size")

    EMPTY = -(1 << 64)
    SMALL = 32

    def __init__(self, size: int, start: int = 0) -> None:
        self.size = size
        self.highest = start - 1
        self._allocate(min(size, self.SMALL))

    def insert(self, sequence: int, entry: T) -> None:
        """Store ``entry`` over whatever older entry shares its place.

        A sequence that has left the buffer's span is not stored: its place belongs to a newer one.
        """
        index = sequence % len(self._sequences)
        if sequence == self.highest + 1 and self._sequences[index] == self.EMPTY:
            # The path without loss and reordering: the next one, and nothing in its place.
            self.highest = sequence
            self._sequences[index] = sequence
            self._entries[index] = entry
            return
        if sequence <= self.highest - self.size:
            return
        if sequence > self.highest:
            self._clear_between(self.highest + 1, sequence)
            self.highest = sequence
        while self._is_wanted(self._sequences[index], sequence):
            self._grow()
            index = sequence % len(self._sequences)
        self._sequences[index] = sequence
        self._entries[index] = entry

    def find(self, sequence: int) -> T | None:
        """Return the entry of exactly this sequence, or None."""
        index = sequence % len(self._sequences)
        return self._entries[index] if self._sequences[index] == sequence else None

    def remove(self, sequence: int) -> T | None:
        """Take the entry of exactly this sequence out and return it, or None."""
        index = sequence % len(self._sequences)
        if self._sequences[index] != sequence:
            return None
        entry = self._entries[index]
        self._sequences[index] = self.EMPTY
        self._entries[index] = None
        return entry

    def insert_run(self, first: int, number: int, entry: T) -> None:
        """Store one entry under consecutive sequences, all at once where no other is in the way."""
        last = first + number - 1
        start = first % len(self._sequences)
        end = start + number
        fits = number > 1 and first == self.highest + 1 and end <= len(self._sequences)
        if fits and max(self._sequences[start:end]) <= last - self.size:
            self._sequences[start:end] = range(first, last + 1)
            self._entries[start:end] = [entry] * number
            self.highest = last
            return
        for sequence in range(first, last + 1):
            self.insert(sequence, entry)

    def remove_run(self, first: int, number: int) -> None:
        """Take out what is stored under consecutive sequences."""
        sequences, entries = self._sequences, self._entries
        start = first % len(sequences)
        end = start + number
        if number > 1 and sequences[start:end] == list(range(first, first + number)):
            sequences[start:end] = [self.EMPTY] * number
            entries[start:end] = [None] * number
            return
        for sequence in range(first, first + number):
            index = sequence % len(sequences)
            if sequences[index] == sequence:
                sequences[index], entries[index] = self.EMPTY, None

    def items(self) -> list[tuple[int, T]]:
        """Return what is stored, each with its sequence, the oldest first."""
        oldest = self.highest - self.size
        pairs = zip(self._sequences, self._entries, strict=True)
        stored = [(at, entry) for at, entry in pairs if entry is not None and at > oldest]
        return sorted(stored, key=itemgetter(0))

    def __contains__(self, sequence: int) -> bool:
        return self._sequences[sequence % len(self._sequences)] == sequence

    def _is_wanted(self, present: int, sequence: int) -> bool:
        """True if an entry in the way of ``sequence`` is another one within the span."""
        return present not in (self.EMPTY, sequence) and present > self.highest - self.size

    def _clear_between(self, first: int, end: int) -> None:
        # What lies within the span and between is not here yet; only what wrapped around is.
        oldest = end - self.size
        for sequence in range(max(first, end - len(self._sequences)), end):
            index = sequence % len(self._sequences)
            if self._sequences[index] <= oldest:
                self._sequences[index] = self.EMPTY
                self._entries[index] = None

    def _allocate(self, capacity: int) -> None:
        self._sequences = [self.EMPTY] * capacity
        self._entries: list[T | None] = [None] * capacity

    def _grow(self) -> None:
        kept = list(zip(self._sequences, self._entries, strict=True))
        self._allocate(min(2 * len(kept), self.size))
        oldest = self.highest - self.size
        for sequence, entry in kept:
            if sequence > oldest:
                index = sequence % len(self._sequences)
                self._sequences[index] = sequence
                self._entries[index] = entry
