"""The receive side of a lane: each reliable message once, in the order of ids or as it comes.

A lane remembers which of the ids ahead of the next one are over, delivered or given up, in one
integer: bit n stands for the id n after the next one, as bits stand for packets in acks. What waits
ahead is kept by its id. So memory follows what came, and not the distance between two ids, which
the peer picks. Messages that were delivered before are ignored; their packet is acked all the same,
for else it would come for ever.
"""

from collections.abc import Sequence

from sphtp.core.channel.frames import Fragment, Messages, Skip
from sphtp.core.channel.memory import MOST_GAPS, Ahead
from sphtp.core.channel.reassembly import OversizeError, Reassembly
from sphtp.core.serial import unwrap


class UnorderedLane:
    """Delivers messages as they come; of those ahead of the next id it remembers that they did.

    ``ahead`` counts what waits, in all lanes of the channel.
    """

    __slots__ = ("_ahead", "_limit", "_next_id", "_over", "_waiting", "_window")

    def __init__(self, first_id: int, window: int, limit: int, ahead: Ahead) -> None:
        self._window = window
        self._limit = limit
        self._next_id = first_id
        self._over = 0
        self._waiting: dict[int, bytes | Reassembly] = {}
        self._ahead = ahead

    def admits(self, frame: Messages | Fragment | Skip) -> bool:
        """Whether the frame's ids can be told apart from others, and its fragment can be kept.

        Raises ``RemoteError`` when a message is over the limit or contradicts what is here.
        """
        end = self._next_id + self._window
        if isinstance(frame, Messages):
            return unwrap(frame.first_id, self._next_id) + len(frame.payloads) <= end
        message_id = unwrap(frame.message_id, self._next_id)
        return message_id < end and (isinstance(frame, Skip) or self._admits(message_id, frame))

    def new_sizes(self, frame: Messages | Fragment | Skip) -> list[int]:
        """The sizes of the messages that a frame begins, or brings whole."""
        if isinstance(frame, Messages):
            first = unwrap(frame.first_id, self._next_id)
            rows = enumerate(frame.payloads, first)
            return [len(payload) for message_id, payload in rows if not self._is_known(message_id)]
        message_id = unwrap(frame.message_id, self._next_id)
        if isinstance(frame, Skip) or self._is_known(message_id):
            return []
        return [frame.total]

    def is_next(self, frame: Messages | Fragment | Skip) -> bool:
        """Whether a frame has the message for which all others of the lane wait."""
        short = frame.first_id if isinstance(frame, Messages) else frame.message_id
        return unwrap(short, self._next_id) <= self._next_id

    def insert_messages(self, frame: Messages) -> Sequence[bytes]:
        """Take messages in; return those to deliver now."""
        first = unwrap(frame.first_id, self._next_id)
        if first == self._next_id and not self._waiting and not self._over:
            # The path without loss and reordering: the frame's own list goes on as it is.
            self._next_id += len(frame.payloads)
            return frame.payloads
        released: list[bytes] = []
        for message_id, payload in enumerate(frame.payloads, first):
            if not self._is_known(message_id):
                self._store(message_id, payload, released)
        self._release(released)
        return released

    def insert_fragment(self, frame: Fragment) -> Sequence[bytes]:
        """Take a fragment in; return the messages to deliver now."""
        message_id = unwrap(frame.message_id, self._next_id)
        entry = self._waiting.get(message_id)
        if entry is None:
            if self._is_known(message_id):
                return ()
            entry = self._waiting[message_id] = Reassembly(frame.total)
            self._ahead.add(frame.total)
        if not isinstance(entry, Reassembly):
            return ()
        before = entry.gaps
        entry.add(frame.offset, frame.payload)
        self._ahead.gaps += entry.gaps - before
        whole = entry.finish()
        if whole is None:
            return ()
        self._forget(message_id)
        return self._insert_whole(message_id, whole)

    def insert_skip(self, frame: Skip) -> Sequence[bytes] | None:
        """Wait no more for a message; return those to deliver now, or None if it is no news."""
        message_id = unwrap(frame.message_id, self._next_id)
        entry = self._waiting.get(message_id)
        if isinstance(entry, Reassembly):
            self._forget(message_id)
        elif self._is_known(message_id):
            return None
        self._pass(message_id)
        released: list[bytes] = []
        self._release(released)
        return released

    def incomplete(self) -> list[Reassembly]:
        """The messages of which a part has arrived, oldest first."""
        waiting = sorted(self._waiting)
        return [it for at in waiting if isinstance(it := self._waiting[at], Reassembly)]

    def _is_known(self, message_id: int) -> bool:
        ahead = message_id - self._next_id
        return ahead < 0 or message_id in self._waiting or bool(self._over >> ahead & 1)

    def _pass(self, message_id: int) -> None:
        """Nothing comes under this id any more."""
        self._over |= 1 << message_id - self._next_id

    def _forget(self, message_id: int) -> None:
        entry = self._waiting.pop(message_id)
        assert isinstance(entry, Reassembly)
        self._ahead.remove(entry.total)
        self._ahead.gaps -= entry.gaps

    def _store(self, message_id: int, payload: bytes, released: list[bytes]) -> None:
        released.append(payload)
        self._pass(message_id)

    def _release(self, _released: list[bytes]) -> None:
        """Go on to the next id that is not over."""
        if self._over & 1:
            number = (~self._over & self._over + 1).bit_length() - 1
            self._over >>= number
            self._next_id += number

    def _admits(self, message_id: int, frame: Fragment) -> bool:
        known = self._waiting.get(message_id)
        if isinstance(known, Reassembly):
            known.check(frame)
            return self._ahead.gaps < MOST_GAPS or not known.is_apart(frame)
        if frame.total > self._limit:
            raise OversizeError(frame.total, self._limit)
        return True

    def _insert_whole(self, message_id: int, payload: bytes) -> Sequence[bytes]:
        """Take in a message that has come in fragments; return those to deliver now."""
        if message_id == self._next_id and not self._waiting and not self._over:
            # As for messages that come whole.
            self._next_id += 1
            return (payload,)
        released: list[bytes] = []
        self._store(message_id, payload, released)
        self._release(released)
        return released


class OrderedLane(UnorderedLane):
    """Holds back what came before its turn; of the ids ahead, those are over that were given up."""

    __slots__ = ()

    def _store(self, message_id: int, payload: bytes, released: list[bytes]) -> None:
        self._waiting[message_id] = payload
        self._ahead.add(len(payload))

    def _release(self, released: list[bytes]) -> None:
        while True:
            super()._release(released)
            entry = self._waiting.get(self._next_id)
            if not isinstance(entry, bytes):
                return
            del self._waiting[self._next_id]
            self._ahead.remove(len(entry))
            released.append(entry)
            self._next_id += 1
            self._over >>= 1
