"""How much was sent a second of late: over about the last second in which there was something.

Pauses in which nothing waited to be sent do not count, for nobody was held up in them.
"""

from math import exp, expm1, inf
from typing import Final

from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.core.stream.settings import MBIT, StreamSettings

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


# How a source takes care that recovery does not outgrow what it is to recover, as a table.


class RateState(Name):
    """How fast new data may leave, beside what the settings allow."""

    FREE = "as fast as it comes"
    BRAKING = "no faster than of late: repairs wait too long for their turn"
    EASING = "a little faster than of late: what has piled up would else come all at once"


class RateEvent(Name):
    """What happens to it."""

    STRAINED = "repairs wait for so long that they are asked for again meanwhile"
    CALM = "for a while they did not"
    CAUGHT_UP = "no new data waits"


class RateAction(Name):
    """What is then done."""

    WAIT = "start the clock of calm anew"


T, E, A = RateState, RateEvent, RateAction

RATE_LIMIT: Final = Machine(
    "RateState of a source",
    T.FREE,
    (
        Row(T.FREE, E.STRAINED, T.BRAKING, (A.WAIT,), "a path that is full takes no more"),
        Row(T.BRAKING, E.STRAINED, T.BRAKING, (A.WAIT,), "it still is"),
        Row(T.BRAKING, E.CALM, T.EASING, (), "there seems to be room"),
        Row(T.EASING, E.STRAINED, T.BRAKING, (A.WAIT,), "that was too much"),
        Row(T.EASING, E.CAUGHT_UP, T.FREE, (), "what comes now comes as its sender has it"),
    ),
    events=RateEvent,
    refused={
        T.FREE: frozenset({E.CALM, E.CAUGHT_UP}),
        T.BRAKING: frozenset({E.CAUGHT_UP}),
        T.EASING: frozenset({E.CALM}),
    },
)


# The rates of a source, of new data and of repairs: so that recovery does not feed on itself.
#
# Where a path is overloaded more repairs make more losses. So to a group, or to each receiver
# where there is none, they may be as many as new data a few times over; and while those to
# anybody wait for their turn nevertheless, new data leaves no faster than it did of late, which
# is less from second to second as long as receivers make it wait. When repairs have caught up, it
# goes on, a little faster each second.


LEAST: Final = MBIT
"""Bytes a second that repairs, and new data, always have."""

EASE: Final = 1.1
"""How much faster than of late new data may leave that has piled up."""

CALM: Final = 1.0
"""Seconds in which no repair waits too long before new data may be faster again."""


class RateLimit:
    """Says how fast a source may send; rates in bytes/s, times in seconds."""

    def __init__(self, settings: StreamSettings) -> None:
        self.state = RATE_LIMIT.initial
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
            self._step(now, RateEvent.CAUGHT_UP)

    def handle_repairs(self, now: float, waiting: int) -> None:
        """So many bytes of repairs wait for their turn, to a group or to one receiver."""
        if self._share and waiting > self._tolerance * self.repair_rate(now):
            self._step(now, RateEvent.STRAINED)

    def data_rate(self, now: float) -> float | None:
        """How fast new data may leave; None does not hold back."""
        if self.state is RateState.FREE:
            return self._data_rate
        self._look(now)
        rate = (EASE if self.state is RateState.EASING else 1.0) * self._of_late(now)
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
        if self.state is RateState.BRAKING and now >= self._calm_at:
            self._step(now, RateEvent.CALM)

    def _step(self, now: float, event: RateEvent) -> None:
        self._RUNNER.step(self, event, now)

    def _wait(self, now: float) -> None:
        self._calm_at = now + CALM

    _RUNNER = Runner(RATE_LIMIT, {RateAction.WAIT: _wait}, ignored=RateEvent)
