"""Segments of shared memory: making them, passing them to peers, and mapping them.

``core.channel.shared_memory`` has the theory; this module performs it on Linux.

**Nothing has a name.** A segment is an anonymous file (``memfd_create``). The kernel frees it with
its last mapping and descriptor, so that a process that is killed at any moment leaves no file
behind. The descriptor travels through a Unix socket (``SCM_RIGHTS``) in the abstract namespace,
which has no file either. This namespace belongs to a network namespace: a peer in another one finds
no socket there, and the channel continues by UDP.

**The checks of the receiver.** Both ends of the Unix socket read the credentials of the other from
the kernel (``SO_PEERCRED``). It has to be the same user, in the same IPC, user and network
namespaces, so that containers that share a network are separated. Then the side with the segment
sends the nonce that the peer put into the handshake of this channel, and receives its own nonce in
return. In a sealed channel only the peer can read the nonce, so that the keys of the channel decide
who gets the segment.

**The first use.** A segment costs each side two descriptors and address space. So none is made
before a channel has sent ``WORTHWHILE`` bytes in messages of sufficient size, or few small messages
128 times in quick succession. At most ``MOST_SEGMENTS`` channels of a node have one in each
direction, and ``MOST_FOR_SMALL`` if only small messages call for it. These messages, and those that
follow until the peer has mapped the segment, travel by UDP. An attempt that fails is not repeated
in this channel, unless this node had too many.

**The ring** needs a second descriptor, an eventfd. It also requires that stores become visible to
other processors in their order, as on x86. On other processors descriptors travel in packets. For
the full barrier of ``core.channel.shared_memory``, this module acquires a free lock, whose atomic
instruction is a barrier.

**A segment that shrinks** under a mapping kills the process that reads it (SIGBUS). The sender
seals the size of the file, and the receiver maps no file without that seal. Any other harm that a
peer of the same user can do by the memory, it can also do to the process itself.

**The common segment** of a node is made for the first channel of a group, and passed to the peer
together with the segment of each such channel. Its seals forbid further writable mappings, so that
no peer can change the bytes that another one reads.

**A full segment.** The sender checks ``PATIENCE`` times whether the reader has freed enough. After
a message for which that was in vain, it does not wait again until the reader frees anything.
Messages without room travel by UDP, where credit limits them as usual.
"""

import fcntl
import mmap
import os
import platform
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from math import inf
from struct import Struct
from typing import Any, Final, TypeAlias
from weakref import ref

import trio

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.shared_memory import (
    ALIGNMENT,
    CELLS,
    COMMON,
    COUNTS,
    DATA_START,
    HEAD,
    HELLO_SIZE,
    MARKER_SIZE,
    NOTICED,
    PAGE,
    SEGMENT_SIZE,
    SLOTS,
    TAIL,
    WAITS,
    Region,
    RegionLedger,
    Rendezvous,
    SegmentTerms,
    cell_of,
    check_region_untrusted,
    decode_descriptor_untrusted,
    decode_hello_untrusted,
    decode_segment_untrusted,
    encode_descriptor,
    encode_hello,
    encode_segment,
    is_descriptor,
    read_entry_untrusted,
    read_notice_untrusted,
    write_entry,
    write_notice,
)
from sphtp.core.packing import Parts
from sphtp.errors import RemoteError
from sphtp.shell.config import SECRETS

IS_SUPPORTED: Final = sys.platform == "linux" and hasattr(os, "memfd_create")

HAS_RING: Final = platform.machine() in ("x86_64", "AMD64")
"""True if stores become visible to other processors in their order: a reader that sees the new
``HEAD`` also sees the entry. On other processors descriptors travel in packets."""

HANDOVER: Final = 5.0
"""The most seconds for passing a segment to the peer. Messages travel by UDP meanwhile."""

WORTHWHILE: Final = 64 * 1024
"""The bytes in messages of at least ``shared_memory_threshold`` from which a segment is made."""

SMALL_COUNTS: Final = 512
"""The bytes for which small messages of one turn count towards ``WORTHWHILE``: they cost a packet,
whatever their size. So 128 such turns make a segment."""

SUCCESSION: Final = 0.05
"""The most seconds since the last such turn for which a turn counts at all."""

MOST_SEGMENTS: Final = 100
"""The most channels of a node with a segment, in each direction. A segment takes two descriptors,
and a process has 1,024 by default."""

MOST_FOR_SMALL: Final = 50
"""The number of segments from which on small messages make no further one."""

PACKETED: Final = 16 * 1024
"""The bytes of a message from which a packet with its descriptor costs less than its own packets.
"""

PATIENCE: Final = 8
PAUSE: Final = 0.0005
"""The checks of a sender for room in a full segment, and the seconds between two of them. A reader
that is not stuck frees megabytes in that time."""

BACKLOG: Final = 128
NO_DESCRIPTORS: Final = 0.1
"""Seconds until the next try to accept when the process has no file descriptors left."""

MAPPED: Final = b"\1"
OVERFLOW_USER: Final = 65_534
"""The user that the kernel reports for users that do not exist in this user namespace."""

YOUNGEST: Final = 4
"""The regions of the common segment that are tried before a new one. A member whose program keeps
no array frees a contribution one or two steps later."""

_CREDENTIALS: Final = Struct("3i")
_DESCRIPTOR_WIDTH: Final = 4
_MOST_DESCRIPTORS: Final = 8
_FILES: Final = 2
"""The least number of files for a segment: its own, and the eventfd of its ring."""

_F_SEAL_FUTURE_WRITE: Final = 0x10
"""A seal of Linux 5.1; Python's ``fcntl`` has the name from 3.14 on."""


def _make_file(size: int) -> tuple[int, mmap.mmap]:
    """Return an anonymous file whose size is sealed, and a mapping of it to write to."""
    file = os.memfd_create("sphtp", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return file, mmap.mmap(file, size)
    except OSError:
        os.close(file)
        raise


def _skew(parts: Parts) -> int:
    """Return the bytes of a region before the payload, which align the items of an array."""
    # The items are at the end of the payload, behind the head.
    return 0 if parts.body is None else -len(parts.head) % ALIGNMENT


def _write(parts: Parts, ledger: RegionLedger, view: memoryview) -> Region | None:
    """Copy a payload into a new region; return its place, or None if there is no room."""
    skew = _skew(parts)
    region = ledger.allocate(skew + parts.size)
    if region is None:
        return None
    start = region.start + skew
    parts.write(view, start)
    return Region(region.slot, region.generation, start, parts.size)


class _Copy:
    """A region of the common segment, and the segments of the peers that get its payload."""

    __slots__ = ("extent", "generation", "readers", "slot", "start")

    def __init__(self, region: Region, extent: int) -> None:
        self.slot, self.generation, self.start, _ = region
        self.extent = extent
        self.readers: list[OutboundSegment] = []

    @property
    def is_free(self) -> bool:
        """True if all peers have freed the region."""
        slot, generation = self.slot, self.generation
        return all(reader.common_words[slot] == generation for reader in self.readers)


class CommonSegment:
    """The segment of a node for payloads that go to several peers: each is written once.

    A region that all its peers have freed is used again as it is, without the ledger, because a
    simulation sends payloads of one size. The youngest regions are tried first: they are in the
    caches of the processor.

    A channel may end while its peer still reads a region, because the peer was frozen, or has an
    array without a copy. Such a region is never used again. If a segment has lost more than a
    quarter of its bytes in this way, it is worn out, and new channels get another segment. A
    segment is closed with the last of its channels.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.file, self._mapping = _make_file(size)
        with suppress(OSError):
            # An older kernel does not have this seal; peers of the same user are trusted there.
            fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
        self._view = memoryview(self._mapping)
        self._ledger = RegionLedger(size)
        # The regions by slot, the one that was written last at the end.
        self._copies: dict[int, _Copy] = {}
        # The payload that came last; its copy and the region of its bytes, or None if there was no
        # room.
        self._latest: tuple[ref[Parts], tuple[_Copy, Region] | None] | None = None
        self._channels = 0
        self._lost = 0
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def is_worn_out(self) -> bool:
        """True if the segment has lost too many bytes for new channels."""
        return self.is_closed or 4 * self._lost > self.size

    def store(self, parts: Parts, reader: "OutboundSegment") -> Region | None:
        """Copy a payload into a region, unless it was the last one; return the place for a reader.

        Return None if there is no room.
        """
        latest = self._latest
        if latest is None or latest[0]() is not parts:
            latest = self._latest = ref(parts), self._copy(parts)
        if latest[1] is None:
            return None
        copy, region = latest[1]
        copy.readers.append(reader)
        return region

    def _copy(self, parts: Parts) -> tuple[_Copy, Region] | None:
        """Copy a payload into a free region; return None if there is none."""
        skew, ledger, copies = _skew(parts), self._ledger, self._copies
        size = skew + parts.size
        for copy in islice(reversed(copies.values()), YOUNGEST):
            if copy.extent >= size and copy.is_free:
                copy.generation = ledger.renew(copy.slot)
                break
        else:
            self._reclaim()
            found = ledger.allocate(size)
            if found is None:
                self._reclaim(is_thorough=True)
                found = ledger.allocate(size)
            if found is None:
                return None
            copy = _Copy(found, ledger.extent(found.slot))
        # To the end: it is the youngest.
        copies.pop(copy.slot, None)
        copies[copy.slot] = copy
        copy.readers.clear()
        start = copy.start + skew
        parts.write(self._view, start)
        return copy, Region(COMMON + copy.slot, copy.generation, start, parts.size)

    def _reclaim(self, *, is_thorough: bool = False) -> None:
        """Give free regions back to the ledger, oldest first.

        Unless ``is_thorough``, the search ends at the first region that is not free.
        """
        for slot, copy in tuple(self._copies.items()):
            if copy.is_free:
                self._ledger.release(slot)
                del self._copies[slot]
            elif not is_thorough:
                break

    def join(self) -> None:
        """Add a channel that uses this segment."""
        self._channels += 1

    def leave(self, reader: "OutboundSegment") -> None:
        """Remove a channel, which has ended. Close the segment with the last one."""
        for slot, copy in tuple(self._copies.items()):
            if reader in copy.readers and reader.common_words[slot] != copy.generation:
                self._lost += copy.extent
                del self._copies[slot]
        self._channels -= 1
        if not self._channels and not self.is_closed:
            self.is_closed = True
            os.close(self.file)
            self._view.release()
            # The mappings of peers stay.
            self._mapping.close()


class OutboundSegment:
    """The segment into which this side of a channel writes; its peer also has ``common``."""

    def __init__(self, size: int, common: CommonSegment | None = None) -> None:
        self.marker = SECRETS.getrandbits(8 * MARKER_SIZE).to_bytes(MARKER_SIZE, "little")
        self.size = size
        self.is_stuck = False
        self.is_closed = False
        self._common = common
        self._ledger = RegionLedger(size)
        self.event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            self.file, self._mapping = _make_file(size)
        except OSError:
            os.close(self.event)
            raise
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
        self._view = memoryview(self._mapping)
        self._words = self._view[:DATA_START].cast("I")
        self.common_words: Sequence[int] = self._words[COMMON : COMMON + SLOTS]
        """The generations of the regions of the common segment that the peer has freed, by slot."""
        self._head = 0
        self._posted = 0
        self._barrier = threading.Lock()
        if common is not None:
            common.join()

    @property
    def in_ring(self) -> int:
        """The number of entries that the peer has not taken out of the ring."""
        return min((self._head - self._words[TAIL]) % COUNTS, SLOTS)

    @property
    def is_ring_full(self) -> bool:
        """True if the ring has no room: the peer has not taken ``SLOTS`` entries."""
        return (self._head - self._words[TAIL]) % COUNTS >= SLOTS

    def push(self, descriptor: bytes, lane: int, message_id: int) -> None:
        """Put a descriptor into the ring, and wake the peer if it waits."""
        write_entry(self._view, self._head, descriptor, lane, message_id)
        self._head = self._words[HEAD] = (self._head + 1) % COUNTS
        self._wake()

    def post(self, parts: Parts) -> bool:
        """Send a contribution as a notice; return False if there is no cell or no room for it."""
        common, step = self._common, parts.step
        if common is None or step is None:
            return False
        if (self._posted - self._words[NOTICED]) % COUNTS >= CELLS:
            return False
        if (region := common.store(parts, self)) is None:
            return False
        self._posted += 1
        write_notice(self._view, self._words, self._posted, region, step)
        self._wake()
        return True

    def _wake(self) -> None:
        """Wake the peer if it waits."""
        with self._barrier:
            pass
        if self._words[WAITS]:
            # One event is enough: the peer sets the word again after the event.
            self._words[WAITS] = 0
            os.eventfd_write(self.event, 1)

    @property
    def unread(self) -> int:
        """The number of messages in this segment that the peer has not freed."""
        self._ledger.reclaim(self._words, is_thorough=True)
        return len(self._ledger)

    def store(self, parts: Parts) -> bytes | None:
        """Copy a payload into a region; return its descriptor, or None if there is no room."""
        if parts.step is not None and self._common is not None:
            region = self._common.store(parts, self)
            if region is not None:
                return encode_descriptor(self.marker, region)
        ledger = self._ledger
        freed = ledger.reclaim(self._words)
        region = _write(parts, ledger, self._view)
        if region is None:
            freed += ledger.reclaim(self._words, is_thorough=True)
            region = _write(parts, ledger, self._view)
        self.is_stuck &= not freed
        return None if region is None else encode_descriptor(self.marker, region)

    def is_descriptor(self, payload: bytes) -> bool:
        """Return True if a message is the descriptor of a message in this segment."""
        return is_descriptor(payload, self.marker)

    def close_file(self) -> None:
        """Close the file descriptor. Mappings stay."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def close(self) -> None:
        """Unmap the segment. The peer's mapping stays."""
        self.close_file()
        os.close(self.event)
        # Keep the present words: the peer may go on reading regions that it has not freed.
        words, self.common_words = self.common_words, tuple(self.common_words)
        if isinstance(words, memoryview):
            words.release()
        self.is_closed = True
        if self._common is not None:
            self._common.leave(self)
        self._words.release()
        self._view.release()
        self._mapping.close()


def _map_file(file: int, size: int, access: int) -> mmap.mmap:
    """Map a peer's file. Raises ``RemoteError`` or ``OSError`` if that is impossible or unsafe."""
    try:
        seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
    except OSError:
        raise RemoteError("a segment that cannot be sealed") from None
    if not seals & fcntl.F_SEAL_SHRINK or os.fstat(file).st_size < size:
        raise RemoteError("a segment that may shrink")
    return mmap.mmap(file, size, access=access)


class InboundSegment:
    """The segment from which this side of a channel reads, and the peer's common one if any.

    The constructor closes the file descriptors ``files``. It raises ``RemoteError`` or ``OSError``
    if one cannot be mapped safely.
    """

    def __init__(self, files: Sequence[int], terms: SegmentTerms, max_message: int) -> None:
        self._marker, size, common_size = terms
        try:
            if len(files) != 1 + bool(common_size):
                raise RemoteError(f"{len(files)} files for a segment")
            self._mapping = _map_file(files[0], size, mmap.ACCESS_WRITE)
            common = memoryview(b"")
            if common_size:
                common = memoryview(_map_file(files[1], common_size, mmap.ACCESS_READ))
        finally:
            close_files(files)
        self._sizes = size, common_size
        self._max_message = max_message
        self._view = memoryview(self._mapping)
        self._words = self._view[:DATA_START].cast("I")
        # Indexed by whether a region is common.
        self._payloads = self._view.toreadonly(), common
        # Weak references to arrays that are views, by slot: a region is freed with its array.
        self._lent: dict[int, ref[Any]] = {}
        self._tail = 0
        # The number of notices that were taken, or skipped.
        self._noticed = 0
        self._barrier = threading.Lock()
        self.is_closed = False
        # A task may wait already.
        self._words[WAITS] = 1

    @property
    def has_entry(self) -> bool:
        """True if the ring has an entry to take."""
        return not self.is_closed and self._words[HEAD] != self._tail

    def has_notice(self, number: int) -> bool:
        """Return True if the next notice has this number. Skips those with lower numbers."""
        found = self._find_notice(number)
        return found is not None and found[1] == number

    def take_notice_untrusted(self, least: int, before: float) -> tuple[Region, memoryview] | None:
        """Take the next notice, and return the same as ``open_untrusted``.

        Return None if there is none, or its number is not below ``before``. Skip the notices with
        numbers below ``least``. Raises ``RemoteError`` if the notice is malformed.
        """
        found = self._find_notice(least)
        if found is None or found[1] >= before:
            return None
        self._pass_notice()
        region = check_region_untrusted(found[0], self._sizes, self._max_message)
        payloads = self._payloads[region.slot >= COMMON]
        return region, payloads[region.start : region.start + region.size]

    def _find_notice(self, least: int) -> tuple[Region, int] | None:
        """Return the region, unchecked, and the number of the next notice from ``least`` on."""
        if self.is_closed:
            return None
        for _ in range(CELLS):
            count = self._noticed + 1
            cell = cell_of(count)
            if self._words[cell] != count % COUNTS:
                break
            found = read_notice_untrusted(self._view, cell)
            if found[1] >= least:
                return found
            self._pass_notice()
            with suppress(RemoteError):
                self.free(check_region_untrusted(found[0], self._sizes, self._max_message))
        # A notice that comes now wakes the reader, if one waits.
        return None

    def _pass_notice(self) -> None:
        """Give the cell of the next notice back to the peer."""
        self._noticed += 1
        self._words[NOTICED] = self._noticed % COUNTS

    def await_entry(self) -> bool:
        """Have the peer wake this side for the next entry. Return False if one is there already."""
        if self.is_closed:
            return True
        words = self._words
        words[WAITS] = 1
        with self._barrier:
            pass
        return words[HEAD] == self._tail

    def stop_waiting(self) -> None:
        """Have the peer stop waking this side, because no reader waits any more."""
        if not self.is_closed:
            self._words[WAITS] = 0

    def take_entries_untrusted(self, deliver: Callable[[int, int, bytes], bool]) -> bool:
        """Pass entries of the ring to ``deliver`` until it returns False for want of room.

        Return True if any entry was taken. Their descriptors are checked when they are read.
        """
        if self.is_closed:
            return False
        words, tail = self._words, self._tail
        head = words[HEAD]
        if (head - tail) % COUNTS > SLOTS:
            # The peer's count is impossible, so that the content of the ring is ignored.
            tail = head
        while tail != head:
            try:
                if not deliver(*read_entry_untrusted(self._view, tail, self._marker)):
                    break
            except RemoteError:
                # An entry for a lane that does not exist is dropped.
                pass
            tail = (tail + 1) % COUNTS
        if tail == self._tail:
            return False
        self._tail = words[TAIL] = tail
        return True

    def is_descriptor(self, payload: bytes) -> bool:
        """Return True if a message is the descriptor of a message in this segment."""
        return is_descriptor(payload, self._marker)

    def open_untrusted(self, payload: bytes) -> tuple[Region, memoryview]:
        """Return the region of a descriptor, and its payload, which the peer may change.

        Raises ``RemoteError`` if the descriptor is malformed.
        """
        region = decode_descriptor_untrusted(payload, self._sizes, self._max_message)
        payloads = self._payloads[region.slot >= COMMON]
        return region, payloads[region.start : region.start + region.size]

    def free(self, region: Region) -> None:
        """Give a region back to the peer."""
        self._words[region.slot] = region.generation

    def lend(self, region: Region, array: Any) -> None:
        """Give a region back as soon as the program has dropped an array."""
        words = self._words

        def give_back(gone: "ref[Any]") -> None:
            if lent.get(region.slot) is gone:
                del lent[region.slot]
                words[region.slot] = region.generation

        lent = self._lent
        lent[region.slot] = ref(array, give_back)

    def close(self) -> None:
        """Unmap the segment, or leave that to the last array that is a view of it."""
        self.is_closed = True
        self._lent.clear()
        self._words.release()
        for payloads in self._payloads:
            payloads.release()
        self._view.release()
        # The mapping is not closed but dropped: arrays may still be views of it. NumPy keeps the
        # mapping alive, but has no buffer of it that would forbid closing.
        del self._mapping


class ChannelMemory:
    """The segments of one channel: one for each direction, made on demand."""

    def __init__(self, offer: "Offer", settings: ChannelSettings) -> None:
        self.threshold = settings.shared_memory_threshold
        self.outbound: OutboundSegment | None = None
        self.inbound: InboundSegment | None = None
        self.is_copied = not settings.array_views
        self.is_closed = False
        self.has_common = False
        """True if the channel carries messages for several peers. Set before a segment is made."""
        # The number of entries that the peer had not taken when the channel ended.
        self._left_over = 0
        # The function that makes a segment, until it was called; and the bytes of the messages that
        # a segment would have carried.
        self._offer: Offer | None = offer
        self._wanted = 0
        # The time at which small messages last left in a packet.
        self._small_at = -inf

    @property
    def waiting(self) -> int:
        """The number of messages in the ring that the peer has not taken."""
        return self._left_over if self.outbound is None else self.outbound.in_ring

    def count(self, connection: Connection, size: int) -> None:
        """Count a large message of ``size`` bytes."""
        self._count(connection, size, MOST_SEGMENTS)

    def _count(self, connection: Connection, size: int, most: int) -> None:
        """Count bytes, and have a segment made, once, from ``WORTHWHILE`` on.

        If the node has ``most`` segments already, try again after as many bytes.
        """
        self._wanted += size
        if self._offer is None or self._wanted < WORTHWHILE:
            return
        self._wanted = 0
        if (both := connection.rendezvous) is not None and self._offer(self, *both, most):
            self._offer = None

    def count_small(self, connection: Connection, now: float) -> None:
        """Count small messages of one turn, if the last ones left at most ``SUCCESSION`` s before.

        So a node with a thousand channels that send now and then needs no descriptors for them.
        """
        if HAS_RING and now - self._small_at <= SUCCESSION:
            self._count(connection, SMALL_COUNTS, MOST_FOR_SMALL)
        self._small_at = now

    def close_outbound(self) -> None:
        """Stop sending by shared memory."""
        self._offer = None
        if self.outbound is not None:
            self._left_over = self.outbound.in_ring
            self.outbound.close()
            self.outbound = None

    def close(self) -> None:
        """Free both segments."""
        self.is_closed = True
        self.close_outbound()
        if self.inbound is not None:
            self.inbound.close()
            self.inbound = None


Offer: TypeAlias = Callable[[ChannelMemory, Rendezvous, Rendezvous, int], bool]
"""A function that makes a segment and passes it to the peer. It gets both rendezvous, this side's
and the peer's, and returns False if the node has as many segments as the last argument.
"""


class SharedMemory:
    """The segments of a node: it passes its own to peers, and takes those of peers."""

    def __init__(
        self,
        listener: socket.socket,
        settings: ChannelSettings,
        connections: Callable[[], tuple[Connection, ...]],
        report: Callable[[Connection], None],
    ) -> None:
        self._listener = listener
        self._settings = settings
        self._connections = connections
        self._report = report
        self._common: CommonSegment | None = None
        self._nursery: trio.Nursery | None = None
        # The number of segments that are being passed to peers.
        self._underway = 0
        # The rings of peers, each with the scope of the task that waits for entries.
        self._rings: dict[Connection, tuple[InboundSegment, trio.CancelScope]] = {}

    def take_entries(self) -> list[Connection]:
        """Take the entries of all rings, before packets are handled.

        Return the connections that had any.
        """
        return [
            connection
            for connection, (segment, _) in self._rings.items()
            if segment.take_entries_untrusted(connection.port.deliver_beside_untrusted)
        ]

    def end(self, connection: Connection) -> None:
        """Take the remaining entries of a channel that has ended."""
        if connection in self._rings:
            segment, waits = self._rings.pop(connection)
            segment.take_entries_untrusted(connection.port.deliver_beside_untrusted)
            waits.cancel()

    async def _wait_for_entries(
        self,
        connection: Connection,
        segment: InboundSegment,
        waits: trio.CancelScope,
        event: int,
    ) -> None:
        try:
            with waits:
                while True:
                    await trio.lowlevel.wait_readable(event)
                    with suppress(BlockingIOError):
                        os.eventfd_read(event)
                    # This is first, so that an entry that is not taken now causes another event. A
                    # reader that gets an entry calls ``await_entry`` itself if it waits again.
                    segment.await_entry()
                    segment.take_entries_untrusted(connection.port.deliver_beside_untrusted)
                    # Also if a task that polls has taken them: they may be for another one, too, or
                    # nobody may have to be woken any more.
                    self._report(connection)
        finally:
            self._rings.pop(connection, None)
            os.close(event)

    def of(self, connection: Connection) -> ChannelMemory:
        """Return the shared memory of a channel."""
        memory = connection.attachment
        if not isinstance(memory, ChannelMemory):
            # The peer may pass a segment before the program accepts the channel.
            memory = connection.attachment = ChannelMemory(self._offer, self._settings)
        return memory

    async def run(self) -> None:
        """Take the segments of peers, and pass this node's segments to peers, until cancelled."""
        listener = trio.socket.from_stdlib_socket(self._listener)
        async with trio.open_nursery() as self._nursery:
            while True:
                try:
                    peer, _ = await listener.accept()
                except OSError:
                    await trio.sleep(NO_DESCRIPTORS)
                    continue
                if _is_kin(peer):
                    self._nursery.start_soon(self._bounded, self._take, peer)
                else:
                    peer.close()

    def close(self) -> None:
        """Free the segments of all channels, because the node is closing."""
        self._nursery = None
        for connection in self._connections():
            if isinstance(memory := connection.attachment, ChannelMemory):
                memory.close()

    async def _bounded(self, task: Callable[..., Any], *args: Any) -> None:
        # If the peer is the wrong one, or does not respond, the channel continues by UDP.
        with trio.move_on_after(HANDOVER), suppress(OSError, RemoteError):
            await task(*args)

    # Outbound segments

    def _offer(self, memory: ChannelMemory, own: Rendezvous, peer: Rendezvous, most: int) -> bool:
        memories = [connection.attachment for connection in self._connections()]
        used = sum(isinstance(it, ChannelMemory) and it.outbound is not None for it in memories)
        if self._nursery is None or used + self._underway >= most:
            return False
        self._underway += 1
        self._nursery.start_soon(self._bounded, self._hand_over, memory, own, peer)
        return True

    async def _hand_over(self, memory: ChannelMemory, own: Rendezvous, peer: Rendezvous) -> None:
        try:
            await self._pass_to_peer(memory, own, peer)
        finally:
            self._underway -= 1

    async def _pass_to_peer(self, memory: ChannelMemory, own: Rendezvous, peer: Rendezvous) -> None:
        with trio.socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as there:
            await there.connect(_address(peer.name))
            if not _is_kin(there):
                return
            await there.send(encode_hello(peer.nonce))
            if decode_hello_untrusted(await there.recv(HELLO_SIZE + 1)) != own.nonce:
                return
            size = self._settings.shared_memory // PAGE * PAGE + DATA_START
            if memory.has_common and (self._common is None or self._common.is_worn_out):
                self._common = CommonSegment(size)
            common = self._common if memory.has_common else None
            segment: OutboundSegment | None
            segment = OutboundSegment(size, common)
            try:
                files = [segment.file, segment.event]
                terms = SegmentTerms(segment.marker, segment.size)
                if common is not None:
                    files.append(common.file)
                    terms = terms._replace(common_size=common.size)
                descriptors = b"".join(
                    file.to_bytes(_DESCRIPTOR_WIDTH, sys.byteorder) for file in files
                )
                await there.sendmsg(
                    [encode_segment(terms)],
                    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)],
                )
                segment.close_file()
                if await there.recv(1) == MAPPED and not memory.is_closed:
                    memory.outbound, segment = segment, None
            finally:
                if segment is not None:
                    segment.close()

    # Inbound segments

    async def _take(self, there: trio.socket.SocketType) -> None:
        with there:
            nonce = decode_hello_untrusted(await there.recv(HELLO_SIZE + 1))
            connection = self._find(nonce)
            if connection is None or connection.rendezvous is None:
                return
            memory = self.of(connection)
            await there.send(encode_hello(connection.rendezvous[1].nonce))
            files, description = await receive_files(there)
            is_over = memory.is_closed or connection.closed is not None
            is_full = memory.inbound is not None or len(self._rings) >= MOST_SEGMENTS
            if len(files) < _FILES or is_full or is_over:
                close_files(files)
                return
            segment_file, event, *common = files
            try:
                terms = decode_segment_untrusted(description)
                check_event(event)
            except RemoteError:
                close_files(files)
                raise
            try:
                segment = InboundSegment((segment_file, *common), terms, self._settings.max_message)
            except (RemoteError, OSError):
                os.close(event)
                raise
            if self._nursery is None:
                os.close(event)
                return
            memory.inbound, waits = segment, trio.CancelScope()
            self._rings[connection] = segment, waits
            self._nursery.start_soon(self._wait_for_entries, connection, segment, waits, event)
            await there.send(MAPPED)

    def _find(self, nonce: int) -> Connection | None:
        for connection in self._connections():
            if (both := connection.rendezvous) is not None and both[0].nonce == nonce:
                return connection if connection.closed is None else None
        return None


def _address(name: int) -> bytes:
    """Return the abstract address of a node's socket."""
    return b"\0sphtp-%08x" % name


@contextmanager
def open_rendezvous(*, is_wanted: bool) -> Iterator[tuple[socket.socket | None, int]]:
    """Bind the Unix socket of a node for the length of the block, if it is wanted and possible.

    Yield the socket and its name, or None and 0.
    """
    if not (is_wanted and IS_SUPPORTED):
        yield None, 0
        return
    with ExitStack() as opened:
        name = 1 + SECRETS.getrandbits(32) % (2**32 - 1)
        try:
            kind = socket.SOCK_SEQPACKET
            listener = opened.enter_context(socket.socket(socket.AF_UNIX, kind))
            listener.bind(_address(name))
            listener.listen(BACKLOG)
        except OSError:
            # The name is in use, or a sandbox forbids such sockets.
            yield None, 0
            return
        yield listener, name


def _is_kin(there: trio.socket.SocketType) -> bool:
    """Return True if the other end is of the same user, and in the same namespaces.

    A process in a PID namespace that is not below this one's has no process id here.
    """
    try:
        credentials = there.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, user, _ = _CREDENTIALS.unpack(credentials)
        if not process or user != os.geteuid() or user == OVERFLOW_USER:
            return False
        return all(
            os.readlink(f"/proc/{process}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}")
            for kind in ("ipc", "user", "net")
        )
    except OSError:
        return False


async def receive_files(there: trio.socket.SocketType) -> tuple[list[int], bytes]:
    """Receive a packet. Return its file descriptors and its bytes."""
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * _DESCRIPTOR_WIDTH)
    segment, ancillary, _, _ = await there.recvmsg(SEGMENT_SIZE + 1, room, socket.MSG_CMSG_CLOEXEC)
    files = [
        int.from_bytes(data[at : at + _DESCRIPTOR_WIDTH], sys.byteorder)
        for level, kind, data in ancillary
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        for at in range(0, len(data) // _DESCRIPTOR_WIDTH * _DESCRIPTOR_WIDTH, _DESCRIPTOR_WIDTH)
    ]
    return files, segment


def close_files(files: Iterable[int]) -> None:
    """Close file descriptors."""
    for file in files:
        os.close(file)


def check_event(file: int) -> None:
    """Raise ``RemoteError`` for a file that is no eventfd; make the file non-blocking."""
    if os.readlink(f"/proc/self/fd/{file}") != "anon_inode:[eventfd]":
        raise RemoteError("a file that is no eventfd")
    os.set_blocking(file, False)
