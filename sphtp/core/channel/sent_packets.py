"""Sent packets, until they are acked: the send half of packet level acks (Fiedler).

A ``SentFrame`` records the content of one frame, and the state that its acks and losses change. The
content is a run of whole messages with consecutive ids, one fragment of a large message, a SKIP for
a message that was given up, or a run of unreliable messages. A lost reliable frame is retransmitted
unchanged, unless its message was given up or packets have become smaller.

A ``SentBatch`` records packets that left together: n >= 1 packets of equal size. Most properties
are the same for all of them. The others are bit masks: bit n stands for the packet n before the
last one, as in the ack bits of Fiedler's header, so that a shift applies an ack. ``contents`` has
the content of each packet. Consecutive fragments of one message are a ``FragmentRun``: one record,
which is replaced by frames only when its fragments need different treatment.

``SentPackets`` finds a batch by the sequence of any of its packets, in a ``SequenceBuffer``.
Fiedler's sequence is the packet number of RFC 9000, section 12.3. It has 64 bits inside, of which
the header carries 16, and is never used twice: lost content is retransmitted in a packet with a new
sequence.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar

from sphtp.core.channel.congestion.delivery_rate import RateSnapshot
from sphtp.core.channel.frames import (
    ACK_BITS,
    ALL_BITS,
    BUFFER,
    FLAG,
    FRAGMENT_OVERHEAD,
    SKIP_OVERHEAD,
    Fragment,
    Messages,
    Skip,
    Unreliable,
)
from sphtp.core.channel.receipts import Ticket
from sphtp.core.serial import HALF, MASK
from sphtp.errors import RemoteError

T = TypeVar("T")

FARTHEST: Final = HALF // 2
"""The most sequences from the newest acked one to that of the next packet for which messages may
still leave: a quarter of the 16-bit span. Acks and control frames leave nevertheless, and need the
rest up to half of it."""

NO_STAMP: Final = RateSnapshot(0.0, 0, 0.0, 0.0, app_limited=False)

SETTLED: Final = Skip(0, 0, 0)
"""The content of a frame that was settled."""


class SentFrame:
    """One frame of a lane, from the moment at which a packet takes it until its ack.

    ``first_id``, the id of its first message, and ``index``, the offset in that message, are its
    place in the lane. ``count`` is the number of reliable messages that end in it, ``size`` the
    bytes of messages in it, and ``cost`` the most bytes that the frame takes. ``tickets`` are those
    of its messages. ``copies`` is the number of further packets that are to repeat it, and
    ``packets`` the number of packets in flight with it. ``queued`` is true while it waits for
    retransmission, ``awaits_copy`` while it waits for its next copy. A frame with ``is_reliable``
    false is never retransmitted.
    """

    __slots__ = ("acked", "awaits_copy", "copies", "cost", "count", "first_id", "frame", "index",
                 "is_reliable", "packets", "queued", "size", "tickets")  # fmt: skip

    def __init__(
        self,
        frame: Messages | Fragment | Skip | Unreliable,
        first_id: int,
        size: int,
        cost: int,
        index: int = 0,
        count: int = 1,
        tickets: Sequence[Ticket] = (),
        *,
        is_reliable: bool = True,
    ) -> None:
        self.frame = frame
        self.first_id = first_id
        self.index = index
        self.count = count
        self.size = size
        self.cost = cost
        self.tickets = tickets
        self.is_reliable = is_reliable
        self.copies = tickets[0].copies if tickets and is_reliable else 0
        self.packets = 0
        self.queued = False
        self.awaits_copy = False
        self.acked = False

    def __lt__(self, other: "SentFrame") -> bool:
        return (self.first_id, self.index) < (other.first_id, other.index)

    # If compiled, a class that defines a comparison inherits no hash.
    def __hash__(self) -> int:
        return id(self)

    def settle(self) -> None:
        """Count the frame as acked, and drop its content; lost packets may still refer to it."""
        self.acked = True
        self.frame, self.tickets = SETTLED, ()

    def skip(self) -> None:
        """Replace the content by a SKIP, because the message was given up."""
        if not isinstance(self.frame, Skip):
            total = self.frame.total if isinstance(self.frame, Fragment) else self.size
            self.frame = Skip(self.frame.lane, self.first_id & MASK, total)
            self.cost = SKIP_OVERHEAD


def make_fragment(
    lane: int, message_id: int, payload: bytes, start: int, end: int, tickets: Sequence[Ticket] = ()
) -> SentFrame:
    """Return a frame with the fragment ``payload[start:end]`` of a message."""
    total = len(payload)
    part = memoryview(payload)[start:end]
    frame = Fragment(lane, message_id & MASK, start, total, part)
    size = end - start
    is_last = int(end == total)
    return SentFrame(frame, message_id, size, FRAGMENT_OVERHEAD + size, start, is_last, tickets)


class FragmentRun:
    """A part of one message in n packets, with ``length`` bytes each, from offset ``index`` on.

    The lane records it like one frame. Its bits are those of its batch: bit n is the fragment n
    before the last. When its fragments need different treatment, the run is broken up into frames.
    """

    __slots__ = ("_frames", "_open", "_payload", "first_id", "index", "lane_byte", "length",
                 "number", "tickets")  # fmt: skip

    count = 0
    """The number of messages that end in the run: none, for it never has the last fragment."""

    def __init__(
        self,
        lane: int,
        first_id: int,
        payload: bytes,
        start: int,
        length: int,
        number: int,
        tickets: Sequence[Ticket] = (),
    ) -> None:
        self.first_id = first_id
        self.index = start
        self.number = number
        self.tickets = tickets
        self.lane_byte = lane
        self.length = length
        self._payload = payload
        # The frames by bit, after the run was broken up.
        self._frames: dict[int, SentFrame] = {}
        self._open = (1 << number) - 1

    def __len__(self) -> int:
        return self.number

    @property
    def lane(self) -> int:
        """The number of its lane."""
        return self.lane_byte & ~FLAG

    @property
    def is_broken_up(self) -> bool:
        """True if frames have replaced the run."""
        return bool(self._frames)

    @property
    def acked(self) -> bool:
        """True if all fragments were acked, in the run or as frames."""
        return not self._open and all(frame.acked for frame in self._frames.values())

    @property
    def size(self) -> int:
        """Bytes of the message in the run."""
        return self.number * self.length

    @property
    def payload(self) -> bytes:
        """The whole message; empty after the whole run was acked or broken up."""
        return self._payload

    @property
    def end(self) -> int:
        """The offset in the message at which the run ends."""
        return self.index + self.number * self.length

    def settle(self, bits: int) -> int:
        """Record acked fragments, by their bits; return the bytes acked for the first time."""
        fresh = bits & self._open
        self._open ^= fresh
        if not self._open:
            self._payload = b""
        return fresh.bit_count() * self.length

    def break_up(self) -> None:
        """Replace the run by a frame for each fragment that was not acked, the oldest first.

        In the tickets of the run, each of these frames counts as a part. A second call does
        nothing.
        """
        if not self._open:
            return
        for bit in reversed(range(self.number)):
            if self._open >> bit & 1:
                start = self.end - (bit + 1) * self.length
                frame = make_fragment(
                    self.lane_byte,
                    self.first_id,
                    self._payload,
                    start,
                    start + self.length,
                    self.tickets,
                )
                frame.packets = 1
                self._frames[bit] = frame
        for ticket in self.tickets:
            ticket.parts += len(self._frames) - 1
        self._open, self._payload, self.tickets = 0, b"", ()

    def frames(self, bits: int = -1) -> list[SentFrame]:
        """Return the frames that replaced the fragments with these bits."""
        return [frame for bit, frame in self._frames.items() if bits >> bit & 1]


Contents = Sequence[Sequence[SentFrame]] | FragmentRun
"""The content of packets: the frames of each, or one run of fragments."""

NO_CONTENTS: Final[Contents] = ((),)
"""The content of a packet without messages."""


class SentBatch:
    """Packets of ``size`` bytes with consecutive sequences from ``sequence`` on, and their content.

    ``acked`` and ``lost`` have a bit for each packet that was acked, or declared lost; a lost
    packet may still be acked. ``open`` has the bits of the others until ``LossDetector.stop``
    clears it. ``repeated`` has the bits of the packets whose content a probe has repeated.
    ``closing`` is true if the packet carries CLOSE, ``credit`` if it carries CREDIT, and ``probe``
    if it is an MTU probe. ``sent_at`` is the time of departure in seconds.
    """

    __slots__ = (
        "acked",
        "closing",
        "contents",
        "credit",
        "eliciting",
        "has_content",
        "has_messages",
        "last",
        "lost",
        "number",
        "open",
        "ordinal",
        "probe",
        "repeated",
        "sent_at",
        "sequence",
        "size",
        "stamp",
    )

    def __init__(
        self,
        sequence: int,
        sent_at: float,
        size: int,
        contents: Contents = NO_CONTENTS,
        *,
        eliciting: bool = False,
        closing: bool = False,
        credit: bool = False,
        probe: bool = False,
    ) -> None:
        number = len(contents)
        self.sequence = sequence
        self.number = number
        self.last = sequence + number - 1
        self.size = size
        self.sent_at = sent_at
        self.contents = contents
        # True if it carries frames of the send queue.
        self.has_messages = has_messages = contents is not NO_CONTENTS
        self.closing = closing
        self.credit = credit
        self.probe = probe
        # ``eliciting``: true if the packets are ack-eliciting (RFC 9000, section 13.2).
        # ``has_content``: true if they carry more than a PING.
        self.eliciting = eliciting or has_messages
        self.has_content = has_messages or closing or credit or probe
        # The delivery state at departure, and the number of packets tracked before these.
        self.stamp = NO_STAMP
        self.ordinal = 0
        self.open = (1 << number) - 1
        self.acked = 0
        self.repeated = 0
        self.lost = 0

    @property
    def oldest_open(self) -> int:
        """The sequence of the first open packet. Only defined while a packet is open."""
        return self.last + 1 - self.open.bit_length()

    def open_before(self, sequence: int) -> int:
        """Return the bits of the open packets that left before ``sequence``."""
        ahead = max(self.last - sequence + 1, 0)
        return self.open >> ahead << ahead

    def frames(self, bits: int) -> Sequence[SentFrame]:
        """Return the frames of the packets with these bits, oldest first.

        A run of fragments is broken up. A batch of one packet returns its frames for any bits.
        """
        contents = self.contents
        if isinstance(contents, FragmentRun):
            contents.break_up()
            return contents.frames(bits)
        if len(contents) == 1:
            return contents[0]
        last = len(contents) - 1
        return [
            frame
            for place, content in enumerate(contents)
            if bits >> last - place & 1
            for frame in content
        ]

    def was_lost(self, sequence: int) -> bool:
        """Return True if the packet with this sequence was declared lost."""
        return bool(self.lost >> self.last - sequence & 1)

    def named_by(self, newest: int, bits: int) -> int:
        """Return the bits of the batch's packets that ``bits`` ack, from packet ``newest`` back."""
        ahead = newest - self.last
        named = bits >> ahead if ahead >= 0 else bits << -ahead
        return named & (1 << self.number) - 1


class PacketSubset(NamedTuple):
    """Some packets of a batch, by their bits: those acked, lost, or repeated together."""

    batch: SentBatch
    bits: int

    @property
    def number(self) -> int:
        """The number of packets."""
        return self.bits.bit_count()

    @property
    def size(self) -> int:
        """The bytes of the packets."""
        return self.bits.bit_count() * self.batch.size

    def frames(self) -> Sequence[SentFrame]:
        """Return the frames of the packets, oldest first, as ``SentBatch.frames``."""
        return self.batch.frames(self.bits)

    @property
    def newest(self) -> int:
        """The sequence of the newest packet."""
        return self.batch.last + 1 - (self.bits & -self.bits).bit_length()

    @property
    def sequences(self) -> list[int]:
        """The sequences of the packets, in order."""
        last = self.batch.last
        return [at for at in range(self.oldest, last + 1) if self.bits >> last - at & 1]

    @property
    def oldest(self) -> int:
        """The sequence of the oldest packet."""
        return self.batch.last + 1 - self.bits.bit_length()


class SequenceBuffer(Generic[T]):
    """A rolling buffer of ``size`` entries indexed by sequence modulo its capacity.

    Find and remove take constant time, and so does an insert of the next sequence on average. An
    insert further on looks at the slots of the skipped sequences, and clears those whose entries
    are out of the span of ``size`` sequences; that takes at most as many steps as the capacity. The
    capacity starts small, because most channels are idle. It doubles, up to ``size``, when two
    entries within the span would share a slot.
    """

    __slots__ = ("_entries", "_sequences", "highest", "size")

    EMPTY: Final = -(1 << 64)
    SMALL: Final = 32

    def __init__(self, size: int, start: int = 0) -> None:
        self.size = size
        self.highest = start - 1
        self._allocate(min(size, self.SMALL))

    def insert(self, sequence: int, entry: T) -> None:
        """Store ``entry``; it replaces an entry of the same sequence, or one out of the span.

        A sequence below the buffer's span is not stored: its slot is for a newer one.
        """
        index = sequence % len(self._sequences)
        if sequence == self.highest + 1 and self._sequences[index] == self.EMPTY:
            # The path without loss and reordering: the next sequence, with an empty slot.
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
        """Return the entry of exactly this sequence; None if there is none."""
        index = sequence % len(self._sequences)
        return self._entries[index] if self._sequences[index] == sequence else None

    def remove(self, sequence: int) -> T | None:
        """Remove and return the entry of exactly this sequence; None if there is none."""
        index = sequence % len(self._sequences)
        if self._sequences[index] != sequence:
            return None
        entry = self._entries[index]
        self._sequences[index] = self.EMPTY
        self._entries[index] = None
        return entry

    def insert_run(self, first: int, number: int, entry: T) -> None:
        """Store one entry under ``number`` consecutive sequences, in one step if possible."""
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
        """Remove the entries of ``number`` consecutive sequences; absent ones are no error."""
        if number == 1:
            self.remove(first)
            return
        sequences, entries = self._sequences, self._entries
        start = first % len(sequences)
        end = start + number
        if sequences[start:end] == list(range(first, first + number)):
            sequences[start:end] = [self.EMPTY] * number
            entries[start:end] = [None] * number
            return
        for sequence in range(first, first + number):
            self.remove(sequence)

    def items(self) -> list[tuple[int, T]]:
        """Return the entries within the span with their sequences, oldest first."""
        oldest = self.highest - self.size
        pairs = zip(self._sequences, self._entries, strict=True)
        stored = [(at, entry) for at, entry in pairs if entry is not None and at > oldest]
        return sorted(stored, key=itemgetter(0))

    def __contains__(self, sequence: int) -> bool:
        return self._sequences[sequence % len(self._sequences)] == sequence

    def _is_wanted(self, present: int, sequence: int) -> bool:
        """Return True if the slot of ``sequence`` holds another entry within the span."""
        return present not in (self.EMPTY, sequence) and present > self.highest - self.size

    def _clear_between(self, first: int, end: int) -> None:
        # Entries in these slots are from an earlier round of the buffer. Those outside the span are
        # cleared.
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


class SentPackets:
    """The packets that may still be acked, by sequence: the send half of the acks (Fiedler).

    ``ambiguous`` is true when so many packets left since the newest acked one that the 16 bits of
    further sequences would soon be ambiguous.
    """

    __slots__ = (
        "_acked",
        "_oldest_kept",
        "_sent",
        "ambiguous",
        "newest_acked",
        "next_sequence",
    )  # fmt: skip

    def __init__(self, first: int) -> None:
        self.next_sequence = first
        self.ambiguous = False
        self.newest_acked = first - 1
        self._oldest_kept = first
        # The ack bits received so far; bit n is the packet n before the newest acked one.
        self._acked = 0
        # The span is as large as 16 bits allow; the buffer grows with the packets in flight.
        self._sent: SequenceBuffer[SentBatch] = SequenceBuffer(HALF, first)

    def sent(self, batch: SentBatch) -> None:
        """Record packets that just left, from ``next_sequence`` on."""
        if batch.number == 1:
            self._sent.insert(batch.sequence, batch)
        else:
            self._sent.insert_run(batch.sequence, batch.number, batch)
        self.next_sequence = batch.last + 1
        self.ambiguous = self.next_sequence - self.newest_acked > FARTHEST

    def named(self, ack: int) -> int:
        """Return the full sequence for the 16 bits of a header's ``ack``.

        Raises ``RemoteError`` if that is beyond the last packet sent.
        """
        # ``unwrap`` inlined, to save a call for nearly each packet.
        last = self.next_sequence - 1
        newest = last + ((ack - last + HALF) & MASK) - HALF
        if newest > last:
            raise RemoteError(f"ack of packet {newest}, the last one sent is {last}")
        return newest

    def acknowledge(self, newest: int, bits: int) -> list[PacketSubset]:
        """Apply ack bits from packet ``newest`` back; return the packets newly acked, oldest first.

        Some thirty headers ack the same packet, so that only bits not received before count.
        """
        ahead = newest - self.newest_acked
        if ahead > 0:
            seen = self._acked << min(ahead, ACK_BITS) & ALL_BITS
            self.newest_acked, self._acked = newest, seen | bits
            self.ambiguous = self.next_sequence - newest > FARTHEST
            bits &= ~seen
        elif ahead > -ACK_BITS:
            seen = self._acked >> -ahead
            self._acked |= bits << -ahead & ALL_BITS
            bits &= ~seen
        taken: list[PacketSubset] = []
        sent = self._sent
        while bits:
            oldest = newest + 1 - bits.bit_length()
            batch = sent.find(oldest)
            if batch is None:
                bits ^= 1 << newest - oldest
                continue
            if fresh := batch.named_by(newest, bits) & ~batch.acked:
                batch.acked |= fresh
                taken.append(PacketSubset(batch, fresh))
            if batch.acked.bit_count() == batch.number:
                sent.remove_run(batch.sequence, batch.number)
            if newest <= batch.last:
                break
            bits &= (1 << newest - batch.last) - 1
        # No ack reaches back further than this, so older records are dropped: those of lost packets
        # would otherwise stay for ever.
        behind = self.newest_acked - BUFFER - self._oldest_kept
        if behind > 0:
            sent.remove_run(self._oldest_kept, behind)
            self._oldest_kept += behind
        return taken
