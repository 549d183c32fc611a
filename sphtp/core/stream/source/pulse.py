"""The rates of a source, of new data and of repairs: so that recovery does not feed on itself.

Where a path is overloaded more repairs make more losses. So to a group, or to each receiver where
there is none, they may be as many as new data a few times over; and while those to anybody wait for
their turn nevertheless, new data leaves no faster than it did of late, which is less from second to
second as long as receivers make it wait. When repairs have caught up, it goes on, a little faster
each second.
"""

from math import inf
from typing import Final

from sphtp.core.fsm import Runner
from sphtp.core.stream.settings import MBIT, StreamSettings
from sphtp.core.stream.source.mean_rate import MeanRate
from sphtp.core.stream.source.tempo_table import TEMPO, Tempo, TempoAction, TempoEvent

LEAST: Final = MBIT
"""Bytes a second that repairs, and new data, always have."""

EASE: Final = 1.1
"""How much faster than of late new data may leave that has piled up."""

CALM: Final = 1.0
"""Seconds in which no repair waits too long before new data may be faster again."""


class Pulse:
    """Says how fast a source may send; rates in bytes/s, times in seconds."""

    def __init__(self, settings: StreamSettings) -> None:
        self.state = TEMPO.initial
        self._data_rate = settings.data_rate
        self._repair_rate = settings.repair_rate
        self._share = settings.repair_share
        self._tolerance = settings.nak_backoff
        self._mean = MeanRate()
        self._calm_at = 0.0

    def handle_data(self, now: float, size: int, *, waits: bool) -> None:
        """New data leaves; ``waits`` says whether there is more."""
        self._mean.add(now, size, waits=waits)
        self._look(now)
        if not waits:
            self._step(now, TempoEvent.CAUGHT_UP)

    def handle_repairs(self, now: float, waiting: int) -> None:
        """So many bytes of repairs wait for their turn, to a group or to one receiver."""
        if self._share and waiting > self._tolerance * self.repair_rate(now):
            self._step(now, TempoEvent.STRAINED)

    def data_rate(self, now: float) -> float | None:
        """How fast new data may leave; None does not hold back."""
        if self.state is Tempo.FREE:
            return self._data_rate
        self._look(now)
        rate = (EASE if self.state is Tempo.EASING else 1.0) * self._of_late(now)
        if rate == inf:
            return self._data_rate
        return rate if self._data_rate is None else min(rate, self._data_rate)

    def repair_rate(self, now: float) -> float:
        """How fast repairs may leave, to a group or to one receiver."""
        if self._share is None:
            return self._repair_rate
        return min(self._repair_rate, self._share * self._of_late(now))

    def _of_late(self, now: float) -> float:
        mean = self._mean.at(now)
        return inf if mean is None else max(mean, LEAST)

    def _look(self, now: float) -> None:
        if self.state is Tempo.BRAKING and now >= self._calm_at:
            self._step(now, TempoEvent.CALM)

    def _step(self, now: float, event: TempoEvent) -> None:
        self._RUNNER.step(self, event, now)

    def _wait(self, now: float) -> None:
        self._calm_at = now + CALM

    _RUNNER = Runner(TEMPO, {TempoAction.WAIT: _wait}, ignored=TempoEvent)
