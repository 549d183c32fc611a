"""Packet level acks (Fiedler): who received which packet, by a sequence buffer on either side."""

from enum import Enum

from sphtp.core.channel.header import Header
from sphtp.core.channel.sent_packets import Hit, SentBatch
from sphtp.core.serial import HALF, SequenceBuffer, unwrap, wrap
from sphtp.errors import RemoteError

# Received packets are told apart for far longer than the 32 that one ack covers.
BUFFER = 1024
ACK_BITS = 32
# Half of what can be told apart; the other half is for acks and pings, which are never held back.
FARTHEST = HALF // 2
ALL_BITS = (1 << ACK_BITS) - 1
FULL_WINDOW = (1 << BUFFER) - 1


class Arrival(Enum):
    """How a sequence compares with those received before."""

    FRESH = "fresh"
    DUPLICATE = "duplicate"
    TOO_OLD = "too old"


class Acks:
    """Both halves of the ack system: the packets sent, and the packets received.

    Of a received packet nothing has to be known but that it came, so its sequence buffer is one
    integer: bit n stands for the packet n before the newest. Its low 32 bits are the ack bits.
    """

    __slots__ = (
        "_acked",
        "_first_received",
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
        self._sent: SequenceBuffer[SentBatch] = SequenceBuffer(HALF, first_sent)
        self._first_received = first_received
        self._highest = first_received - 1
        self._window = 0

    @property
    def highest(self) -> int:
        """The newest packet received."""
        return self._highest

    @property
    def missing(self) -> int:
        """How many did not come of the packets that the next header acks."""
        covered = min(self._highest + 1 - self._first_received, ACK_BITS)
        return covered - (self._window & ALL_BITS).bit_count()

    @property
    def ambiguous(self) -> bool:
        """Whether so many packets left since the last ack that 16 bits will soon not tell them."""
        return self.next_sequence - self._newest_acked > FARTHEST

    def header(self) -> Header:
        """The header of the next packet, with all that can be acked by now."""
        return Header(wrap(self.next_sequence), wrap(self._highest), self._window & ALL_BITS)

    def late_header(self, sequence: int) -> Header:
        """The same with the acks of a packet that came so late that no other names it any more."""
        bits = self._window >> self._highest - sequence & ALL_BITS
        return Header(wrap(self.next_sequence), wrap(sequence), bits)

    def is_out_of_reach(self, sequence: int) -> bool:
        """Whether a packet is too old for the ack bits of the next header."""
        return self._highest - sequence >= ACK_BITS

    def sent(self, train: SentBatch) -> None:
        """Remember packets that just left, from ``next_sequence`` on."""
        if train.number == 1:
            self._sent.insert(train.sequence, train)
        else:
            self._sent.insert_run(train.sequence, train.number, train)
        self.next_sequence = train.last + 1

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

    def received(self, sequence: int, count: int = 1) -> bool:
        """Record packets whose content was accepted; true when they leave or fill a gap.

        More than one come in a row, behind all that came before.
        """
        ahead = sequence - self._highest
        if ahead > 0:
            last = ahead + count - 1
            self._window = (self._window << min(last, BUFFER) | (1 << count) - 1) & FULL_WINDOW
            self._highest = sequence + count - 1
        else:
            self._window |= 1 << -ahead
        return ahead != 1

    def named(self, ack: int) -> int:
        """Return the full sequence of the packet that a received header's 16 bits ack.

        Raises ``RemoteError`` for one that was never sent.
        """
        newest = unwrap(ack, self.next_sequence - 1)
        if newest >= self.next_sequence:
            last = self.next_sequence - 1
            raise RemoteError(f"ack of packet {newest}, the last one sent is {last}")
        return newest

    def acknowledge(self, newest: int, bits: int) -> list[Hit]:
        """Take out what ack bits name from ``newest`` on; return the packets newly acked.

        The oldest comes first.
        """
        bits = self._new_bits(newest, bits)
        acked = self._take(newest, bits) if bits else []
        # No ack reaches back so far; what was lost there would be kept, with all that it held.
        behind = self._newest_acked - BUFFER - self._oldest_kept
        if behind > 0:
            self._sent.remove_run(self._oldest_kept, behind)
            self._oldest_kept += behind
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

    def _take(self, newest: int, bits: int) -> list[Hit]:
        taken: list[Hit] = []
        while bits:
            oldest = newest + 1 - bits.bit_length()
            train = self._sent.find(oldest)
            if train is None:
                bits ^= 1 << newest - oldest
                continue
            named = train.named_by(newest, bits)
            if fresh := named & ~train.acked:
                train.acked |= fresh
                taken.append(Hit(train, fresh))
            if train.acked.bit_count() == train.number:
                self._sent.remove_run(train.sequence, train.number)
            bits &= (1 << max(newest - train.last, 0)) - 1
        return taken
