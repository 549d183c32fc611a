"""Packet level acks (Fiedler): who received which packet, by a sequence buffer on either side."""

from collections.abc import Sequence
from enum import Enum

from sphtp.core.channel.congestion.delivery import Stamp
from sphtp.core.channel.header import Header
from sphtp.core.channel.pieces import Piece
from sphtp.core.channel.ticket import Ticket
from sphtp.core.serial import HALF, SequenceBuffer, unwrap, wrap
from sphtp.errors import RemoteError

# Received packets are told apart for far longer than the 32 that one ack covers.
BUFFER = 1024
ACK_BITS = 32
# Half of what can be told apart; the other half is for acks and pings, which are never held back.
FARTHEST = HALF // 2
ALL_BITS = (1 << ACK_BITS) - 1
FULL_WINDOW = (1 << BUFFER) - 1


NO_STAMP = Stamp(0.0, 0, 0.0, 0.0, starved=False)


class Arrival(Enum):
    """How a sequence compares with those received before."""

    FRESH = "fresh"
    DUPLICATE = "duplicate"
    TOO_OLD = "too old"


class SentPacket:
    """What has to be known of a packet until it is acked."""

    __slots__ = (
        "acked",
        "closing",
        "credit",
        "eliciting",
        "lost",
        "once",
        "pieces",
        "probe",
        "sent_at",
        "sequence",
        "size",
        "stamp",
    )

    def __init__(self, sequence: int, sent_at: float, size: int, pieces: Sequence[Piece]) -> None:
        self.sequence = sequence
        self.sent_at = sent_at
        self.size = size
        self.pieces = pieces
        # Those to be told of messages in it that are sent once.
        self.once: Sequence[Ticket] = ()
        # Whether it asks for an ack, carries CLOSE, carries CREDIT; and what became of it.
        self.eliciting = False
        self.closing = False
        self.credit = False
        # Whether it only tries out a size, and what was delivered when it left.
        self.probe = False
        self.stamp = NO_STAMP
        self.acked = False
        self.lost = False

    @property
    def has_content(self) -> bool:
        """Whether there is more in it than a question whether somebody is there."""
        return bool(self.pieces or self.once or self.closing or self.credit or self.probe)


class Acks:
    """Both halves of the ack system: the packets sent, and the packets received.

    Of a received packet nothing has to be known but that it came, so its sequence buffer is one
    integer: bit n stands for the packet n before the newest. Its low 32 bits are the ack bits.
    """

    __slots__ = (
        "_acked",
        "_highest",
        "_newest_acked",
        "_oldest_kept",
        "_sent",
        "_window",
        "next_sequence",
    )

    def __init__(self, first_sent: int, first_received: int) -> None:
        self.next_sequence = first_sent
        self._newest_acked = first_sent - 1
        self._oldest_kept = first_sent
        # The ack bits already seen, bit n for the packet n before the newest acked one.
        self._acked = 0
        # As many may be on their way as 16 bits tell apart; the buffer grows with them.
        self._sent: SequenceBuffer[SentPacket] = SequenceBuffer(HALF, first_sent)
        self._highest = first_received - 1
        self._window = 0

    @property
    def highest(self) -> int:
        """The newest packet received."""
        return self._highest

    @property
    def ambiguous(self) -> bool:
        """Whether so many packets left since the last ack that 16 bits will soon not tell them."""
        return self.next_sequence - self._newest_acked > FARTHEST

    def header(self) -> Header:
        """The header of the next packet, with all that can be acked by now."""
        return Header(wrap(self.next_sequence), wrap(self._highest), self._window & ALL_BITS)

    def sent(self, packet: SentPacket) -> None:
        """Remember a packet that just left under ``next_sequence``."""
        self._sent.insert(packet.sequence, packet)
        self.next_sequence = packet.sequence + 1

    def restore(self, short: int) -> int:
        """Return the full sequence of a received header's 16 bits."""
        return unwrap(short, self._highest)

    def arrival(self, sequence: int) -> Arrival:
        """Compare a sequence with those received, changing nothing."""
        behind = self._highest - sequence
        if behind < 0:
            return Arrival.FRESH
        if behind >= BUFFER or sequence < 0:
            return Arrival.TOO_OLD
        return Arrival.DUPLICATE if self._window >> behind & 1 else Arrival.FRESH

    def received(self, sequence: int) -> bool:
        """Record a packet whose content was accepted; true when it leaves or fills a gap."""
        ahead = sequence - self._highest
        if ahead > 0:
            self._window = (self._window << min(ahead, BUFFER) | 1) & FULL_WINDOW
            self._highest = sequence
        else:
            self._window |= 1 << -ahead
        return ahead != 1

    def acknowledge(self, header: Header) -> list[SentPacket]:
        """Take out what a received header acks; return the packets newly acked, oldest first.

        Raises ``RemoteError`` for an ack of a packet that was never sent.
        """
        newest = unwrap(header.ack, self.next_sequence - 1)
        if newest >= self.next_sequence:
            last = self.next_sequence - 1
            raise RemoteError(f"ack of packet {newest}, the last one sent is {last}")
        acked = self._take(newest, self._new_bits(newest, header.ack_bits))
        for packet in acked:
            packet.acked = True
        # No ack reaches back so far; what was lost there would be kept, with all that it held.
        while self._oldest_kept < self._newest_acked - BUFFER:
            self._sent.remove(self._oldest_kept)
            self._oldest_kept += 1
        return acked

    def _new_bits(self, newest: int, bits: int) -> int:
        """Of ack bits, those not seen before: each ack comes some thirty times."""
        ahead = newest - self._newest_acked
        if ahead > 0:
            self._acked = self._acked << min(ahead, ACK_BITS) & ALL_BITS
            self._newest_acked = newest
            new = bits & ~self._acked
            self._acked |= bits
            return new
        if ahead <= -ACK_BITS:
            return bits
        new = bits & ~(self._acked >> -ahead)
        self._acked |= bits << -ahead & ALL_BITS
        return new

    def _take(self, newest: int, bits: int) -> list[SentPacket]:
        taken: list[SentPacket] = []
        while bits:
            behind = bits.bit_length() - 1
            bits ^= 1 << behind
            packet = self._sent.remove(newest - behind)
            if packet is not None:
                taken.append(packet)
        return taken
