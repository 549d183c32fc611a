"""When which missing range is to be asked for; of those that are due, the lowest first."""

from sphtp.core.stream.receiver.loss_map import Gap
from sphtp.core.timers import TimerQueue, earliest


class NakTimer:
    """One timer for each range. Times in seconds."""

    __slots__ = ("_rung", "_waiting")

    def __init__(self) -> None:
        self._waiting = TimerQueue[Gap]()
        # Those that rang, by number instead of by time.
        self._rung = TimerQueue[Gap]()

    def __contains__(self, gap: Gap) -> bool:
        return gap in self._waiting or gap in self._rung

    def set(self, gap: Gap, due: float) -> None:
        """Let the timer of ``gap`` ring at ``due``, and at no other time."""
        gap.due = due
        self._rung.set(gap, None)
        self._waiting.set(gap, due)

    def stop(self, gap: Gap) -> None:
        """Let it not ring."""
        self._rung.set(gap, None)
        self._waiting.set(gap, None)

    def take(self, now: float) -> Gap | None:
        """Stop and return the lowest range whose time has come; None when there is none."""
        for gap in self._waiting.take_due(now):
            self._rung.set(gap, gap.first)
        return self._rung.pop()

    def next_due(self) -> float | None:
        """When the next one rings, some time in the past if one rang; None when none is set."""
        lowest = self._rung.first()
        return earliest(None if lowest is None else lowest.due, self._waiting.next_due())
