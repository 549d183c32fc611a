"""The receive queue of a channel: what can be read, and how much more may come."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from sphtp.core.channel.bounds import Bounds
from sphtp.core.channel.delivery import FLAG, MOST_LANES
from sphtp.core.channel.flow import ReceiveCredit
from sphtp.core.channel.fragments import Arriving, OversizeError
from sphtp.core.channel.frames import RELIABLE, Fragment, Frame, Messages, Skip, Unreliable
from sphtp.core.channel.reorder import Ordered, Unordered
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.unreliable import COST, UnreliableInbox
from sphtp.errors import RemoteError

BATCH: Final = 1024
BATCH_BYTES: Final = 128 * 1024
"""Messages, and bytes in them, that are handed on in one list."""


class Inbox:
    """Delivers each reliable message once, each lane's in the order of ids; others as they come.

    Bounded in messages and bytes, read or not. A peer that keeps to its credit always finds room;
    what another sends beyond it is not accepted, and its packet is not acked.
    """

    def __init__(
        self, settings: ChannelSettings, first_id: int, bounds: Bounds | None = None
    ) -> None:
        self.credit = ReceiveCredit(settings.receive_buffer, settings.receive_buffer_bytes)
        largest = settings.unreliable_buffer * (settings.max_datagram + COST)
        self.unreliable = UnreliableInbox(settings.unreliable_buffer, largest)
        self._bounds = Bounds() if bounds is None else bounds
        self._settings = settings
        self._first_id = first_id
        # Credit may be overdrawn by a packet or a message, and parts cost more than their bytes.
        overdrawn = max(settings.max_message, settings.max_datagram)
        self._limit = 2 * (settings.receive_buffer_bytes + overdrawn)
        # Where every packet is smaller than the limit of a message, nothing whole is over it.
        self._may_be_over = settings.max_message < settings.max_datagram
        self._lanes: dict[int, Unordered] = {}
        # In the lists in which they came, and how much of the first one was read.
        self._ready: deque[Sequence[bytes]] = deque()
        self._read = 0
        self._ready_count = 0
        self._ready_bytes = 0

    def __len__(self) -> int:
        return self._ready_count + len(self.unreliable)

    @property
    def held(self) -> int:
        """Bytes in memory, ready or not."""
        return self._reliable_bytes + self.unreliable.held

    @property
    def _reliable_bytes(self) -> int:
        held = self._ready_bytes
        for lane in self._lanes.values():
            held += lane.held
        return held

    def admits(self, frames: Sequence[Frame]) -> bool:
        """Whether every message of a packet has room.

        Raises ``RemoteError`` when a message is over the limit, in a lane that cannot be, or
        fragments contradict one another.
        """
        free = self._settings.receive_buffer - self._ready_count
        try:
            for frame in frames:
                if self._may_be_over and isinstance(frame, Messages | Unreliable):
                    self._check_sizes(frame.payloads)
                if isinstance(frame, RELIABLE):
                    if not self._lane(frame.lane).admits(frame, free):
                        self._bounds.count("over_receive_buffer")
                        return False
                elif isinstance(frame, Unreliable):
                    self._check_number(frame.lane)
        except OversizeError:
            self._bounds.count("over_max_message")
            raise
        if free >= 0 and self._reliable_bytes <= self._limit:
            return True
        self._bounds.count("over_receive_buffer" if free < 0 else "over_receive_buffer_bytes")
        return False

    def has_room(self, frames: Sequence[Frame], size: int) -> bool:
        """Whether frames of many packets, ``size`` bytes in all, overdraw nothing.

        A single packet may, and ``admits`` looks at one as a whole.
        """
        messages = sum([len(it.payloads) if isinstance(it, Messages) else 1 for it in frames])
        free = self._settings.receive_buffer - self._ready_count
        return messages <= free and self._reliable_bytes + size <= self._limit

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
        elif dropped := self.unreliable.insert(frame, sequence):
            self._bounds.count("over_unreliable_buffer", dropped)

    def receive_many(self, limit: int) -> list[bytes]:
        """Take up to ``limit`` messages; unreliable ones, which grow stale, come first."""
        taken = self.unreliable.take(limit) if self.unreliable else []
        reliable = self._take_ready(limit - len(taken))
        size = sum(map(len, reliable))
        self._ready_count -= len(reliable)
        self._ready_bytes -= size
        self.credit.read(len(reliable), size)
        return taken + reliable if taken else reliable

    def arriving(self) -> list[Arriving]:
        """The large messages of which a part is here, by lane, oldest first."""
        return [
            Arriving(number & ~FLAG, message.size, message.total)
            for number, lane in sorted(self._lanes.items())
            for message in lane.incomplete()
        ]

    def _take_ready(self, limit: int) -> list[bytes]:
        taken: list[bytes] = []
        while self._ready and limit > len(taken):
            batch, start = self._ready[0], self._read
            self._read += limit - len(taken)
            taken += batch[start : self._read]
            if self._read >= len(batch):
                self._ready.popleft()
                self._read = 0
        return taken

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

    def _lane(self, number: int) -> Unordered:
        lane = self._lanes.get(number)
        if lane is None:
            self._check_number(number)
            make = Unordered if number & FLAG else Ordered
            settings = self._settings
            lane = make(self._first_id, settings.receive_buffer, settings.max_message)
            self._lanes[number] = lane
        return lane

    def _check_sizes(self, payloads: Sequence[bytes]) -> None:
        size, limit = max(map(len, payloads)), self._settings.max_message
        if size > limit:
            raise OversizeError(size, limit)

    def _check_number(self, number: int) -> None:
        if number & ~FLAG >= MOST_LANES:
            raise RemoteError(f"lane {number & ~FLAG}; there are at most {MOST_LANES}")
