"""Messages larger than a packet: cut on one side, put together on the other."""

from sphtp.core.channel.frames import Fragment
from sphtp.errors import RemoteError


class Parts:
    """A message to send, seen as parts of ``size`` bytes; a small message is its only part."""

    __slots__ = ("_size", "count", "payload", "unacked")

    def __init__(self, payload: bytes, whole: int, size: int) -> None:
        self.payload = payload
        self._size = size
        self.count = 1 if len(payload) <= whole else -(-len(payload) // size)
        self.unacked = set(range(self.count))

    def part(self, index: int) -> bytes:
        """The bytes of one part."""
        if self.count == 1:
            return self.payload
        return self.payload[index * self._size : (index + 1) * self._size]


class Reassembly:
    """The parts of one message that have arrived. Nothing is allocated before it is here."""

    __slots__ = ("_parts", "count", "size")

    # What a part costs beside its bytes, so that a message of tiny parts is not cheap to send.
    PART_COST = 128

    def __init__(self, count: int) -> None:
        self.count = count
        self.size = 0
        self._parts: dict[int, bytes] = {}

    @property
    def held(self) -> int:
        """Memory to account for, in bytes."""
        return self.size + self.PART_COST * len(self._parts)

    def __contains__(self, index: int) -> bool:
        return index in self._parts

    def add(self, index: int, payload: bytes) -> None:
        """Take a part in, once."""
        if index not in self._parts:
            self._parts[index] = payload
            self.size += len(payload)

    def finish(self) -> bytes | None:
        """The whole message, or None while parts are missing."""
        if len(self._parts) < self.count:
            return None
        return b"".join(self._parts[index] for index in range(self.count))


class Plan:
    """What the fragments of one packet would do to one message; they must agree before any does."""

    __slots__ = ("_count", "_known", "_new", "_size")

    def __init__(self, known: Reassembly | None, count: int) -> None:
        self._known = known
        self._count = known.count if known else count
        self._size = known.size if known else 0
        self._new: set[int] = set()

    def add(self, frame: Fragment, limit: int) -> int:
        """Return the memory that a part will cost, 0 when it is known.

        Raises ``RemoteError`` when it contradicts the others, or takes the message over ``limit``.
        """
        if frame.count != self._count:
            raise RemoteError(f"a message of {self._count} parts now has {frame.count}")
        # Parts are never empty, so there cannot be more of them than bytes.
        if frame.count > limit:
            raise RemoteError(f"a message of {frame.count} parts is over the limit")
        if frame.index in self._new or (self._known and frame.index in self._known):
            return 0
        self._new.add(frame.index)
        self._size += len(frame.payload)
        if self._size > limit:
            raise RemoteError(f"a message over the limit of {limit} bytes")
        return len(frame.payload) + Reassembly.PART_COST
