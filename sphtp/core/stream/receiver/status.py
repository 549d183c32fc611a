"""When a receiver reports how far it is, and how much room there is: see ``Flow`` for why."""

from sphtp.core.stream.bodies import Status
from sphtp.core.stream.grants import SHARE, first_grant


class StatusReports:
    """Reports a receiver's status when the source asks, or has used up much of the last one.

    ``reach`` is how many bytes the source may be ahead, 0 for no matter how many; ``burst`` how
    many this side can take at once. All are counted as ``grants`` has it. Unless it ``knows_lead``,
    this receiver does not know what the source takes for granted.
    """

    __slots__ = ("_burst", "_every", "_is_asked", "_reach", "_told")

    def __init__(self, reach: int, burst: int, *, knows_lead: bool = True) -> None:
        self._reach = reach
        self._burst = burst
        self._every = max(min(reach, burst) // SHARE, 1)
        # How far the source was told that it may send, or takes for granted, from the join on.
        self._told = first_grant(reach) if knows_lead else None
        self._is_asked = False

    def ask(self) -> None:
        """The source has sent a session message, which asks for a report."""
        self._is_asked = True

    def is_due(self, taken: int, behind_gap: int, room: int) -> bool:
        """Whether to report, unasked, of a receiver that has ``taken`` so many bytes.

        Of these, ``behind_gap`` are behind something that is missing; its reader leaves ``room``.
        """
        if not self._reach or self._told is None:
            return False
        settled = taken - behind_gap
        return settled + self._ahead(behind_gap, room) - self._told >= self._every

    def poll(
        self,
        lead: int,
        taken: int,
        behind_gap: int,
        room: int,
        *,
        is_fetching: bool = False,
        knows_end: bool = False,
    ) -> Status | None:
        """Return what to report of a receiver that has everything up to ``lead``, if it is time."""
        if not self._is_asked and not self.is_due(taken, behind_gap, room):
            return None
        self._is_asked = False
        if self._reach:
            room = self._ahead(behind_gap, room)
            self._told = taken - behind_gap + room
        return Status(lead, room, is_fetching, knows_end)

    def _ahead(self, behind_gap: int, room: int) -> int:
        # What came behind a gap has left the socket, and makes room for others there.
        return min(self._reach, room, behind_gap + self._burst)
