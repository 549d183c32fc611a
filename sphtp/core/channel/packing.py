"""One packet being filled: frames and their cost, and the pieces to remember until it is acked."""

from collections import deque

from sphtp.core.channel.acks import Piece
from sphtp.core.channel.fragments import Parts
from sphtp.core.channel.frames import (
    FRAGMENT_OVERHEAD,
    LENGTH_OVERHEAD,
    MAX_MESSAGES_PER_FRAME,
    MESSAGES_OVERHEAD,
    UNRELIABLE_OVERHEAD,
    Fragment,
    Frame,
    Messages,
    Unreliable,
)
from sphtp.core.serial import wrap


class Packing:
    """Frames for a packet with ``room`` bytes behind its header."""

    __slots__ = ("_open", "_room", "frames", "pieces")

    def __init__(self, room: int) -> None:
        self._room = room
        self.frames: list[Frame] = []
        self.pieces: list[Piece] = []
        # Whole messages with consecutive ids share a frame; this is the one that still grows.
        self._open: list[bytes] = []

    def add_unreliable(self, waiting: deque[bytes]) -> None:
        """Move as many unreliable messages in as fit."""
        taken: list[bytes] = []
        room = self._room - UNRELIABLE_OVERHEAD
        while waiting and len(taken) < MAX_MESSAGES_PER_FRAME:
            cost = LENGTH_OVERHEAD + len(waiting[0])
            if cost > room:
                break
            room -= cost
            taken.append(waiting.popleft())
        if taken:
            self._room = room
            self.frames.append(Unreliable(taken))

    def add(self, piece: Piece, parts: Parts) -> bool:
        """Move one piece of a reliable message in; false when it does not fit."""
        payload = parts.part(piece[1])
        added = self._add_whole if parts.count == 1 else self._add_fragment
        if not added(piece, payload, parts.count):
            return False
        self.pieces.append(piece)
        return True

    def _add_whole(self, piece: Piece, payload: bytes, _: int) -> bool:
        if self._continues(piece):
            if not self._pay(LENGTH_OVERHEAD + len(payload)):
                return False
            self._open.append(payload)
            return True
        if not self._pay(MESSAGES_OVERHEAD + LENGTH_OVERHEAD + len(payload)):
            return False
        self._open = [payload]
        self.frames.append(Messages(wrap(piece[0]), self._open))
        return True

    def _add_fragment(self, piece: Piece, payload: bytes, count: int) -> bool:
        if not self._pay(FRAGMENT_OVERHEAD + len(payload)):
            return False
        self._open = []
        self.frames.append(Fragment(wrap(piece[0]), piece[1], count, payload))
        return True

    def _continues(self, piece: Piece) -> bool:
        has_place = 0 < len(self._open) < MAX_MESSAGES_PER_FRAME
        return has_place and self.pieces[-1][0] + 1 == piece[0]

    def _pay(self, cost: int) -> bool:
        if cost > self._room:
            return False
        self._room -= cost
        return True
