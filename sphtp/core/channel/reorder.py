"""The receive side of a lane: each reliable message once, in the order of ids or as it comes.

Both sorts hold what they must remember in the seed's receive sequence buffer, indexed by message
id. Messages that were delivered before are ignored; their packet is acked all the same, for else
it would come for ever.
"""

from collections.abc import Sequence
from typing import Final

from sphtp.core.channel.fragments import OversizeError, Reassembly
from sphtp.core.channel.frames import Fragment, Messages, Skip
from sphtp.core.serial import SequenceBuffer, unwrap


class _Nothing(bytes):
    """Stands for a message that was delivered, or given up; told from others by identity."""


NOTHING: Final = _Nothing()


class Unordered:
    """Delivers messages as they come; of those ahead of the next id it remembers that they did.

    ``held`` counts the bytes that wait in it.
    """

    __slots__ = ("_buffer", "_limit", "_next_id", "_stored", "held")

    def __init__(self, first_id: int, size: int, limit: int) -> None:
        self._buffer: SequenceBuffer[bytes | Reassembly] = SequenceBuffer(size, first_id)
        self._limit = limit
        self._next_id = first_id
        self._stored = 0
        self.held = 0

    def admits(self, frame: Messages | Fragment | Skip, free: int) -> bool:
        """Whether the frame's messages have room; that for further ones is ``free``.

        Raises ``RemoteError`` when a message is over the limit or contradicts what is here.
        """
        end = self._next_id + self._ahead(free)
        if isinstance(frame, Messages):
            return unwrap(frame.first_id, self._next_id) + len(frame.payloads) <= end
        message_id = unwrap(frame.message_id, self._next_id)
        if isinstance(frame, Fragment):
            self._check(message_id, frame)
        return message_id < end

    def insert_messages(self, frame: Messages) -> Sequence[bytes]:
        """Take messages in; return those to deliver now."""
        first = unwrap(frame.first_id, self._next_id)
        if first == self._next_id and not self._stored:
            # The path without loss and reordering: the frame's own list goes on as it is.
            self._next_id += len(frame.payloads)
            return frame.payloads
        released: list[bytes] = []
        for message_id, payload in enumerate(frame.payloads, first):
            if message_id >= self._next_id and message_id not in self._buffer:
                self._store(message_id, payload, released)
        self._release(released)
        return released

    def insert_fragment(self, frame: Fragment) -> Sequence[bytes]:
        """Take a fragment in; return the messages to deliver now."""
        message_id = unwrap(frame.message_id, self._next_id)
        if message_id < self._next_id:
            return ()
        entry = self._buffer.find(message_id)
        if entry is None:
            entry = Reassembly(frame.total)
            self._buffer.insert(message_id, entry)
            self._stored += 1
        if not isinstance(entry, Reassembly):
            return ()
        before = entry.held
        entry.add(frame.offset, frame.payload)
        whole = entry.finish()
        if whole is None:
            self.held += entry.held - before
            return ()
        self.held -= before
        self._buffer.remove(message_id)
        self._stored -= 1
        return self._insert_whole(message_id, whole)

    def insert_skip(self, frame: Skip) -> Sequence[bytes] | None:
        """Wait no more for a message; return those to deliver now, or None if it is no news."""
        message_id = unwrap(frame.message_id, self._next_id)
        entry = self._buffer.find(message_id)
        if message_id < self._next_id or isinstance(entry, bytes):
            return None
        if isinstance(entry, Reassembly):
            self.held -= entry.held
        else:
            self._stored += 1
        self._skip(message_id)
        released: list[bytes] = []
        self._release(released)
        return released

    def incomplete(self) -> list[Reassembly]:
        """The messages of which a part has arrived, oldest first."""
        return [entry for _, entry in self._buffer.items() if isinstance(entry, Reassembly)]

    def _ahead(self, _free: int) -> int:
        # Those ahead were delivered, so that whoever reads them makes room while this one waits.
        return self._buffer.size

    def _store(self, message_id: int, payload: bytes, released: list[bytes]) -> None:
        released.append(payload)
        self._buffer.insert(message_id, NOTHING)
        self._stored += 1

    def _skip(self, message_id: int) -> None:
        self._buffer.insert(message_id, NOTHING)

    def _release(self, _released: list[bytes]) -> None:
        while isinstance(self._buffer.find(self._next_id), bytes):
            self._buffer.remove(self._next_id)
            self._next_id += 1
            self._stored -= 1

    def _check(self, message_id: int, frame: Fragment) -> None:
        known = self._buffer.find(message_id)
        if isinstance(known, Reassembly):
            known.check(frame)
        elif frame.total > self._limit:
            raise OversizeError(frame.total, self._limit)

    def _insert_whole(self, message_id: int, payload: bytes) -> Sequence[bytes]:
        """Take in a message that has come in fragments; return those to deliver now."""
        if message_id == self._next_id and not self._stored:
            # As for messages that come whole.
            self._next_id += 1
            return (payload,)
        released: list[bytes] = []
        self._store(message_id, payload, released)
        self._release(released)
        return released


class Ordered(Unordered):
    """Holds back what came before its turn."""

    __slots__ = ("_skipped",)

    def __init__(self, first_id: int, size: int, limit: int) -> None:
        super().__init__(first_id, size, limit)
        # Of the ids ahead, those under which nothing comes.
        self._skipped = 0

    def _ahead(self, free: int) -> int:
        # They take up no room, and what was paid for them is paid back by now.
        return min(free + self._skipped, self._buffer.size)

    def _store(self, message_id: int, payload: bytes, released: list[bytes]) -> None:
        self._buffer.insert(message_id, payload)
        self._stored += 1
        self.held += len(payload)

    def _release(self, released: list[bytes]) -> None:
        while isinstance(entry := self._buffer.find(self._next_id), bytes):
            self._buffer.remove(self._next_id)
            self._next_id += 1
            self._stored -= 1
            if entry is NOTHING:
                self._skipped -= 1
            else:
                released.append(entry)
                self.held -= len(entry)

    def _skip(self, message_id: int) -> None:
        super()._skip(message_id)
        self._skipped += 1
