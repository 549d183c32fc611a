"""What is due when: at most one time per signal."""

from typing import Generic, TypeVar

from sphtp.core.machine import Name

S = TypeVar("S", bound=Name)


class Alarms(Generic[S]):
    """The timers of one machine; a signal set again moves."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: dict[S, float] = {}

    def set(self, signal: S, due: float) -> None:
        """Let ``signal`` happen at ``due``."""
        self._times[signal] = due

    def stop(self, signal: S) -> None:
        """Let ``signal`` not happen, if it was set."""
        self._times.pop(signal, None)

    def postpone(self, signal: S, seconds: float) -> None:
        """Let ``signal`` happen later, if it was set."""
        if signal in self._times:
            self._times[signal] += seconds

    def pending(self) -> tuple[S, ...]:
        """Return the signals that are set."""
        return tuple(self._times)

    def take(self, now: float) -> S | None:
        """Take out the signal that has been due for longest, or return None."""
        signal = min(self._times, key=self._times.__getitem__, default=None)
        if signal is None or self._times[signal] > now:
            return None
        del self._times[signal]
        return signal

    def next_due(self) -> float | None:
        """Return the time of the first signal."""
        return min(self._times.values(), default=None)
