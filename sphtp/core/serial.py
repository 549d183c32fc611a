"""Serial numbers, which wrap around (RFC 1982).

Sequences have 64 bits inside and never wrap in practice. On the wire they are cut to fewer bits:
packets and messages of a channel to 16, datagrams and session messages of a stream, credit and
revisions to 32. The receiver restores the full number as the one nearest to a reference, such as
the highest number received. The result is right as long as the two are less than half a span apart.
"""

from typing import Final


class SerialNumber:
    """Arithmetic of numbers whose lowest ``bits`` bits are transmitted."""

    __slots__ = ("half", "mask", "span")

    def __init__(self, bits: int) -> None:
        self.span = 1 << bits
        self.mask = self.span - 1
        self.half = self.span >> 1

    def wrap(self, number: int) -> int:
        """Cut a full number to the transmitted bits."""
        return number & self.mask

    def unwrap(self, short: int, reference: int) -> int:
        """Restore the full number nearest to ``reference`` whose low bits are ``short``.

        The result may be negative if ``reference`` is near zero; a caller that counts from zero
        treats a negative number as too old.
        """
        half = self.half
        return reference + ((short - reference + half) & self.mask) - half

    def ahead(self, number: int, other: int) -> int:
        """Return the distance from ``other`` to ``number``; negative if ``number`` is behind.

        Either number may be cut. A distance of half a span counts as behind, in both directions
        (RFC 1982 leaves that undefined).
        """
        half = self.half
        return ((number - other + half) & self.mask) - half


SEQUENCE: Final = SerialNumber(16)
"""The sequences of packets, and the ids of messages, of a channel."""

SPAN: Final = SEQUENCE.span
MASK: Final = SEQUENCE.mask
HALF: Final = SEQUENCE.half

wrap: Final = SEQUENCE.wrap
unwrap: Final = SEQUENCE.unwrap
