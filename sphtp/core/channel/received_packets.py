"""Which packets arrived: the receive half of the seed's packet level acks (Fiedler).

Of a received packet nothing has to be known but that it came, so the sequence buffer is one
integer: bit n stands for the packet n before the newest. Its low 32 bits are the ack bits that each
header carries. ``ack_timer`` says when a header has to leave for their sake.
"""

from enum import Enum

from sphtp.core.serial import unwrap, wrap

# Received packets are told apart for far longer than the 32 that one ack covers.
BUFFER = 1024
ACK_BITS = 32
ALL_BITS = (1 << ACK_BITS) - 1
FULL_WINDOW = (1 << BUFFER) - 1


class Arrival(Enum):
    """How a sequence compares with those received before."""

    FRESH = "fresh"
    DUPLICATE = "duplicate"
    TOO_OLD = "too old"


class ReceivedPackets:
    """The packets that came, and the ack bits that say so."""

    __slots__ = ("_first", "_window", "highest")

    def __init__(self, first: int) -> None:
        self._first = first
        # The newest packet received.
        self.highest = first - 1
        self._window = 0

    @property
    def missing(self) -> int:
        """How many did not come of the packets that the next header acks."""
        covered = min(self.highest + 1 - self._first, ACK_BITS)
        return covered - (self._window & ALL_BITS).bit_count()

    def ack(self) -> tuple[int, int]:
        """The ack and the ack bits of the next header: all that can be acked by now."""
        return wrap(self.highest), self._window & ALL_BITS

    def late_ack(self, sequence: int) -> tuple[int, int]:
        """The same for a packet that came so late that no other header names it any more."""
        return wrap(sequence), self._window >> self.highest - sequence & ALL_BITS

    def is_out_of_reach(self, sequence: int) -> bool:
        """Whether a packet is too old for the ack bits of the next header."""
        return self.highest - sequence >= ACK_BITS

    def restore(self, short: int) -> int:
        """Return the full sequence of a received header's 16 bits."""
        return unwrap(short, self.highest)

    def arrival(self, sequence: int) -> Arrival:
        """Compare a sequence with those received, changing nothing."""
        behind = self.highest - sequence
        if behind < 0:
            return Arrival.FRESH
        if behind >= BUFFER or sequence < 0:
            return Arrival.TOO_OLD
        return Arrival.DUPLICATE if self._window >> behind & 1 else Arrival.FRESH

    def received(self, sequence: int, count: int = 1) -> bool:
        """Record packets whose content was accepted; true when they leave or fill a gap.

        More than one come in a row, behind all that came before.
        """
        ahead = sequence - self.highest
        if ahead > 0:
            last = ahead + count - 1
            self._window = (self._window << min(last, BUFFER) | (1 << count) - 1) & FULL_WINDOW
            self.highest = sequence + count - 1
        else:
            self._window |= 1 << -ahead
        return ahead != 1
