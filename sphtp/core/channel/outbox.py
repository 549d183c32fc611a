"""The send queue: reliable messages wait here until a packet that holds them is acked."""

from collections import deque
from heapq import heappop, heappush

from sphtp.core.channel.acks import Piece
from sphtp.core.channel.fragments import Parts
from sphtp.core.channel.frames import (
    FRAGMENT_OVERHEAD,
    LENGTH_OVERHEAD,
    MAX_FRAGMENTS,
    MESSAGES_OVERHEAD,
    UNRELIABLE_OVERHEAD,
)
from sphtp.core.channel.packing import Packing
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.serial import SequenceBuffer
from sphtp.errors import MessageTooLargeError, StateError


class Outbox:
    """Reliable messages between the oldest unacked id and the next id to be given.

    A packet takes the pieces to be resent first, oldest first, then those never sent. It never
    takes an id that the receiver cannot buffer: such a message would be acked with its packet, and
    lost.
    ``room`` is what a packet has for frames, ``peer_buffer`` the messages that the receiver can
    buffer, ``peer_limit`` the largest message it takes.
    """

    def __init__(
        self, settings: ChannelSettings, room: int, peer_buffer: int, peer_limit: int
    ) -> None:
        first = settings.first_sequence
        self._settings = settings
        self._room = room
        self._whole = room - MESSAGES_OVERHEAD - LENGTH_OVERHEAD
        self._part = room - FRAGMENT_OVERHEAD
        self._peer_buffer = peer_buffer
        self._limit = min(settings.max_message, peer_limit, MAX_FRAGMENTS * self._part)
        self._messages: SequenceBuffer[Parts] = SequenceBuffer(settings.send_buffer, first)
        self._oldest_unacked = first
        self._next_id = first
        self._unsent: Piece = (first, 0)
        self._resend: list[Piece] = []
        self._bytes = 0
        self._unreliable: deque[bytes] = deque()
        self.unreliable_dropped = 0

    @property
    def waiting(self) -> int:
        """Messages not yet acked; those behind a message still unacked count too."""
        return self._next_id - self._oldest_unacked

    @property
    def idle(self) -> bool:
        """Nothing waits to be sent or acked."""
        return not self.waiting and not self._unreliable

    def has_room(self, size: int) -> bool:
        """Whether a message of this many bytes can be queued by now."""
        if self.waiting >= self._settings.send_buffer:
            return False
        return not self.waiting or self._bytes + size <= self._settings.send_buffer_bytes

    def check(self, size: int) -> None:
        """Raise ``MessageTooLargeError`` for a message that this channel can never send."""
        if size > self._limit:
            raise MessageTooLargeError(
                f"a message of {size} bytes; this channel takes {self._limit}"
            )

    def push(self, payload: bytes) -> None:
        """Queue a reliable message; raises ``StateError`` when there is no room for it by now."""
        self.check(len(payload))
        if not self.has_room(len(payload)):
            raise StateError(f"no room for {len(payload)} bytes: {self.waiting} messages wait")
        self._messages.insert(self._next_id, Parts(payload, self._whole, self._part))
        self._next_id += 1
        self._bytes += len(payload)

    def push_unreliable(self, payload: bytes) -> None:
        """Queue a message for the next packet; when too many wait, the oldest is dropped."""
        self.check(len(payload))
        limit = self._room - UNRELIABLE_OVERHEAD - LENGTH_OVERHEAD
        if len(payload) > limit:
            raise MessageTooLargeError(
                f"an unreliable message of {len(payload)} bytes; one packet takes {limit}"
            )
        if len(self._unreliable) >= self._settings.unreliable_buffer:
            self._unreliable.popleft()
            self.unreliable_dropped += 1
        self._unreliable.append(payload)

    def fill(self) -> Packing:
        """Take what goes into the next packet."""
        packing = Packing(self._room)
        packing.add_unreliable(self._unreliable)
        while (piece := self._next_piece()) is not None:
            if not packing.add(piece, self._parts(piece)):
                break
            self._advance(piece)
        return packing

    def acked(self, pieces: list[Piece]) -> None:
        """Forget the pieces of an acked packet; a message leaves with its last piece."""
        for message_id, index in pieces:
            parts = self._messages.find(message_id)
            if parts is None:
                continue
            parts.unacked.discard(index)
            if not parts.unacked:
                self._messages.remove(message_id)
                self._bytes -= len(parts.payload)
        while self._oldest_unacked < self._next_id and self._oldest_unacked not in self._messages:
            self._oldest_unacked += 1

    def lost(self, pieces: list[Piece]) -> int:
        """Put the pieces of a lost packet in line again; return how many are still wanted."""
        wanted = [piece for piece in pieces if self._is_wanted(piece)]
        for piece in wanted:
            heappush(self._resend, piece)
        return len(wanted)

    def _next_piece(self) -> Piece | None:
        # A late ack may have settled what was given up.
        while self._resend and not self._is_wanted(self._resend[0]):
            heappop(self._resend)
        if self._resend:
            return self._resend[0]
        end = min(self._next_id, self._oldest_unacked + self._peer_buffer)
        return self._unsent if self._unsent[0] < end else None

    def _advance(self, piece: Piece) -> None:
        if self._resend and self._resend[0] == piece:
            heappop(self._resend)
            return
        message_id, index = piece
        is_last = index + 1 == self._parts(piece).count
        self._unsent = (message_id + 1, 0) if is_last else (message_id, index + 1)

    def _is_wanted(self, piece: Piece) -> bool:
        parts = self._messages.find(piece[0])
        return parts is not None and piece[1] in parts.unacked

    def _parts(self, piece: Piece) -> Parts:
        parts = self._messages.find(piece[0])
        assert parts is not None, "what is unsent or wanted is still in the buffer"
        return parts
