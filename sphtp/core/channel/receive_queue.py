"""The receive queue of a channel: it delivers each reliable message once, and bounds memory.

This is the receive step of Fiedler's messages. An ordered lane delivers the message with the next
id, and then the messages behind it that have already arrived. Messages ahead of the next id are
kept by id. One integer has the ids ahead that are done, that is delivered or given up: bit n stands
for the id n after the next one, as bits stand for packets in acks. So memory depends on the bytes
that have arrived, and hardly on the distance between two ids, which the peer chooses. Messages that
were delivered before are ignored. Their packet is acked nevertheless; otherwise the peer would
retransmit them for ever.

A packet is accepted as a whole or not at all, and only accepted packets are acked. First all ids
are restored and all frames are checked against the limits, then all messages are inserted. There is
one exception: a node whose memory is full may insert some messages of a packet that it refuses, so
that its readers make progress.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from sphtp.core.channel.flow_control import COST, NodeMemory, ReceiveCredit
from sphtp.core.channel.frames import FLAG, Content, Fragment, Messages, Skip, Unreliable
from sphtp.core.channel.reassembly import MessageProgress, OversizeError, Reassembly
from sphtp.core.channel.settings import MOST_LANES, ChannelSettings
from sphtp.core.channel.statistics import BoundCounters
from sphtp.core.packing import READ_BYTES
from sphtp.core.serial import HALF, MASK, unwrap
from sphtp.errors import RemoteError

BATCH: Final = 1024
BATCH_BYTES: Final = 128 * 1024
"""The most messages, and bytes in them, that packets deliver in one list. A larger list of messages
is split; a single message may have more bytes."""

MOST_GAPS: Final = 16_384
"""The most gaps in the partial messages of a channel. Each gap stands for a packet in flight, and
no honest sender has more packets in flight (``sent_packets.FARTHEST``)."""

UNBOUNDED: Final = 1 << 62
"""The limit of a node whose memory is not limited, in bytes."""


class UnreadableMessages:
    """Reliable messages of all lanes that cannot be read yet.

    They wait for a message with a lower id, which is head-of-line blocking, or for a part of their
    own. ``size`` counts their bytes in full, and ``gaps`` the gaps between the parts that arrived.
    """

    __slots__ = ("gaps", "messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.gaps = 0

    def add(self, size: int) -> None:
        """Count a message of ``size`` bytes."""
        self.messages += 1
        self.size += size

    def remove(self, size: int) -> None:
        """Stop counting a message of ``size`` bytes."""
        self.messages -= 1
        self.size -= size


class UnorderedLane:
    """A lane that delivers messages on arrival, and records their ids ahead of ``next_id``."""

    __slots__ = ("_blocked", "_done", "_waiting", "next_id")

    def __init__(self, first_id: int, blocked: UnreadableMessages) -> None:
        self.next_id = first_id
        self._done = 0
        self._waiting: dict[int, bytes | Reassembly] = {}
        self._blocked = blocked

    def admits(self, message_id: int, frame: Fragment, limit: int) -> bool:
        """Return True if a fragment can be stored without more gaps than ``MOST_GAPS``.

        ``limit`` is ``max_message`` in bytes. Raises ``RemoteError`` if the message is over the
        limit, or if the fragment contradicts earlier ones.
        """
        known = self._waiting.get(message_id)
        if isinstance(known, Reassembly):
            known.check(frame)
            return self._blocked.gaps < MOST_GAPS or not known.is_apart(frame)
        if frame.total > limit:
            raise OversizeError(frame.total, limit)
        return True

    def new_sizes(self, message_id: int, frame: Messages | Fragment | Skip) -> list[int]:
        """Return the sizes of the messages in a frame of which nothing has arrived before."""
        if isinstance(frame, Messages):
            rows = enumerate(frame.payloads, message_id)
            return [len(payload) for at, payload in rows if not self._is_known(at)]
        if isinstance(frame, Skip) or self._is_known(message_id):
            return []
        return [frame.total]

    def insert_messages(self, message_id: int, payloads: Sequence[bytes]) -> Sequence[bytes]:
        """Insert messages with ids from ``message_id`` on; return the messages to deliver now."""
        if message_id == self.next_id and not self._waiting and not self._done:
            # The path without loss and reordering: the frame's own list is delivered.
            self.next_id += len(payloads)
            return payloads
        released: list[bytes] = []
        for at, payload in enumerate(payloads, message_id):
            if not self._is_known(at):
                self._store(at, payload, released)
        self._release(released)
        return released

    def insert_fragment(self, message_id: int, frame: Fragment) -> Sequence[bytes]:
        """Insert a fragment; return the messages to deliver now."""
        entry = self._waiting.get(message_id)
        if entry is None:
            if self._is_known(message_id):
                return ()
            entry = self._waiting[message_id] = Reassembly(frame.total)
            self._blocked.add(frame.total)
        if not isinstance(entry, Reassembly):
            return ()
        self._blocked.gaps += entry.add(frame.offset, frame.payload)
        whole = entry.finish()
        if whole is None:
            return ()
        self._forget(message_id, entry)
        return self.insert_messages(message_id, (whole,))

    def insert_skip(self, message_id: int) -> Sequence[bytes] | None:
        """Skip a message; return the messages to deliver now.

        Return None if the message was complete or skipped before.
        """
        entry = self._waiting.get(message_id)
        if isinstance(entry, Reassembly):
            self._forget(message_id, entry)
        elif self._is_known(message_id):
            return None
        self._done |= 1 << message_id - self.next_id
        released: list[bytes] = []
        self._release(released)
        return released

    def incomplete(self) -> list[Reassembly]:
        """Return the messages of which only a part has arrived, oldest first."""
        waiting = sorted(self._waiting)
        return [it for at in waiting if isinstance(it := self._waiting[at], Reassembly)]

    def _is_known(self, message_id: int) -> bool:
        ahead = message_id - self.next_id
        return ahead < 0 or message_id in self._waiting or bool(self._done >> ahead & 1)

    def _forget(self, message_id: int, entry: Reassembly) -> None:
        del self._waiting[message_id]
        self._blocked.remove(entry.total)
        self._blocked.gaps -= entry.gaps

    def _store(self, message_id: int, payload: bytes, released: list[bytes]) -> None:
        released.append(payload)
        self._done |= 1 << message_id - self.next_id

    def _release(self, _released: list[bytes]) -> None:
        """Advance ``next_id`` past the ids that are done."""
        if self._done & 1:
            number = (~self._done & self._done + 1).bit_length() - 1
            self._done >>= number
            self.next_id += number


class OrderedLane(UnorderedLane):
    """A lane that delivers messages in order of id, but for those whose SKIP arrived first."""

    __slots__ = ()

    def _store(self, message_id: int, payload: bytes, released: list[bytes]) -> None:
        self._waiting[message_id] = payload
        self._blocked.add(len(payload))

    def _release(self, released: list[bytes]) -> None:
        while True:
            super()._release(released)
            entry = self._waiting.get(self.next_id)
            if not isinstance(entry, bytes):
                return
            del self._waiting[self.next_id]
            self._blocked.remove(len(entry))
            released.append(entry)
            self.next_id += 1
            self._done >>= 1


Restored = tuple[UnorderedLane, int, Messages | Fragment | Skip]
"""The lane of a reliable frame, the full id of its first message, and the frame."""


class ReceiveQueue:
    """The queue that delivers each reliable message once: in order of id, or on arrival.

    It bounds messages and bytes over all lanes, as credit does, so that a peer that keeps to its
    credit always finds room in its channel. A packet beyond the credit is not accepted, and so not
    acked; only the bytes may exceed the credit, by one packet and one message. ``node`` counts the
    memory of all channels of a node. If the node is full, a packet of a channel that holds more
    than its share is not accepted either, with the exceptions of ``NodeMemory``, and its messages
    are retransmitted.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        first_id: int,
        limits: BoundCounters | None = None,
        node: NodeMemory | None = None,
    ) -> None:
        self.credit = ReceiveCredit(settings.receive_buffer, settings.receive_buffer_bytes)
        largest = settings.unreliable_buffer * (settings.max_datagram + COST)
        self.unreliable = UnreliableReceiveQueue(settings.unreliable_buffer, largest)
        self._limits = BoundCounters() if limits is None else limits
        self._first_id = first_id
        self._window = settings.receive_buffer
        self._max_message = settings.max_message
        # One packet or one message may overdraw the credit.
        overdrawn = max(settings.max_message, settings.max_datagram)
        self._limit = settings.receive_buffer_bytes + overdrawn
        # If no packet is larger than ``max_message``, only fragmented messages can exceed that.
        self._may_be_over = settings.max_message < settings.max_datagram
        self._lanes: dict[int, UnorderedLane] = {}
        self._blocked = UnreadableMessages()
        # Lists of messages to read, in the order of delivery; and the position in the first list.
        self._ready: deque[Sequence[bytes]] = deque()
        self._read = 0
        self.ready_count = 0
        self._ready_bytes = 0
        # The memory of the node, and the bytes of this channel that it counts (``_counted``).
        self._node = NodeMemory(UNBOUNDED) if node is None else node
        self._node.channels += 1
        self._counted = 0

    def __len__(self) -> int:
        return self.ready_count + self.unreliable.unread

    @property
    def held(self) -> int:
        """Bytes of memory that count for this channel; partial messages count in full."""
        messages = self.ready_count + self._blocked.messages
        reliable = self._ready_bytes + self._blocked.size + COST * messages
        return reliable + self.unreliable.held

    @property
    def gaps(self) -> int:
        """The number of gaps in all partial messages."""
        return self._blocked.gaps

    def insert(self, frames: Sequence[Content], sequence: int, batch_bytes: int = 0) -> bool:
        """Insert the messages of packet ``sequence``; return True if the packet is accepted.

        ``batch_bytes`` is the size of the batch that ``frames`` were decoded from, 0 for a single
        packet. A single packet may overdraw credit. If it is refused while the node is full, some
        of its messages may be inserted nevertheless. A batch that is refused has to be inserted
        packet by packet.

        Raises ``RemoteError`` if a message is over the limit or in an invalid lane, or if a
        fragment contradicts earlier packets; nothing is inserted then.
        """
        if not frames:
            return True
        try:
            restored, messages, size, is_ahead = self._restore(frames)
        except OversizeError:
            if not batch_bytes:
                self._limits.count("over_max_message")
            raise
        if is_ahead:
            why: str | None = "over_receive_buffer"
        elif self._fits(messages, max(size, batch_bytes)) and self._node.held <= self._node.limit:
            why = None
        else:
            why = self._exceeded(restored)
        if why is None:
            self._take_in(restored)
            if len(restored) < len(frames):
                self._insert_unreliable(frames, sequence)
        elif not batch_bytes:
            self._limits.count(why)
            if self._node.held > self._node.limit:
                self._insert_wanted(restored)
        return why is None

    def insert_beside(self, number: int, message_id: int, payload: bytes) -> bool:
        """Insert a message that came by shared memory alone.

        Return False if there is no room for it. Raises ``RemoteError`` for an invalid lane.
        """
        lane = self._lanes.get(number) or self._open_lane(number)
        message_id = unwrap(message_id, lane.next_id)
        if (
            self.ready_count + self._blocked.messages >= self._window
            or message_id >= lane.next_id + self._window
        ):
            return False
        payloads = lane.insert_messages(message_id, (payload,))
        if payloads:
            self._ready.append(payloads)
            self.ready_count += len(payloads)
            self._ready_bytes += sum(map(len, payloads))
        self._account()
        return True

    def receive_many(self, limit: int) -> list[bytes]:
        """Return up to ``limit`` messages, unreliable ones first, because they become outdated.

        Return fewer if the reliable ones reach ``READ_BYTES`` bytes.
        """
        if not self._ready and not self.unreliable.unread:
            return []
        once = self.unreliable.take(limit) if self.unreliable.unread else []
        taken: list[bytes] = []
        ready, size, limit = self._ready, 0, limit - len(once)
        while ready and limit > 0 and size < READ_BYTES:
            batch, start = ready[0], self._read
            self._read = start + limit
            part = batch[start : start + limit]
            limit -= len(part)
            size += sum(map(len, part))
            taken += part
            if self._read >= len(batch):
                ready.popleft()
                self._read = 0
        number = len(taken)
        self.ready_count -= number
        self._ready_bytes -= size
        self.credit.read(number, size)
        self._account()
        return once + taken if once else taken

    def arriving(self) -> list[MessageProgress]:
        """Return the progress of each partial message, by lane, oldest first."""
        return [
            MessageProgress(number & ~FLAG, message.size, message.total)
            for number, lane in sorted(self._lanes.items())
            for message in lane.incomplete()
        ]

    def leave_node(self) -> None:
        """Stop counting this channel in its node, because the channel has ended."""
        self._node.held -= self._counted
        self._node.channels -= 1
        self._node, self._counted = NodeMemory(UNBOUNDED), 0
        self._node.channels += 1

    # Room for messages

    def _restore(self, frames: Sequence[Content]) -> tuple[list[Restored], int, int, bool]:
        """Restore the ids of the reliable frames.

        Return the frames; the most messages in them that may be new; the bytes of the fragmented
        ones among these; and True if a message is too far ahead of the next id, or would make too
        many gaps. Raises as ``insert``.
        """
        restored: list[Restored] = []
        messages = size = 0
        is_ahead = False
        for frame in frames:
            if isinstance(frame, Unreliable):
                if self._may_be_over:
                    self._check_sizes(frame.payloads)
                self._check_number(frame.lane)
                continue
            lane = self._lanes.get(frame.lane) or self._open_lane(frame.lane)
            next_id = lane.next_id
            if isinstance(frame, Messages):
                if self._may_be_over:
                    self._check_sizes(frame.payloads)
                # ``unwrap`` inlined, to save a call for each packet.
                message_id = next_id + ((frame.first_id - next_id + HALF) & MASK) - HALF
                count = len(frame.payloads)
                messages += count
            else:
                message_id, count = unwrap(frame.message_id, next_id), 1
                if isinstance(frame, Fragment):
                    if not restored or restored[-1][:2] != (lane, message_id):
                        messages += 1
                        size += frame.total
                    is_ahead |= not lane.admits(message_id, frame, self._max_message)
            if message_id + count > next_id + self._window:
                is_ahead = True
            restored.append((lane, message_id, frame))
        return restored, messages, size, is_ahead

    def _fits(self, messages: int, size: int) -> bool:
        """Return True if ``messages`` more fit, of which ``size`` bytes count."""
        blocked = self._blocked
        has_room = self.ready_count + blocked.messages + messages <= self._window
        return has_room and self._ready_bytes + blocked.size + size <= self._limit

    def _exceeded(self, restored: Sequence[Restored]) -> str | None:
        """Return the limit that frames exceed, counting only new messages; None if they fit."""
        sizes = self._new_sizes(restored)
        if not self._fits(len(sizes), sum(sizes)):
            unread = self.ready_count + self._blocked.messages
            is_many = unread + len(sizes) > self._window
            return "over_receive_buffer" if is_many else "over_receive_buffer_bytes"
        if self._node.held > self._node.limit and not self._may_go_on(restored):
            return "over_node_buffer_bytes"
        return None

    def _new_sizes(self, restored: Sequence[Restored]) -> list[int]:
        """Return the sizes of the messages in a packet of which nothing has arrived before."""
        begun: dict[tuple[int, int], int] = {}
        sizes: list[int] = []
        for lane, message_id, frame in restored:
            if isinstance(frame, Fragment):
                # Several fragments of one packet may begin the same message.
                for size in lane.new_sizes(message_id, frame):
                    begun[frame.lane, message_id] = size
            else:
                sizes += lane.new_sizes(message_id, frame)
        return sizes + list(begun.values())

    def _may_go_on(self, restored: Sequence[Restored]) -> bool:
        """Return True if a packet may be accepted although the node is full.

        It may if its channel holds no more than its share. It also may if all its frames lead to a
        readable message: parts of messages that have begun to arrive and, if nothing can be read,
        the next message of a lane.
        """
        return self.held <= self._node.share or all(map(self._is_wanted, restored))

    def _is_wanted(self, restored: Restored) -> bool:
        lane, message_id, frame = restored
        sizes = lane.new_sizes(message_id, frame)
        is_first = not self.ready_count and message_id <= lane.next_id
        return not sizes or (is_first and self._fits(len(sizes), sum(sizes)))

    def _insert_wanted(self, restored: Sequence[Restored]) -> None:
        """Insert the frames of a refused packet that lead to a readable message.

        The packet is not acked, so the sender retransmits all its frames, but perhaps always
        together with frames that do not fit. If none of them were inserted, the reader could never
        read a message, and no room would become free.
        """
        for lane, message_id, frame in restored:
            count = len(frame.payloads) if isinstance(frame, Messages) else 1
            is_near = message_id + count <= lane.next_id + self._window
            if isinstance(frame, Fragment):
                is_near = is_near and lane.admits(message_id, frame, self._max_message)
            if is_near and self._is_wanted((lane, message_id, frame)):
                self._take_in([(lane, message_id, frame)])

    def _open_lane(self, number: int) -> UnorderedLane:
        self._check_number(number)
        make = UnorderedLane if number & FLAG else OrderedLane
        lane = self._lanes[number] = make(self._first_id, self._blocked)
        return lane

    def _check_sizes(self, payloads: Sequence[bytes]) -> None:
        size = max(map(len, payloads))
        if size > self._max_message:
            raise OversizeError(size, self._max_message)

    def _check_number(self, number: int) -> None:
        if number & ~FLAG >= MOST_LANES:
            raise RemoteError(f"lane {number & ~FLAG}; there are at most {MOST_LANES}")

    # Insertion

    def _take_in(self, restored: Sequence[Restored]) -> None:
        payloads: Sequence[bytes] | None
        for lane, message_id, frame in restored:
            if isinstance(frame, Messages):
                payloads = lane.insert_messages(message_id, frame.payloads)
            elif isinstance(frame, Fragment):
                payloads = lane.insert_fragment(message_id, frame)
            elif (payloads := lane.insert_skip(message_id)) is not None:
                # The sender used credit for this message, which no reader will free.
                self.credit.read(1, frame.size)
            if not payloads:
                continue
            number, size = len(payloads), sum(map(len, payloads))
            if number == 1 or (number <= BATCH and size <= BATCH_BYTES):
                self._ready.append(payloads)
            else:
                # A list stays in memory until it is read to its end, so large lists are split.
                most = BATCH if size <= BATCH_BYTES else 1
                for start in range(0, number, most):
                    self._ready.append(payloads[start : start + most])
            self.ready_count += number
            self._ready_bytes += size
        self._account()

    def _insert_unreliable(self, frames: Sequence[Content], sequence: int) -> None:
        """Insert unreliable messages; drop the oldest ones if the node is full.

        Only a channel above its share drops messages then. The packet is acked nevertheless,
        because its messages are sent only once.
        """
        for frame in frames:
            if isinstance(frame, Unreliable) and (
                dropped := self.unreliable.insert(frame, sequence)
            ):
                self._limits.count("over_unreliable_buffer", dropped)
        self._account()
        excess = self._node.held - self._node.limit
        if excess > 0:
            unreliable = self.unreliable.held
            share = max(self._node.share - (self.held - unreliable), 0)
            if dropped := self.unreliable.shrink(max(share, unreliable - excess)):
                self._limits.count("over_node_buffer_bytes", dropped)
                self._account()

    def _account(self) -> None:
        blocked = self._blocked
        # ``held`` inlined, to save a call for each packet and each reading.
        held = self._ready_bytes + blocked.size + self.unreliable.held
        held += COST * (self.ready_count + blocked.messages)
        self._node.held += held - self._counted
        self._counted = held


# Unreliable messages: outdated ones are dropped, the others kept until they are read.
#
# Each lane has a buffer of its own, so that a flood in one lane does not displace the messages
# of another. When too many wait, the oldest message of the lane is dropped.


class _Unread:
    """The unread messages of one lane, each with its place in the order of arrival."""

    __slots__ = ("held", "messages")

    def __init__(self) -> None:
        self.messages: deque[tuple[int, bytes]] = deque()
        self.held = 0

    def append(self, place: int, payload: bytes) -> None:
        self.messages.append((place, payload))
        self.held += len(payload) + COST

    def popleft(self) -> bytes:
        _, payload = self.messages.popleft()
        self.held -= len(payload) + COST
        return payload


class UnreliableReceiveQueue:
    """The unread unreliable messages: at most ``limit`` per lane, and ``size`` bytes in all.

    The age of a ``SEQUENCED`` message is that of its packet, whose full sequence is known. Each
    message is in one packet, and packets leave in order, so that of two messages the one in the
    later packet is the later one. The 16 bits of the message's own id would not suffice: after
    32,768 losses in a row a new message would look like an old one.
    """

    __slots__ = ("_arrived", "_lanes", "_limit", "_newest", "_size", "dropped", "held", "overtaken",
                 "unread")  # fmt: skip

    def __init__(self, limit: int, size: int) -> None:
        self.dropped = 0
        self.overtaken = 0
        self.held = 0
        # The number of unread messages.
        self.unread = 0
        self._limit = limit
        self._size = size
        self._arrived = 0
        # By lane: the sequence of the packet with the latest message that has ``FLAG``.
        self._newest: dict[int, int] = {}
        # By lane; a lane without unread messages is not in it.
        self._lanes: dict[int, _Unread] = {}

    def insert(self, frame: Unreliable, sequence: int) -> int:
        """Insert the messages of a frame in packet ``sequence``.

        Return the number of messages dropped for want of room. Overtaken ones are dropped, too, and
        counted in ``overtaken``.
        """
        lane = frame.lane & ~FLAG
        if frame.lane & FLAG:
            if sequence < self._newest.get(lane, sequence):
                self.overtaken += len(frame.payloads)
                return 0
            self._newest[lane] = sequence
        unread = self._lanes.get(lane)
        if unread is None:
            unread = self._lanes[lane] = _Unread()
        before = unread.held
        for place, payload in enumerate(frame.payloads, self._arrived):
            unread.append(place, payload)
        self._arrived += len(frame.payloads)
        gone = max(len(unread.messages) - self._limit, 0)
        self.unread += len(frame.payloads) - gone
        for _ in range(gone):
            unread.popleft()
        self.held += unread.held - before
        self.dropped += gone
        return gone + self.shrink(self._size)

    def shrink(self, size: int) -> int:
        """Drop messages until at most ``size`` bytes are held; return their number.

        Each time, the oldest message of the lane that holds the most bytes is dropped.
        """
        gone = 0
        while self.held > size:
            self._drop_one()
            gone += 1
        self.dropped += gone
        return gone

    def take(self, limit: int) -> list[bytes]:
        """Return up to ``limit`` messages, in the order of arrival."""
        taken: list[bytes] = []
        while self._lanes and len(taken) < limit:
            lane = next(iter(self._lanes))
            if len(self._lanes) > 1:
                lane = min(self._lanes, key=self._oldest)
            taken.append(self._pop(lane))
        return taken

    def _oldest(self, lane: int) -> int:
        return self._lanes[lane].messages[0][0]

    def _drop_one(self) -> None:
        """Drop the oldest message of the lane that holds the most bytes."""
        self._pop(max(self._lanes, key=lambda lane: self._lanes[lane].held))

    def _pop(self, lane: int) -> bytes:
        unread = self._lanes[lane]
        before = unread.held
        payload = unread.popleft()
        self.held -= before - unread.held
        self.unread -= 1
        if not unread.messages:
            del self._lanes[lane]
        return payload
