"""Rate limiting at a source: of new data, and of retransmissions.

The settings limit both: ``data_rate``, and ``repair_rate``, Ultra Messaging's retransmit rate
limit. But where a path is overloaded, more repairs make more losses, so recovery could feed on
itself. Two rules keep it from that:

* Repairs, to a group or to each receiver where there is none, leave at no more than
  ``repair_share`` times the mean rate of new data over about the last second.
* While repairs nevertheless wait for longer than a NAK backoff, and so are asked for again before
  they leave, new data leaves no faster than that mean. As receivers make the source wait, the mean
  falls from second to second. When no repair has waited for too long for a second, accumulated new
  data leaves a tenth faster than the mean, until none waits.

Pauses in which no data waited do not count in the mean, because nothing was delayed in them.
"""

from math import exp, expm1, inf
from typing import Final

from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.core.stream.settings import MBIT, StreamSettings

SPAN: Final = 1.0
"""The seconds after which the weight of earlier data has fallen to a third."""

PAUSE: Final = 0.1
"""The most seconds of an idle pause between two datagrams that count."""


class MeanRate:
    """An exponentially fading mean of bytes a second, over the times in which data was sent."""

    __slots__ = ("_age", "_at", "_level", "_waits")

    def __init__(self) -> None:
        self._age = 0.0
        self._at: float | None = None
        self._level = 0.0
        self._waits = False

    def add(self, now: float, size: int, *, waits: bool) -> None:
        """Count ``size`` bytes that leave now; ``waits`` is true if more data waits."""
        passed = self._passed(now)
        self._age += passed
        self._level = self._level * exp(-passed / SPAN) + size
        self._at, self._waits = now, waits

    def at(self, now: float) -> float | None:
        """Return the mean; None as long as nothing was sent."""
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


class RateState(Name):
    """The states of the limit on new data."""

    FREE = "at the rate of the settings"
    BRAKING = "no faster than the mean, because repairs wait too long for their turn"
    EASING = "a tenth faster than the mean, so that accumulated data does not leave all at once"


class RateEvent(Name):
    """The events of the limit on new data."""

    STRAINED = "repairs wait for so long that receivers ask for them again"
    CALM = "for a while no repair waited too long"
    CAUGHT_UP = "no new data waits"


class RateAction(Name):
    """The actions of the limit on new data."""

    WAIT = "restart the timer of the calm period"


S, E, A = RateState, RateEvent, RateAction

RATE_LIMIT: Final = Machine(
    "RateState of a source",
    S.FREE,
    (
        Row(S.FREE, E.STRAINED, S.BRAKING, (A.WAIT,), "a full path carries no more"),
        Row(S.BRAKING, E.STRAINED, S.BRAKING, (A.WAIT,), "the rise remains"),
        Row(S.BRAKING, E.CALM, S.EASING, (), "the path seems to have room"),
        Row(S.EASING, E.STRAINED, S.BRAKING, (A.WAIT,), "the higher rate was too high"),
        Row(S.EASING, E.CAUGHT_UP, S.FREE, (), "new data can leave as the program sends it"),
    ),
    events=RateEvent,
    refused={
        S.FREE: frozenset({E.CALM, E.CAUGHT_UP}),
        S.BRAKING: frozenset({E.CAUGHT_UP}),
        S.EASING: frozenset({E.CALM}),
    },
)


LEAST: Final = MBIT
"""The bytes a second that repairs, and new data, are always allowed."""

EASE: Final = 1.1
"""The factor by which new data that has piled up may leave faster than of late."""

CALM: Final = 1.0
"""Seconds in which no repair waits too long before new data may be faster again."""


class RateLimit:
    """The rates of a source, in bytes a second."""

    def __init__(self, settings: StreamSettings) -> None:
        self.state = RATE_LIMIT.initial
        self._data_rate = settings.data_rate
        self._repair_rate = settings.repair_rate
        self._share = settings.repair_share
        self._tolerance = settings.nak_backoff
        self._mean = MeanRate()
        self._calm_at = 0.0

    def handle_data(self, now: float, size: int, *, waits: bool) -> None:
        """Count new data that leaves; ``waits`` is true if more data waits."""
        self._mean.add(now, size, waits=waits)
        self._update(now)
        if not waits:
            self._step(now, RateEvent.CAUGHT_UP)

    def handle_repairs(self, now: float, waiting: int) -> None:
        """Note how many bytes of repairs wait: those for a group, or those for one receiver."""
        if self._share and waiting > self._tolerance * self.repair_rate(now):
            self._step(now, RateEvent.STRAINED)

    def data_rate(self, now: float) -> float | None:
        """Return the rate at which new data may leave; None sets no limit."""
        if self.state is RateState.FREE:
            return self._data_rate
        self._update(now)
        rate = (EASE if self.state is RateState.EASING else 1.0) * self._mean_rate(now)
        if rate == inf:
            return self._data_rate
        return rate if self._data_rate is None else min(rate, self._data_rate)

    def repair_rate(self, now: float) -> float:
        """Return the retransmit rate limit, for a group or for one receiver."""
        if self._share is None:
            return self._repair_rate
        return min(self._repair_rate, self._share * self._mean_rate(now))

    def _mean_rate(self, now: float) -> float:
        mean = self._mean.at(now)
        return inf if mean is None else max(mean, LEAST)

    def _update(self, now: float) -> None:
        if self.state is RateState.BRAKING and now >= self._calm_at:
            self._step(now, RateEvent.CALM)

    def _step(self, now: float, event: RateEvent) -> None:
        _RUNNER.step(self, event, now)

    def _wait(self, now: float) -> None:
        self._calm_at = now + CALM

    @classmethod
    def runner(cls) -> Runner[RateState, RateEvent, RateAction]:
        return Runner(RATE_LIMIT, {RateAction.WAIT: cls._wait}, ignored=RateEvent)


_RUNNER = RateLimit.runner()
