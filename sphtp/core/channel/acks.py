"""Packet level acks (Fiedler): who received which packet, by a sequence buffer on either side."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from sphtp.core.channel.header import Header
from sphtp.core.serial import HALF, SequenceBuffer, unwrap, wrap
from sphtp.errors import RemoteError

# The sent buffer outlives by far the 32 packets that one ack covers.
BUFFER = 1024
ACK_BITS = 32
# Half of what can be told apart; the other half is for acks and pings, which are never held back.
FARTHEST = HALF // 2
ALL_BITS = (1 << ACK_BITS) - 1

# One part of one message: its id and the fragment's index, 0 for a whole message.
Piece = tuple[int, int]


class Arrival(Enum):
    """How a sequence compares with those received before."""

    FRESH = "fresh"
    DUPLICATE = "duplicate"
    TOO_OLD = "too old"


@dataclass(slots=True)
class SentPacket:
    """What has to be known of a packet until it is acked."""

    sequence: int
    sent_at: float
    size: int
    eliciting: bool
    closing: bool = False
    pieces: list[Piece] = field(default_factory=list)
    acked: bool = False
    lost: bool = False


class Acks:
    """Both halves of the ack system: the packets sent, and the packets received."""

    __slots__ = ("_bits", "_newest_acked", "_received", "_sent", "next_sequence")

    def __init__(self, first_sent: int, first_received: int) -> None:
        self.next_sequence = first_sent
        self._newest_acked = first_sent - 1
        self._sent: SequenceBuffer[SentPacket] = SequenceBuffer(BUFFER, first_sent)
        self._received: SequenceBuffer[bool] = SequenceBuffer(BUFFER, first_received)
        self._bits = 0

    @property
    def ambiguous(self) -> bool:
        """Whether so many packets left since the last ack that 16 bits will soon not tell them."""
        return self.next_sequence - self._newest_acked > FARTHEST

    def header(self) -> Header:
        """The header of the next packet, with all that can be acked by now."""
        return Header(wrap(self.next_sequence), wrap(self._received.highest), self._bits)

    def sent(self, packet: SentPacket) -> None:
        """Remember a packet that just left under ``next_sequence``."""
        self._sent.insert(packet.sequence, packet)
        self.next_sequence = packet.sequence + 1

    def restore(self, short: int) -> int:
        """Return the full sequence of a received header's 16 bits."""
        return unwrap(short, self._received.highest)

    def arrival(self, sequence: int) -> Arrival:
        """Compare a sequence with those received, changing nothing."""
        if sequence <= self._received.highest - BUFFER or sequence < 0:
            return Arrival.TOO_OLD
        return Arrival.DUPLICATE if sequence in self._received else Arrival.FRESH

    def received(self, sequence: int) -> bool:
        """Record a packet whose content was accepted; true when it leaves or fills a gap."""
        ahead = sequence - self._received.highest
        if ahead > 0:
            self._bits = (self._bits << ahead | 1) & ALL_BITS if ahead < ACK_BITS else 1
        elif ahead > -ACK_BITS:
            self._bits |= 1 << -ahead
        self._received.insert(sequence, True)
        return ahead != 1

    def acknowledge(self, header: Header) -> list[SentPacket]:
        """Mark what a received header acks; return the packets newly acked, oldest first.

        Raises ``RemoteError`` for an ack of a packet that was never sent.
        """
        newest = unwrap(header.ack, self.next_sequence - 1)
        if newest >= self.next_sequence:
            raise RemoteError(f"ack of packet {newest}, the last one sent is {self._sent.highest}")
        acked = [packet for packet in self._covered(newest, header.ack_bits) if not packet.acked]
        for packet in acked:
            packet.acked = True
        self._newest_acked = max(self._newest_acked, newest)
        return acked

    def _covered(self, newest: int, bits: int) -> Iterator[SentPacket]:
        for behind in range(bits.bit_length() - 1, -1, -1):
            packet = self._sent.find(newest - behind) if bits >> behind & 1 else None
            if packet is not None:
                yield packet
