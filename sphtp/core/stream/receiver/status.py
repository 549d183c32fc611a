"""When a receiver reports how far it is, and how much room there is: see ``flow`` for why."""

from sphtp.core.stream.bodies import Status
from sphtp.core.stream.settings import StreamSettings

SHARE = 4
"""Reports in a window: a source is never kept waiting for one that is on its way."""


class StatusReports:
    """Reports a receiver's status when the source asks, or has used up much of the last one."""

    __slots__ = ("_every", "_is_asked", "_size", "_told", "_window")

    def __init__(self, settings: StreamSettings) -> None:
        self._window = settings.flow_window
        self._size = settings.max_datagram
        self._every = self._window // SHARE
        self._told: int | None = None
        self._is_asked = False

    def ask(self) -> None:
        """The source has sent a session message, which asks for a report."""
        self._is_asked = True

    def poll(self, lead: int, room: int, *, is_fetching: bool) -> Status | None:
        """Return what to report of a receiver that has everything up to ``lead``, if it is time."""
        if not self._window:
            return None
        allowed = lead * self._size + min(room, self._window)
        told = allowed if self._told is None else self._told
        if not self._is_asked and self._told is not None and allowed - told < self._every:
            return None
        self._told, self._is_asked = allowed, False
        return Status(lead, room, is_fetching)
