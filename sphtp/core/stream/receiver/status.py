"""When a receiver reports how far it is, and how much room there is: see ``Flow`` for why."""

from sphtp.core.stream.bodies import Status
from sphtp.core.stream.grants import SHARE, first_grant


class StatusReports:
    """Reports a receiver's status when the source asks, or has used up much of the last one.

    ``reach`` is how many datagrams of ``size`` bytes the source may be ahead, 0 for no matter how
    many; ``burst`` how many this side can take at once. ``lead`` is where the source was when this
    receiver joined, None if nobody knows.
    """

    __slots__ = ("_burst", "_every", "_is_asked", "_reach", "_size", "_told")

    def __init__(self, reach: int, size: int, burst: int, lead: int | None = None) -> None:
        self._reach = reach
        self._size = size
        self._burst = burst
        self._every = max(min(reach, burst) // SHARE, 1)
        # The highest datagram that the source was told that it may send, or takes for granted.
        self._told = None if lead is None else lead + first_grant(reach)
        self._is_asked = False

    def ask(self) -> None:
        """The source has sent a session message, which asks for a report."""
        self._is_asked = True

    def is_due(self, settled: int, lead: int, room: int) -> bool:
        """Whether to report, unasked, of a receiver that has everything up to ``settled``.

        The highest that it knows of is ``lead``; its reader leaves ``room`` bytes.
        """
        if not self._reach or self._told is None:
            return False
        return settled + self._ahead(settled, lead, room) - self._told >= self._every

    def poll(self, settled: int, lead: int, room: int, *, is_fetching: bool) -> Status | None:
        """Return what to report, if it is time."""
        if not self._is_asked and not self.is_due(settled, lead, room):
            return None
        self._is_asked = False
        if self._reach:
            ahead = self._ahead(settled, lead, room)
            self._told = settled + ahead
            room = min(room, ahead * self._size)
        return Status(settled, room, is_fetching)

    def _ahead(self, settled: int, lead: int, room: int) -> int:
        # What came behind a gap has left the socket, and makes room for others there.
        return min(self._reach, room // self._size, lead - settled + self._burst)
