"""The timers of a connection: an enum, and a table of when each is due."""

from sphtp.core.machine import Name


class Timer(Name):
    """What a connection waits for."""

    RETRY = "send CONNECT again"
    HANDSHAKE = "give up opening"
    KEEPALIVE = "say something"
    IDLE = "nothing was heard for too long"
    CLOSE = "give up draining"
    LINGER = "stop answering"


class Timers:
    """Absolute times in seconds; a timer that is not set is not due."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: dict[Timer, float] = {}

    def set(self, timer: Timer, when: float) -> None:
        """Set, or move, a timer."""
        self._due[timer] = when

    def move(self, timer: Timer, when: float) -> None:
        """Move a timer that is set; one that is not stays so."""
        if timer in self._due:
            self._due[timer] = when

    def stop(self, *timers: Timer) -> None:
        """Unset timers; those not set are left."""
        for timer in timers:
            self._due.pop(timer, None)

    def clear(self) -> None:
        """Unset all."""
        self._due.clear()

    def is_due(self, timer: Timer, now: float) -> bool:
        """Whether a timer is set and has come."""
        when = self._due.get(timer)
        return when is not None and when <= now

    def take_due(self, now: float) -> list[Timer]:
        """Unset and return the timers that have come, in the order of the enum."""
        due = [timer for timer in Timer if self.is_due(timer, now)]
        self.stop(*due)
        return due

    def next(self) -> float | None:
        """When the earliest timer is due."""
        return min(self._due.values(), default=None)
