"""Flow control of a stream: how far its source may be ahead of its slowest receiver.

A receiver reports what it has, and how much room its reader leaves (Aeron's status messages). It
holds the source up only as long as it goes on: who makes no progress for ``patience`` seconds while
the source waits is left behind until it does, and gets what can still be repaired.
"""

from sphtp.core.alarms import earliest
from sphtp.core.stream.bodies import Status


class _Pace:
    """One receiver; ``limit`` is the highest datagram that it can take."""

    __slots__ = ("lead", "limit", "since")

    def __init__(self, lead: int, limit: int) -> None:
        self.lead = lead
        self.limit = limit
        # Since when the source waits for it; None while it does not.
        self.since: float | None = None


class Flow:
    """Receivers by number. ``window`` is in bytes, and so is ``size``, of a datagram.

    A window of 0 holds nothing back.
    """

    def __init__(self, window: int, size: int, patience: float) -> None:
        self.limit: int | None = None
        """The highest datagram that may leave; None when nobody is waited for."""
        self.left_behind = 0
        """How often somebody was left behind."""
        self._reach = window // size
        self._size = size
        self._patience = patience
        self._followed: dict[int, _Pace] = {}
        self._left: dict[int, _Pace] = {}

    @property
    def due(self) -> float | None:
        """When somebody's patience ends."""
        ends: float | None = None
        for pace in self._followed.values():
            if pace.since is not None:
                ends = earliest(ends, pace.since + self._patience)
        return ends

    def join(self, receiver: int, lead: int) -> None:
        """Wait for one more."""
        if self._reach:
            self._followed[receiver] = _Pace(lead, lead + self._reach)
            self._find_limit()

    def leave(self, receiver: int) -> None:
        """Forget a receiver."""
        self._followed.pop(receiver, None)
        self._left.pop(receiver, None)
        self._find_limit()

    def hear(self, receiver: int, status: Status) -> None:
        """Take a receiver's word; one that was left behind and goes on is waited for again."""
        pace = self._followed.get(receiver) or self._left.get(receiver)
        limit = status.lead + min(self._reach, status.room // self._size)
        if pace is None or status.lead < pace.lead or limit <= pace.limit:
            return
        pace.lead, pace.limit, pace.since = status.lead, limit, None
        self._left.pop(receiver, None)
        self._followed[receiver] = pace
        self._find_limit()

    def hold(self, now: float) -> None:
        """Take it that the source waits: patience runs for those that it waits for."""
        for pace in self._followed.values():
            if pace.since is None and pace.limit == self.limit:
                pace.since = now

    def expire(self, now: float) -> None:
        """Leave behind those that it has waited for too long."""
        for receiver, pace in tuple(self._followed.items()):
            if pace.since is not None and now >= pace.since + self._patience:
                pace.since = None
                self._left[receiver] = self._followed.pop(receiver)
                self.left_behind += 1
        self._find_limit()

    def _find_limit(self) -> None:
        self.limit = min((pace.limit for pace in self._followed.values()), default=None)
