"""Redundancy: pieces that go again before anybody knows whether they are lost."""

from collections import deque

from sphtp.core.channel.pieces import Piece


class Copies:
    """Pieces that asked for copies, and still have some coming.

    Each gets one with every packet that carries something new: in that packet if there is room,
    else in one right behind it.
    """

    __slots__ = ("_due", "_resting")

    def __init__(self) -> None:
        self._due: deque[Piece] = deque()
        # Those that have had their copy with the latest packet.
        self._resting: deque[Piece] = deque()

    def __bool__(self) -> bool:
        """Whether a packet is wanted for nothing but copies."""
        return bool(self._due)

    @property
    def are_coming(self) -> bool:
        """Whether the packets to come have copies to carry."""
        return bool(self._due or self._resting)

    def accompany(self, pieces: list[Piece], room: int) -> int:
        """Add copies to a packet that carries something new; return the room that is left.

        The packet's own ``pieces`` get theirs with the packets after it.
        """
        new = [piece for piece in pieces if piece.copies and not piece.rides]
        if self._resting:
            self._due.extend(self._resting)
            self._resting.clear()
        if self._due:
            room = self.fill(pieces, room)
        for piece in new:
            piece.rides = True
        self._resting.extend(new)
        return room

    def fill(self, pieces: list[Piece], room: int) -> int:
        """Add the copies that are due, as far as they fit; return the room that is left."""
        due = self._due
        while due and (due[0].acked or due[0].cost <= room):
            piece = due.popleft()
            if not piece.acked and piece not in pieces:
                room -= piece.cost
                piece.copies -= 1
                pieces.append(piece)
            piece.rides = piece.copies > 0 and not piece.acked
            if piece.rides:
                self._resting.append(piece)
        return room
