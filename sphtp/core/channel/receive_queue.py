"""The receive queue of a channel: what can be read, and how much more may come."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from sphtp.core.channel.delivery import FLAG, MOST_LANES
from sphtp.core.channel.flow_control import ReceiveCredit
from sphtp.core.channel.frames import RELIABLE, Fragment, Frame, Messages, Skip, Unreliable
from sphtp.core.channel.limit_counters import LimitCounters
from sphtp.core.channel.memory import COST, Ahead, NodeMemory
from sphtp.core.channel.reassembly import Arriving, OversizeError
from sphtp.core.channel.receive_lane import OrderedLane, UnorderedLane
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.unreliable import COST as UNRELIABLE_COST
from sphtp.core.channel.unreliable import UnreliableInbox
from sphtp.core.packing import READ_BYTES
from sphtp.errors import RemoteError

BATCH: Final = 1024
BATCH_BYTES: Final = 128 * 1024
"""Messages, and bytes in them, that are handed on in one list."""

UNBOUNDED: Final = 1 << 62
"""The limit of a node that has none."""


class ReceiveQueue:
    """Delivers each reliable message once, each lane's in the order of ids; others as they come.

    Bounded in messages and bytes over all lanes, as credit is. A peer that keeps to its credit
    always finds room; what another sends beyond it is not accepted, and its packet is not acked.
    ``node`` counts what all channels of a node hold; a packet that finds it full is not accepted
    either, and comes again.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        first_id: int,
        bounds: LimitCounters | None = None,
        node: NodeMemory | None = None,
    ) -> None:
        self.credit = ReceiveCredit(settings.receive_buffer, settings.receive_buffer_bytes)
        largest = settings.unreliable_buffer * (settings.max_datagram + UNRELIABLE_COST)
        self.unreliable = UnreliableInbox(settings.unreliable_buffer, largest)
        self._bounds = LimitCounters() if bounds is None else bounds
        self._settings = settings
        self._first_id = first_id
        # Credit may be overdrawn by a packet or a message.
        overdrawn = max(settings.max_message, settings.max_datagram)
        self._limit = settings.receive_buffer_bytes + overdrawn
        # Where every packet is smaller than the limit of a message, nothing whole is over it.
        self._may_be_over = settings.max_message < settings.max_datagram
        self._lanes: dict[int, UnorderedLane] = {}
        # Of all lanes: what cannot be read yet.
        self._ahead = Ahead()
        # In the lists in which they came, and how much of the first one was read.
        self._ready: deque[Sequence[bytes]] = deque()
        self._read = 0
        self._ready_count = 0
        self._ready_bytes = 0
        # What the node counts of it, until the channel has ended.
        self._node = NodeMemory(UNBOUNDED) if node is None else node
        self._node.channels += 1
        self._counted = 0

    def __len__(self) -> int:
        return self._ready_count + len(self.unreliable)

    @property
    def held(self) -> int:
        """Memory to account for, in bytes; messages in fragments count whole."""
        messages = self._ready_count + self._ahead.messages
        return self._reliable_bytes + COST * messages + self.unreliable.held

    @property
    def _reliable_bytes(self) -> int:
        return self._ready_bytes + self._ahead.size

    def leave_node(self) -> None:
        """The channel has ended: what is left to be read is its reader's."""
        self._node.held -= self._counted
        self._node.channels -= 1
        self._node, self._counted = NodeMemory(UNBOUNDED), 0
        self._node.channels += 1

    def _account(self) -> None:
        held = self.held
        self._node.held += held - self._counted
        self._counted = held

    def admits(self, frames: Sequence[Frame]) -> bool:
        """Whether every message of a packet has room.

        Raises ``RemoteError`` when a message is over the limit, in a lane that cannot be, or
        fragments contradict one another.
        """
        try:
            most = self._most_new(frames)
        except OversizeError:
            self._bounds.count("over_max_message")
            raise
        if (name := self._objection(frames, most)) is not None:
            self._bounds.count(name)
            return False
        return True

    def _most_new(self, frames: Sequence[Frame]) -> tuple[int, int] | None:
        """How many messages may be new, and how many bytes have those in fragments.

        None where ids cannot be told apart; raises as ``admits``.
        """
        messages = size = 0
        for frame in frames:
            if self._may_be_over and isinstance(frame, Messages | Unreliable):
                self._check_sizes(frame.payloads)
            if isinstance(frame, RELIABLE):
                if not self._lane(frame.lane).admits(frame):
                    return None
                if isinstance(frame, Messages):
                    messages += len(frame.payloads)
                elif isinstance(frame, Fragment):
                    messages += 1
                    size += frame.total
            elif isinstance(frame, Unreliable):
                self._check_number(frame.lane)
        return messages, size

    def _objection(self, frames: Sequence[Frame], most: tuple[int, int] | None) -> str | None:
        """Which bound keeps frames out that have ``most`` new messages, and bytes; None if none."""
        if most is None:
            return "over_receive_buffer"
        if not self._fits(*most):
            # Not all of it may be new.
            sizes = self._new_sizes(frames)
            if not self._fits(len(sizes), sum(sizes)):
                is_many = self._unread + len(sizes) > self._settings.receive_buffer
                return "over_receive_buffer" if is_many else "over_receive_buffer_bytes"
        if self._node.held > self._node.limit and not self._may_go_on(frames):
            return "over_node_buffer_bytes"
        return None

    @property
    def _unread(self) -> int:
        """Reliable messages that have come, or begun to, and were not read."""
        return self._ready_count + self._ahead.messages

    def _fits(self, messages: int, size: int) -> bool:
        """Whether there is room for so many messages, and for fragments of so many bytes in all.

        Bytes may be overdrawn by the whole messages of one packet.
        """
        is_in_bounds = self._reliable_bytes + size <= self._limit
        return is_in_bounds and self._unread + messages <= self._settings.receive_buffer

    def _new_sizes(self, frames: Sequence[Frame]) -> list[int]:
        """The sizes of the messages that a packet begins, or brings whole."""
        begun: dict[tuple[int, int], int] = {}
        sizes: list[int] = []
        for frame in frames:
            if isinstance(frame, Fragment):
                for size in self._lanes[frame.lane].new_sizes(frame):
                    begun[frame.lane, frame.message_id] = size
            elif isinstance(frame, RELIABLE):
                sizes += self._lanes[frame.lane].new_sizes(frame)
        return sizes + list(begun.values())

    def _may_go_on(self, frames: Sequence[Frame]) -> bool:
        """Whether a packet may be taken in although the node is full.

        So it is for who has less than a share, and for what can lead to a message that is read:
        parts of messages that have begun, and, where nothing can be read, what a lane waits for.
        """
        if self.held <= self._node.share:
            return True
        return all(self._is_wanted(it) for it in frames if isinstance(it, RELIABLE))

    def _is_wanted(self, frame: Messages | Fragment | Skip) -> bool:
        lane = self._lanes[frame.lane]
        sizes = lane.new_sizes(frame)
        is_first = not self._ready_count and lane.is_next(frame)
        return not sizes or (is_first and self._fits(len(sizes), sum(sizes)))

    def insert_wanted(self, frames: Sequence[Frame], sequence: int) -> None:
        """Of a packet that a full node has refused, take in what can lead to a message to read.

        It comes again, for its packet is not acked; but it may come with others in its packet for
        ever, and were it not taken in, nothing would ever be read that makes room.
        """
        if self._node.held <= self._node.limit:
            return
        for frame in frames:
            if isinstance(frame, RELIABLE):
                lane = self._lanes.get(frame.lane)
                if lane is not None and lane.admits(frame) and self._is_wanted(frame):
                    self.insert(frame, sequence)

    def has_room(self, frames: Sequence[Frame], size: int) -> bool:
        """Whether frames of many packets, ``size`` bytes in all, overdraw nothing.

        A single packet may, and ``admits`` looks at one as a whole.
        """
        messages = sum([len(it.payloads) if isinstance(it, Messages) else 1 for it in frames])
        return self._fits(messages, size)

    def insert(self, frame: Messages | Fragment | Skip | Unreliable, sequence: int) -> None:
        """Take in the messages of a frame of the packet ``sequence``, which ``admits`` has seen."""
        if isinstance(frame, Messages):
            self._deliver(self._lanes[frame.lane].insert_messages(frame))
        elif isinstance(frame, Fragment):
            self._deliver(self._lanes[frame.lane].insert_fragment(frame))
        elif isinstance(frame, Skip):
            released = self._lanes[frame.lane].insert_skip(frame)
            if released is not None:
                # Its sender paid for it, and nobody will read it.
                self.credit.read(1, frame.size)
                self._deliver(released)
        else:
            self._insert_unreliable(frame, sequence)
        self._account()

    def _insert_unreliable(self, frame: Unreliable, sequence: int) -> None:
        """Take messages in; in a full node the oldest of a channel go that has its share.

        Their packet is acked all the same, for they are sent once.
        """
        if dropped := self.unreliable.insert(frame, sequence):
            self._bounds.count("over_unreliable_buffer", dropped)
        self._account()
        excess = self._node.held - self._node.limit
        if excess > 0:
            unreliable = self.unreliable.held
            share = max(self._node.share - (self.held - unreliable), 0)
            if dropped := self.unreliable.shrink(max(share, unreliable - excess)):
                self._bounds.count("over_node_buffer_bytes", dropped)

    def receive_many(self, limit: int) -> list[bytes]:
        """Take up to ``limit`` messages; unreliable ones, which grow stale, come first.

        It ends where they exceed ``READ_BYTES``.
        """
        taken = self.unreliable.take(limit) if self.unreliable else []
        reliable, size = self._take_ready(limit - len(taken))
        self._ready_count -= len(reliable)
        self._ready_bytes -= size
        self.credit.read(len(reliable), size)
        self._account()
        return taken + reliable if taken else reliable

    def arriving(self) -> list[Arriving]:
        """The large messages of which a part is here, by lane, oldest first."""
        return [
            Arriving(number & ~FLAG, message.size, message.total)
            for number, lane in sorted(self._lanes.items())
            for message in lane.incomplete()
        ]

    def _take_ready(self, limit: int) -> tuple[list[bytes], int]:
        """Return messages, and their bytes."""
        taken: list[bytes] = []
        size = 0
        while self._ready and limit > len(taken) and size < READ_BYTES:
            batch, start = self._ready[0], self._read
            self._read += limit - len(taken)
            part = batch[start : self._read]
            size += sum(map(len, part))
            taken += part
            if self._read >= len(batch):
                self._ready.popleft()
                self._read = 0
        return taken, size

    def _deliver(self, payloads: Sequence[bytes]) -> None:
        if not payloads:
            return
        if len(payloads) == 1:
            self._ready.append(payloads)
            self._ready_count += 1
            self._ready_bytes += len(payloads[0])
            return
        size = sum(map(len, payloads))
        # A list lives until it is read to its end: it must not hold much that was read.
        most = BATCH if size <= BATCH_BYTES else 1
        for start in range(0, len(payloads), most):
            self._ready.append(payloads[start : start + most])
        self._ready_count += len(payloads)
        self._ready_bytes += size

    def _lane(self, number: int) -> UnorderedLane:
        lane = self._lanes.get(number)
        if lane is None:
            self._check_number(number)
            make = UnorderedLane if number & FLAG else OrderedLane
            settings = self._settings
            window, limit = settings.receive_buffer, settings.max_message
            lane = make(self._first_id, window, limit, self._ahead)
            self._lanes[number] = lane
        return lane

    def _check_sizes(self, payloads: Sequence[bytes]) -> None:
        size, limit = max(map(len, payloads)), self._settings.max_message
        if size > limit:
            raise OversizeError(size, limit)

    def _check_number(self, number: int) -> None:
        if number & ~FLAG >= MOST_LANES:
            raise RemoteError(f"lane {number & ~FLAG}; there are at most {MOST_LANES}")
