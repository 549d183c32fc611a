"""The timers of one machine: what is due when, at most one time per name."""

from typing import Generic, TypeVar

from sphtp.core.machine import Name

S = TypeVar("S", bound=Name)


def earliest(one: float | None, other: float | None) -> float | None:
    """The earlier of two times that need not be set."""
    if one is None or other is None:
        return other if one is None else one
    return one if one <= other else other


class Alarms(Generic[S]):
    """Absolute times in seconds; a name set again moves, and one that is not set never rings."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: dict[S, float] = {}

    def set(self, name: S, due: float) -> None:
        """Let ``name`` ring at ``due``."""
        self._times[name] = due

    def move(self, name: S, due: float) -> None:
        """Let ``name`` ring at ``due`` instead, if it was set."""
        if name in self._times:
            self._times[name] = due

    def postpone(self, name: S, seconds: float) -> None:
        """Let ``name`` ring so much later, if it was set."""
        if name in self._times:
            self._times[name] += seconds

    def stop(self, *names: S) -> None:
        """Let none of ``names`` ring; those not set are left."""
        for name in names:
            self._times.pop(name, None)

    def clear(self) -> None:
        """Let nothing ring."""
        self._times.clear()

    def pending(self) -> tuple[S, ...]:
        """Return the names that are set."""
        return tuple(self._times)

    def take(self, now: float) -> S | None:
        """Unset and return the name that has been due for longest; None when none is due."""
        name = min(self._times, key=self._times.__getitem__, default=None)
        if name is None or self._times[name] > now:
            return None
        del self._times[name]
        return name

    def next_due(self) -> float | None:
        """Return the earliest time; None when nothing is set."""
        return min(self._times.values(), default=None)
