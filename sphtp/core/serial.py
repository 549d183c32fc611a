"""Numbers that wrap around (RFC 1982).

Sequences have 64 bits inside and never wrap in practice; on the wire they are cut to few: packets
and messages of a channel to 16, datagrams of a stream, credit and revisions to 32. The receiver
restores the full number as the one nearest to a reference that it already knows. That is right as
long as the two are less than half a span apart, which windows take care of.
"""

from typing import Final


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
