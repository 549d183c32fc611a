"""Virtual time that jumps from event to event, for all parts of a simulation."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from sphtp.testing.link import Faults
from sphtp.testing.network import SimulatedNetwork


class VirtualClock:
    """A clock that starts at zero seconds; usable in place of ``time.monotonic``.

    For programs that wait, Trio has ``trio.testing.MockClock``.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def __call__(self) -> float:
        """Return the present time, in seconds."""
        return self._now

    @property
    def now(self) -> float:
        """The present time, in seconds."""
        return self._now

    def advance_to(self, when: float) -> None:
        """Move to a time; raise ``ValueError`` if it is past."""
        if not when >= self._now:
            raise ValueError(f"time cannot go back from {self._now} s to {when} s")
        self._now = when

    def advance(self, seconds: float) -> None:
        """Move forward; raise ``ValueError`` if ``seconds`` is negative."""
        self.advance_to(self._now + seconds)


STANDSTILL: Final = 10_000
"""Steps at one time that no honest exchange needs."""


class NeverIdleError(AssertionError):
    """A simulation did not reach its condition, or time stood still.

    The message holds the seed that replays it.
    """


class Simulation(ABC):
    """A network, a clock, and the parties on it. Time is in seconds and starts at zero."""

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.seed = seed
        self.clock = VirtualClock()
        self.network = SimulatedNetwork(seed, faults)
        self._steps = 0

    @property
    def now(self) -> float:
        """The present time, in seconds."""
        return self.clock.now

    def step(self) -> bool:
        """Jump to the next event and handle it; return False if there is none."""
        self._flush()
        due = self._next_time()
        if due is None:
            return False
        self._tick(max(self.now, due))
        self._happen()
        self._flush()
        return True

    def drive(self, until: Callable[[], bool], seconds: float = 60.0) -> None:
        """Step until a condition holds.

        Raises ``NeverIdleError`` after ``seconds`` of virtual time.
        """
        deadline = self.now + seconds
        while not until():
            if not self.step() or self.now > deadline:
                raise NeverIdleError(f"not reached after {self.now:.3f} s; seed {self.seed}")

    def run(self, seconds: float, watch: Callable[[], None] | None = None) -> None:
        """Let ``seconds`` pass; call ``watch`` after each event."""
        end = self.now + seconds
        self._flush()
        while (due := self._next_time()) is not None and due <= end:
            self.step()
            if watch is not None:
                watch()
        self.clock.advance_to(end)

    @abstractmethod
    def _next_time(self) -> float | None:
        """Return the time of the next event; None if there is none."""

    @abstractmethod
    def _happen(self) -> None:
        """Handle the events that are due now."""

    @abstractmethod
    def _flush(self) -> None:
        """Send what the parties have to send."""

    def _tick(self, when: float) -> None:
        self._steps = self._steps + 1 if when == self.now else 0
        self.clock.advance_to(when)
        if self._steps > STANDSTILL:
            raise NeverIdleError(f"time stands still at {self.now:.3f} s; seed {self.seed}")
