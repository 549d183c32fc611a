"""Wrap-around sequence arithmetic, and the sequence buffer (Fiedler, "Sequence Buffers").

Sequences are 64-bit inside and never wrap in practice; on the wire they are cut to 16 bits. The
receiver restores the full number as the one nearest to a reference that it already knows.
"""

from operator import itemgetter
from typing import Generic, TypeVar

T = TypeVar("T")

BITS = 16
SPAN = 1 << BITS
MASK = SPAN - 1
HALF = SPAN >> 1


def wrap(sequence: int) -> int:
    """Cut a full sequence to the 16 bits that travel."""
    return sequence & MASK


def unwrap(short: int, reference: int) -> int:
    """Restore the full sequence nearest to ``reference`` whose low 16 bits are ``short``.

    May be negative when ``reference`` is near zero; a caller that counts from zero treats a
    negative result as too old.
    """
    return reference + ((short - reference + HALF) & MASK) - HALF


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
        if number == 1:
            self.remove(first)
            return
        start = first % len(self._sequences)
        end = start + number
        if self._sequences[start:end] == list(range(first, first + number)):
            self._sequences[start:end] = [self.EMPTY] * number
            self._entries[start:end] = [None] * number
            return
        for sequence in range(first, first + number):
            self.remove(sequence)

    def items(self) -> list[tuple[int, T]]:
        """Return what is stored, each with its sequence, the oldest first."""
        oldest = self.highest - self.size
        pairs = zip(self._sequences, self._entries, strict=True)
        stored = [(at, entry) for at, entry in pairs if entry is not None and at > oldest]
        return sorted(stored, key=itemgetter(0))

    def __contains__(self, sequence: int) -> bool:
        return self._sequences[sequence % len(self._sequences)] == sequence

    def _is_wanted(self, present: int, sequence: int) -> bool:
        """Whether an entry in the way of ``sequence`` is another one within the span."""
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
