"""Shared memory: messages between processes of one user on one machine, beside the channel.

Theory of operation. Each side of a channel may have a *segment*: memory of its own, which the peer
maps as well. The sender writes the payload of a large message into a *region* of its segment. A
*descriptor* of the region travels in the channel, as a small reliable message in the lane of the
large one. So order, lanes, acks, receipts and credit for messages are those of any message. The
receiver frees the region when it has copied the payload, or with ``array_views`` when the program
drops the view.

**The ring.** A packet for a descriptor costs both sides more than the copies of 400 kB do. So if
all messages of the lane have left, the descriptor goes into a ring in the segment instead, with the
next id of its lane, and an eventfd wakes the receiver. The receiver inserts it by its id like a
message from a packet. So messages stay in order whichever way they go, and no message waits for the
acks of those before. An entry needs no ack, for memory loses nothing. It uses up credit, and
reading it gives the credit back, as for a descriptor in a packet. A receiver without room for
another message leaves entries in the ring. The ring carries no message with a receipt, which needs
the ack of a packet, and none behind others of its lane that wait to leave. Then a message of 16 KiB
or more sends its descriptor in a packet. A smaller one travels in packets itself, with the others.

**Small messages.** A message that leaves alone costs both sides a packet and its ack, some 170 us
of processor time; by the ring it costs 30. Messages that leave together share a packet, and cost 2
us each. So if a program sends only a few small messages in a turn, or before it receives again,
they leave by the ring as well.

**Wake-ups.** Half of the cost of a message is the wake-up of the receiver. So a word of the segment
records whether the receiver sleeps until there is an entry. The receiver sets the word, and reads
``HEAD`` once more before it sleeps. The sender writes ``HEAD``, and then reads the word. Between
its write and its read, either side needs a full memory barrier; without it, both may read old
values (Dekker's problem). A receiver that expects a reply soon polls ``HEAD`` first, and needs no
wake-up at all if the reply comes in time (``shell.loop.Readers``). The sender clears the word
before it signals the eventfd, so that many entries cause one event. The receiver sets the word
again after each event, so that no wake-up is lost.

**Notices.** A contribution to a step of a group needs no lane: it names its step, and the receiver
needs it for that step only. So it leaves as a *notice*: a region with the number of the step, in a
cell of its own beside the ring. A notice takes no credit and no id of a lane, and costs half as
much as an entry. It may overtake messages of the lanes, so the receiver takes it only when it looks
for its number. It looks once more after it has read ``HEAD``, and takes the notice before the
entries: the sender may have posted it, and then sent its next contribution in the ring.

There are two cells, used in turn. The receiver counts the notices that it has taken or skipped, and
the sender writes into a cell only when its last notice is one of these. Otherwise the contribution
goes another way. In lock step that is rare: a member ends a step with the contribution of the other
member, which that one makes after the end of its step before.

**Allocation.** The sender alone allocates, and its ledger is in its own memory: ``RegionLedger``.
The receiver writes one word of shared memory for each region: the generation of the region that it
has read. The sender takes a region back when the word shows the generation of that region. A peer
that writes a false word only makes the sender overwrite payloads that this peer has not read yet.
Each allocation of a slot has a new generation, so that the word of an earlier one has no effect.

**One copy for all.** A payload for several peers, such as a member's contribution to a step, would
be copied once for each. So a node that sends such messages has a *common segment*, which its peers
may read and not write. The payload is copied into a region of it once, and each peer gets a
descriptor of that region, or a notice. The slots of common regions are numbered from ``COMMON`` on,
and each peer frees them by words in the segment of its channel. The sender uses the region again
when all peers have freed it.

**Trust.** A descriptor comes from the peer: its region has to lie within the segment, and its size
within ``max_message``. The peer may change the bytes while they are read, so a reader copies bytes
before it reads them more than once. The word is compared, and never used as an index.

**The marker.** A descriptor begins with a marker of 16 random bytes, which distinguishes it from
other messages. The sender draws the marker for the segment and hands it over with the segment, on
the machine and not in the channel. Nobody else has the marker, so that a message that looks like a
descriptor is as unlikely as a guessed key.

**Rendezvous.** The opener appends a ``Rendezvous`` to its CONNECT, in bytes of padding, which a
reader without this extension ignores. The answering side appends its own to the ACCEPT only if the
CONNECT had one. So a peer without this extension never receives one. The rendezvous names a Unix
socket of the node, and a nonce for this channel; in a sealed channel nobody else can read them. The
side with such messages to send connects to the socket: see ``shell.shared_memory``. Over that
connection go, in packets, ``encode_hello`` to the named socket and back, and ``encode_segment``
with the file descriptors of the segment, of its eventfd and, if there is one, of the common
segment.

Regions are allocated first fit, at the lowest offset. So a channel with few unread messages uses
the same few pages again and again. They stay in the caches of the processor, and the rest of the
segment never takes memory.
"""

from bisect import insort
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from sphtp.core.entropy import Secrets
from sphtp.core.wire import Reader
from sphtp.errors import RemoteError, untrusted

SLOTS: Final = 1024
"""The most regions of a segment in use at a time, whose words fill one page; and the entries of the
ring."""

WORD: Final = 4
PAGE: Final = 4096

HEAD: Final = SLOTS
TAIL: Final = SLOTS + 16
"""The words that count the entries that the sender has put into the ring, and that the receiver has
taken out of it. Each is in a cache line of its own."""

WAITS: Final = SLOTS + 32
"""The word that is not 0 while the receiver sleeps until there is an entry. Both sides write it."""

NOTICES: Final = SLOTS + 64
NOTICE_WORDS: Final = 16
CELLS: Final = 2
"""The first word of the notices, and the words and the number of their cells: each is a cache line.
The word at its start counts the notices up to this one, from 1 on."""

NOTICED: Final = NOTICES + CELLS * NOTICE_WORDS
"""The word that counts the notices that the receiver has taken or skipped."""

COUNTS: Final = 1 << 32
"""The modulus of the counts of entries, and of notices."""

RING_START: Final = 2 * PAGE
ENTRY: Final = 32
"""The offset of the ring, and the bytes of each of its ``SLOTS`` entries."""

COMMON: Final = (RING_START + SLOTS * ENTRY) // WORD
"""The number of the first slot of the common segment, and of its word: each slot has the number of
its word."""

DATA_START: Final = COMMON * WORD + PAGE
"""The offset of the first region in a segment. A common segment has no words, but the same
offset."""
ALIGNMENT: Final = 64
"""The items of an array begin at a multiple of this number of bytes within their region."""

GENERATIONS: Final = 1 << 32
MARKER_SIZE: Final = 16

MAX_SEGMENT: Final = 1 << 32
"""The largest segment that a receiver maps, in bytes. The map takes addresses, and no memory."""

_MAGIC: Final = b"SMEM"
RENDEZVOUS_SIZE: Final = len(_MAGIC) + 4 + 8

# Marker, slot u16, generation u32, offset u64, size u32.
_DESCRIPTOR: Final = Struct(f"<{MARKER_SIZE}sHIQI")
DESCRIPTOR_SIZE: Final = _DESCRIPTOR.size
FIELDS_SIZE: Final = DESCRIPTOR_SIZE - MARKER_SIZE
"""The bytes of a descriptor without its marker: the first part of an entry of the ring."""

# Behind the fields of a descriptor: lane u8 and id u16, as in a frame.
_PLACE: Final = Struct("<BH")
ENTRY_SIZE: Final = FIELDS_SIZE + _PLACE.size
"""The used bytes of an entry."""

# Behind the count of a notice: slot u16, generation u32, offset u64, size u32, and number u64.
_NOTICE: Final = Struct("<H2xIQIQ")

# Magic, nonce u64; and marker, sizes of the segment and of the common one (0 without one) u64,
# version of the layout u32.
_HELLO: Final = Struct("<4sQ")
_SEGMENT: Final = Struct(f"<{MARKER_SIZE}sQQI")
_VERSION: Final = 4
HELLO_SIZE: Final = _HELLO.size
SEGMENT_SIZE: Final = _SEGMENT.size


class Rendezvous(NamedTuple):
    """The address at which a node accepts segments: the number in its socket's name; a nonce."""

    name: int
    nonce: int


def draw_rendezvous(name: int, secrets: Secrets) -> Rendezvous | None:
    """Return the rendezvous of one channel; None if the node accepts no segments (``name`` 0)."""
    return Rendezvous(name, secrets.getrandbits(64)) if name else None


def encode_rendezvous(rendezvous: Rendezvous | None) -> bytes:
    """Return the bytes that follow the last field of a CONNECT or an ACCEPT."""
    if rendezvous is None:
        return b""
    return _MAGIC + rendezvous.name.to_bytes(4, "little") + rendezvous.nonce.to_bytes(8, "little")


def take_rendezvous_untrusted(reader: Reader) -> Rendezvous | None:
    """Decode a rendezvous; return None if the remaining bytes do not begin with one."""
    if reader.remaining < RENDEZVOUS_SIZE or reader.take(len(_MAGIC)) != _MAGIC:
        return None
    name, nonce = reader.u32(), reader.u64()
    return Rendezvous(name, nonce) if name else None


def encode_hello(nonce: int) -> bytes:
    """Return the first packet of either side: the nonce of the other side for this channel."""
    return _HELLO.pack(_MAGIC, nonce)


@untrusted
def decode_hello_untrusted(data: bytes) -> int:
    """Return the nonce of a hello. Raises ``RemoteError`` if it is malformed."""
    if len(data) != HELLO_SIZE or data[: len(_MAGIC)] != _MAGIC:
        raise RemoteError(f"{len(data)} bytes that are no hello")
    nonce: int = _HELLO.unpack(data)[1]
    return nonce


class SegmentTerms(NamedTuple):
    """The content of the packet that goes with the file descriptors of a segment."""

    marker: bytes
    size: int
    common_size: int = 0
    """The size of the sender's common segment; 0 if it has none."""


def encode_segment(terms: SegmentTerms) -> bytes:
    """Return the packet that goes with the file descriptors of a segment."""
    return _SEGMENT.pack(*terms, _VERSION)


@untrusted
def decode_segment_untrusted(data: bytes) -> SegmentTerms:
    """Return the marker and the sizes of a segment.

    Raises ``RemoteError`` if the packet is malformed, of another version, or has invalid sizes.
    """
    if len(data) != SEGMENT_SIZE:
        raise RemoteError(f"{len(data)} bytes that are no segment")
    *terms, version = _SEGMENT.unpack(data)
    if version != _VERSION:
        raise RemoteError(f"a segment of version {version}")
    marker, size, common_size = terms
    for each in (size, common_size) if common_size else (size,):
        if not DATA_START < each <= MAX_SEGMENT or each % PAGE:
            raise RemoteError(f"a segment of {each} bytes")
    return SegmentTerms(marker, size, common_size)


def write_entry(
    view: memoryview, number: int, descriptor: bytes, lane: int, message_id: int
) -> None:
    """Write an entry of the ring: a descriptor without its marker, and the place of its message."""
    start = RING_START + number % SLOTS * ENTRY
    entry = descriptor[MARKER_SIZE:] + _PLACE.pack(lane, message_id)
    view[start : start + ENTRY_SIZE] = entry


def read_entry_untrusted(view: memoryview, number: int, marker: bytes) -> tuple[int, int, bytes]:
    """Return the lane, the id and the descriptor of an entry of the ring; none is checked."""
    start = RING_START + number % SLOTS * ENTRY
    # The peer may change the entry meanwhile.
    entry = bytes(view[start : start + ENTRY_SIZE])
    lane, message_id = _PLACE.unpack_from(entry, FIELDS_SIZE)
    return lane, message_id, marker + entry[:FIELDS_SIZE]


def cell_of(count: int) -> int:
    """Return the first word of the cell of the notice with this ``count``."""
    return NOTICES + count % CELLS * NOTICE_WORDS


def write_notice(
    view: memoryview, words: memoryview, count: int, region: "Region", number: int
) -> None:
    """Write the notice with this ``count`` into its cell."""
    word = cell_of(count)
    _NOTICE.pack_into(view, WORD * (word + 1), *region, number)
    # The receiver reads the rest when it sees the count.
    words[word] = count % COUNTS


def read_notice_untrusted(view: memoryview, word: int) -> tuple["Region", int]:
    """Return the region and the number of the notice in a cell; neither is checked."""
    slot, generation, start, size, number = _NOTICE.unpack_from(view, WORD * (word + 1))
    return Region(slot, generation, start, size), number


class Region(NamedTuple):
    """A part of a segment.

    ``start`` is the offset of its first byte in the segment, and ``size`` the bytes of the payload.
    In a descriptor, ``start`` is the offset of the payload, which need not begin at the start of
    the region, and ``slot`` is increased by ``COMMON`` for a common region.
    """

    slot: int
    generation: int
    start: int
    size: int

    @property
    def is_common(self) -> bool:
        """True if the region is in the common segment of the peer that sent its descriptor."""
        return self.slot >= COMMON


def encode_descriptor(marker: bytes, region: Region) -> bytes:
    """Return the message that travels in place of the payload in a region."""
    return _DESCRIPTOR.pack(marker, *region)


def is_descriptor(payload: bytes, marker: bytes) -> bool:
    """Return True if a message is a descriptor in the segment with this marker."""
    return len(payload) == DESCRIPTOR_SIZE and payload.startswith(marker)


def decode_descriptor_untrusted(payload: bytes, sizes: Sequence[int], max_message: int) -> Region:
    """Return the region of a descriptor.

    ``sizes`` are the bytes of the segment and of the common one, 0 without one. Raises
    ``RemoteError`` if the descriptor is malformed, or if its region is empty, not within its
    segment, or over ``max_message`` bytes.
    """
    if len(payload) != DESCRIPTOR_SIZE:
        raise RemoteError(f"{len(payload)} bytes that are no descriptor")
    return check_region_untrusted(Region(*_DESCRIPTOR.unpack(payload)[1:]), sizes, max_message)


def check_region_untrusted(region: Region, sizes: Sequence[int], max_message: int) -> Region:
    """Return ``region``. Takes and raises the same as ``decode_descriptor_untrusted``."""
    slot, _, start, size = region
    segment_size = sizes[slot >= COMMON]
    if not (slot < SLOTS or COMMON <= slot < COMMON + SLOTS):
        raise RemoteError(f"slot {slot} of a segment")
    if not DATA_START <= start <= start + size <= segment_size:
        raise RemoteError(f"region {region} of a segment of {segment_size} bytes")
    if not 0 < size <= max_message:
        raise RemoteError(f"a message of {size} bytes; this channel takes {max_message}")
    return region


class RegionLedger:
    """The regions of a segment of ``size`` bytes that are in use, and the free space."""

    __slots__ = ("_free_slots", "_generations", "_holes", "_used", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        # Holes by offset, which never touch each other; and free slots, the next one last.
        self._holes = [(DATA_START, size)]
        self._free_slots = list(range(SLOTS - 1, -1, -1))
        self._generations = [0] * SLOTS
        # Regions in use, oldest first, with their extent: ``start`` of a region, and its end.
        self._used: dict[int, tuple[Region, int]] = {}

    def __len__(self) -> int:
        return len(self._used)

    @property
    def free(self) -> int:
        """Bytes that are in no region."""
        return sum([end - start for start, end in self._holes])

    def allocate(self, size: int) -> Region | None:
        """Return a new region for ``size`` bytes; None if there is no room."""
        if not self._free_slots:
            return None
        length = -(-size // PAGE) * PAGE
        holes = self._holes
        for at, (start, end) in enumerate(holes):
            if end - start >= length:
                holes[at : at + 1] = [(start + length, end)] if end - start > length else []
                break
        else:
            return None
        slot = self._free_slots.pop()
        generation = self._generations[slot] = (self._generations[slot] + 1) % GENERATIONS
        region = Region(slot, generation, start, size)
        self._used[slot] = (region, start + length)
        return region

    def extent(self, slot: int) -> int:
        """Return the bytes of the region in a slot, up to the next region or hole."""
        region, end = self._used[slot]
        return end - region.start

    def renew(self, slot: int) -> int:
        """Use the region in a slot for another payload; return its new generation."""
        generation = self._generations[slot] = (self._generations[slot] + 1) % GENERATIONS
        return generation

    def reclaim(self, words: Sequence[int], *, is_thorough: bool = False) -> int:
        """Take back the regions that the peer has freed; return how many.

        Messages are mostly read in order, so the search ends at the first region that the peer has
        not freed, unless ``is_thorough``. The peer writes the words, so they are only compared.
        """
        freed = []
        for slot, (region, _) in self._used.items():
            if words[slot] == region.generation:
                freed.append(slot)
            elif not is_thorough:
                break
        for slot in freed:
            self.release(slot)
        return len(freed)

    def release(self, slot: int) -> None:
        """Take back the region of a slot."""
        region, end = self._used.pop(slot)
        self._free_slots.append(slot)
        start, holes = region.start, self._holes
        insort(holes, (start, end))
        at = holes.index((start, end))
        if at + 1 < len(holes) and holes[at + 1][0] == end:
            holes[at : at + 2] = [(start, holes[at + 1][1])]
        if at and holes[at - 1][1] == start:
            holes[at - 1 : at + 1] = [(holes[at - 1][0], holes[at][1])]
