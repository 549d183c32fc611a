"""Rate limiting at a source: of new data, and of retransmissions (applied in ``retransmission``).

The settings limit both: ``data_rate``, and ``repair_rate``, Ultra Messaging's retransmit rate
limit. But on an overloaded path, more repairs cause more losses, and these cause more repairs. Two
rules prevent this:

* Repairs leave at no more than ``repair_share`` times the mean rate of new data over about the last
  second. This holds for a group, or by unicast for each receiver.
* If repairs nevertheless wait for longer than a NAK backoff, receivers request them again before
  they leave. Then new data leaves no faster than the mean. While flow control holds the source
  back, the mean falls from second to second. After a second without such waits, accumulated new
  data leaves a tenth faster than the mean, until none waits.

In both rules the mean counts as at least 1 Mbit/s. At most 0.1 s of a pause in which no data waited
counts in the mean, because nothing was delayed in it.
"""

from math import exp, expm1, inf
from typing import Final

from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.core.stream.settings import MBIT, StreamSettings

SPAN: Final = 1.0
"""Seconds in which the weight of data in the mean falls to about a third."""

PAUSE: Final = 0.1
"""The most seconds of a pause without waiting data that count in the mean."""


class MeanRate:
    """The exponentially weighted mean rate of new data, in bytes per second."""

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
        """Return the mean; None until time has passed after the first data."""
        passed = self._passed(now)
        age = self._age + passed
        if not age:
            return None
        # The divisor corrects a mean that covers less than the span, shortly after the first data.
        return self._level * exp(-passed / SPAN) / (SPAN * -expm1(-age / SPAN))

    def _passed(self, now: float) -> float:
        if self._at is None:
            return 0.0
        passed = max(now - self._at, 0.0)
        return passed if self._waits else min(passed, PAUSE)


class RateState(Name):
    """The states of the limit on new data."""

    FREE = "at the rate of the settings"
    BRAKING = "no faster than the mean rate, because repairs wait too long for their turn"
    EASING = "a tenth faster than the mean rate, so that accumulated data does not leave at once"


class RateEvent(Name):
    """The events of the limit on new data."""

    STRAINED = "repairs wait for so long that receivers request them again"
    CALM = "for a second no repair waited too long"
    CAUGHT_UP = "no new data waits"


class RateAction(Name):
    """The actions of the limit on new data."""

    WAIT = "restart the timer of the calm period"


S, E, A = RateState, RateEvent, RateAction

RATE_LIMIT: Final = Machine(
    "Rate limit",
    S.FREE,
    (
        Row(S.FREE, E.STRAINED, S.BRAKING, (A.WAIT,), "a full path carries no more"),
        Row(S.BRAKING, E.STRAINED, S.BRAKING, (A.WAIT,), "repairs still wait too long"),
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
"""The lower bound of the mean rate in both rules, in bytes per second."""

EASE: Final = 1.1
"""The rate of accumulated new data, as a multiple of the mean rate."""

CALM: Final = 1.0
"""Seconds without a repair that waits too long, after which new data may leave faster again."""


class RateLimit:
    """The limits of a source's rates of new data and of repairs, in bytes per second."""

    def __init__(self, settings: StreamSettings) -> None:
        self.state = RATE_LIMIT.initial
        self._data_rate = settings.data_rate
        self._repair_rate = settings.repair_rate
        self._share = settings.repair_share
        self._tolerance = settings.nak_backoff
        self._mean = MeanRate()
        self._calm_at = 0.0

    def handle_data(self, now: float, size: int, *, waits: bool) -> None:
        """Count ``size`` bytes of new data that leave; ``waits`` is true if more data waits."""
        self._mean.add(now, size, waits=waits)
        self._update(now)
        if not waits:
            self._step(now, RateEvent.CAUGHT_UP)

    def handle_waiting_repairs(self, now: float, waiting: int) -> None:
        """Slow new data down if too many bytes of repairs wait for a group, or for one receiver."""
        if self._share and waiting > self._tolerance * self.repair_rate(now):
            self._step(now, RateEvent.STRAINED)

    def data_rate(self, now: float) -> float | None:
        """Return the limit of the rate of new data; None if it has no limit."""
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
        # Until time has passed after the first data, only the settings limit a rate.
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
