"""Packets that left together, and what has to be known of them until they are acked.

What leaves at one moment for one peer, in packets of equal size, is one train: most of what is to
be known is the same for all, and the rest is a bit for each. Bit n stands for the packet n before
the last one, as in the ack bits of the seed's header, so that an ack is applied by a shift.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sphtp.core.channel.congestion.delivery import Stamp
from sphtp.core.channel.pieces import Piece
from sphtp.core.channel.received_packets import ACK_BITS, ALL_BITS, BUFFER
from sphtp.core.channel.runs import FragmentRun
from sphtp.core.channel.ticket import Ticket
from sphtp.core.serial import HALF, SequenceBuffer, unwrap
from sphtp.errors import RemoteError

FARTHEST: Final = HALF // 2
"""Half of what 16 bits tell apart; the rest is for acks and pings, which nothing holds back."""

NO_STAMP: Final = Stamp(0.0, 0, 0.0, 0.0, starved=False)

NO_MESSAGES: Final[Sequence[Sequence[Piece]]] = ((),)
"""What a packet carries that has something else to say."""


class SentBatch:
    """``number`` packets of ``size`` bytes, the first of them with ``sequence``.

    ``acked`` and ``lost`` have a bit for each packet of which that was found; one that was given up
    can still be acked. ``open`` are those of which neither was, ``repeated`` those whose content a
    probe has put in line again.
    """

    __slots__ = ("acked", "closing", "credit", "eliciting", "last", "loads", "lost", "number",
                 "once", "open", "ordinal", "probe", "repeated", "run", "sent_at", "sequence",
                 "size", "stamp")  # fmt: skip

    def __init__(
        self,
        sequence: int,
        sent_at: float,
        size: int,
        loads: Sequence[Sequence[Piece]] = NO_MESSAGES,
        run: FragmentRun | None = None,
    ) -> None:
        self.sequence = sequence
        self.number = run.number if run else len(loads)
        self.last = sequence + self.number - 1
        self.size = size
        self.sent_at = sent_at
        # What each packet carries, or what each carries one fragment of.
        self.loads = loads
        self.run = run
        # Those to be told of messages in it that are sent once.
        self.once: Sequence[Ticket] = ()
        # Whether it asks for an ack, carries CLOSE, carries CREDIT, only tries out a size; and
        # what was delivered when it left.
        self.eliciting = self.has_messages
        self.closing = False
        self.credit = False
        self.probe = False
        self.stamp = NO_STAMP
        # How many packets had been watched before the first of these.
        self.ordinal = 0
        self.open = (1 << self.number) - 1
        self.acked = 0
        self.repeated = 0
        self.lost = 0

    @property
    def has_messages(self) -> bool:
        """Whether there are reliable messages in it."""
        return bool(self.run or self.loads[0])

    @property
    def has_content(self) -> bool:
        """Whether there is more in it than a question whether somebody is there."""
        return bool(self.has_messages or self.once or self.closing or self.credit or self.probe)

    @property
    def oldest_open(self) -> int:
        """The sequence of the first packet of which nothing is known; there must be one."""
        return self.last + 1 - self.open.bit_length()

    def open_before(self, sequence: int) -> int:
        """The bits of the open packets that left before one."""
        ahead = max(self.last - sequence + 1, 0)
        return self.open >> ahead << ahead

    def pieces(self, bits: int) -> Sequence[Piece]:
        """What some of its packets carry, the oldest first; a run is broken up for it."""
        if self.run is not None:
            self.run.break_up()
            return self.run.parts(bits)
        if self.number == 1:
            return self.loads[0]
        places = enumerate(reversed(self.loads))
        chosen = [load for bit, load in places if bits >> bit & 1]
        return [piece for load in reversed(chosen) for piece in load]

    def was_lost(self, sequence: int) -> bool:
        """Whether one of its packets has been given up."""
        return bool(self.lost >> self.last - sequence & 1)

    def named_by(self, newest: int, bits: int) -> int:
        """The bits of the packets that ack bits name, ``newest`` being the packet of bit 0."""
        ahead = newest - self.last
        named = bits >> ahead if ahead >= 0 else bits << -ahead
        return named & (1 << self.number) - 1


class Hit(NamedTuple):
    """Some packets of a train, by their bits."""

    train: SentBatch
    bits: int

    @property
    def number(self) -> int:
        """How many packets."""
        return self.bits.bit_count()

    @property
    def size(self) -> int:
        """Their bytes."""
        return self.bits.bit_count() * self.train.size

    def pieces(self) -> Sequence[Piece]:
        """What they carry, the oldest first; as ``SentBatch.pieces``."""
        return self.train.pieces(self.bits)

    @property
    def newest(self) -> int:
        """The sequence of the last of them."""
        return self.train.last + 1 - (self.bits & -self.bits).bit_length()

    @property
    def sequences(self) -> list[int]:
        """The sequences of all of them, the first one first."""
        train = self.train
        return [at for at in range(self.oldest, train.last + 1) if self.bits >> train.last - at & 1]

    @property
    def oldest(self) -> int:
        """The sequence of the first of them."""
        return self.train.last + 1 - self.bits.bit_length()


class SentPackets:
    """The packets that may still be acked, by sequence: the send half of the acks (Fiedler)."""

    __slots__ = ("_acked", "_newest_acked", "_oldest_kept", "_sent", "next_sequence")

    def __init__(self, first: int) -> None:
        self.next_sequence = first
        self._newest_acked = first - 1
        self._oldest_kept = first
        # The ack bits already seen, bit n for the packet n before the newest acked one.
        self._acked = 0
        # As many may be on their way as 16 bits tell apart; the buffer grows with them.
        self._sent: SequenceBuffer[SentBatch] = SequenceBuffer(HALF, first)

    @property
    def ambiguous(self) -> bool:
        """Whether so many packets left since the last ack that 16 bits will soon not tell them."""
        return self.next_sequence - self._newest_acked > FARTHEST

    def sent(self, train: SentBatch) -> None:
        """Remember packets that just left, from ``next_sequence`` on."""
        if train.number == 1:
            self._sent.insert(train.sequence, train)
        else:
            self._sent.insert_run(train.sequence, train.number, train)
        self.next_sequence = train.last + 1

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
