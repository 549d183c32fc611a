"""What a path has carried, as its user may ask: the highest delivery rate of late."""

from typing import Final

ROUND_TRIPS: Final = 8
SHORTEST_PERIOD: Final = 0.1


class Bandwidth:
    """The highest of two periods, the present one and the last. Rates in bytes/s, times in seconds.

    A period is eight round trips; single samples are too low when acks come late.
    """

    __slots__ = ("_last", "_present", "_until")

    def __init__(self) -> None:
        self._present: float | None = None
        self._last: float | None = None
        self._until = 0.0

    @property
    def rate(self) -> float | None:
        """None while it was not seen."""
        rates = [rate for rate in (self._present, self._last) if rate is not None]
        return max(rates, default=None)

    def note(self, now: float, rate: float, round_trip: float) -> None:
        """Take a sample."""
        if now >= self._until:
            self._last, self._present = self._present, None
            self._until = now + max(ROUND_TRIPS * round_trip, SHORTEST_PERIOD)
        self._present = rate if self._present is None else max(self._present, rate)
