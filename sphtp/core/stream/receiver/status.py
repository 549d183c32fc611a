"""When a receiver reports how far it is, and how much room there is: see ``Flow`` for why."""

from typing import Final

from sphtp.core.stream.bodies import Status

SHARE: Final = 4
"""Reports in what a source may be ahead: it is never kept waiting for one that is on its way."""


class StatusReports:
    """Reports a receiver's status when the source asks, or has used up much of the last one.

    ``reach`` is how many datagrams of ``size`` bytes the source may be ahead, 0 for no matter how
    many; ``lead`` is where it was when this receiver joined, None if nobody knows.
    """

    __slots__ = ("_every", "_is_asked", "_reach", "_size", "_told")

    def __init__(self, reach: int, size: int, lead: int | None = None) -> None:
        self._reach = reach
        self._size = size
        self._every = max(reach // SHARE, 1)
        # The highest datagram that the source was told that it may send, or takes for granted.
        self._told = None if lead is None else lead + reach
        self._is_asked = False

    def ask(self) -> None:
        """The source has sent a session message, which asks for a report."""
        self._is_asked = True

    def is_due(self, lead: int, room: int) -> bool:
        """Whether to report of a receiver that has everything up to ``lead``, unasked."""
        if not self._reach or self._told is None:
            return False
        return self._limit(lead, room) - self._told >= self._every

    def poll(self, lead: int, room: int, *, is_fetching: bool) -> Status | None:
        """Return what to report, if it is time."""
        if not self._is_asked and not self.is_due(lead, room):
            return None
        self._told, self._is_asked = self._limit(lead, room), False
        if self._reach:
            room = min(room, self._reach * self._size)
        return Status(lead, room, is_fetching)

    def _limit(self, lead: int, room: int) -> int:
        return lead + min(self._reach, room // self._size)
