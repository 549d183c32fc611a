"""Messages that were sent once: sorted out, and kept until they are read.

Each lane has a buffer of its own for them, so that a flood in one takes no place of
another's. When too many wait, the oldest of the lane, which is the stalest, goes.
"""

from collections import deque
from typing import Final

from sphtp.core.channel.delivery import FLAG
from sphtp.core.channel.frames import Unreliable

COST: Final = 256
"""Memory that a message takes beside its payload, in bytes, until it is read."""


class _Unread:
    """Messages of one lane that were not read, each with its place in the order of arrival."""

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
    """Keeps messages until they are read: of each lane ``limit``, of all of them ``size`` bytes.

    A ``SEQUENCED`` message is dated by the packet that it came in, whose sequence is known whole:
    each message is in one packet, and they leave in their order, so that of two the one in the
    later packet is the later one. The 16 bits of its own id could not tell one that comes after
    32,768 losses in a row from an old one.
    """

    __slots__ = ("_arrived", "_lanes", "_limit", "_newest", "_size", "dropped", "held", "overtaken")

    def __init__(self, limit: int, size: int) -> None:
        self.dropped = 0
        self.overtaken = 0
        self.held = 0
        self._limit = limit
        self._size = size
        self._arrived = 0
        # By lane: the packet that the latest message of those with ``FLAG`` came in.
        self._newest: dict[int, int] = {}
        # By lane; those of which nothing is unread are not in it.
        self._lanes: dict[int, _Unread] = {}

    def __len__(self) -> int:
        return sum([len(unread.messages) for unread in self._lanes.values()])

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def insert(self, frame: Unreliable, sequence: int) -> int:
        """Take in the messages of a frame of the packet ``sequence``.

        Return how many had to go for them.
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
        for _ in range(gone):
            unread.popleft()
        self.held += unread.held - before
        self.dropped += gone
        return gone + self.shrink(self._size)

    def shrink(self, size: int) -> int:
        """Hold no more than ``size`` bytes; return how many messages had to go for that."""
        gone = 0
        while self.held > size:
            self._drop_one()
            gone += 1
        self.dropped += gone
        return gone

    def take(self, limit: int) -> list[bytes]:
        """Take up to ``limit`` messages, in the order in which they came."""
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
        """Let go of the oldest message of the lane that holds the most."""
        self._pop(max(self._lanes, key=lambda lane: self._lanes[lane].held))

    def _pop(self, lane: int) -> bytes:
        unread = self._lanes[lane]
        before = unread.held
        payload = unread.popleft()
        self.held -= before - unread.held
        if not unread.messages:
            del self._lanes[lane]
        return payload
