"""How much was sent a second of late: over about the last second in which there was something.

Pauses in which nothing waited to be sent do not count, for nobody was held up in them.
"""

from math import exp, expm1
from typing import Final

SPAN: Final = 1.0
"""Seconds after which what was sent counts for a third."""

PAUSE: Final = 0.1
"""Seconds that count of the time between two datagrams between which nothing waited."""


class MeanRate:
    """An exponentially fading mean of bytes a second; times in seconds."""

    __slots__ = ("_age", "_at", "_level", "_waits")

    def __init__(self) -> None:
        self._age = 0.0
        self._at: float | None = None
        self._level = 0.0
        self._waits = False

    def add(self, now: float, size: int, *, waits: bool) -> None:
        """So many bytes leave now; ``waits`` says whether more would, if they might."""
        passed = self._passed(now)
        self._age += passed
        self._level = self._level * exp(-passed / SPAN) + size
        self._at, self._waits = now, waits

    def at(self, now: float) -> float | None:
        """The mean; None as long as nothing is known."""
        passed = self._passed(now)
        age = self._age + passed
        if not age:
            return None
        # At first the mean is over less than the span.
        return self._level * exp(-passed / SPAN) / (SPAN * -expm1(-age / SPAN))

    def _passed(self, now: float) -> float:
        if self._at is None:
            return 0.0
        passed = max(now - self._at, 0.0)
        return passed if self._waits else min(passed, PAUSE)
