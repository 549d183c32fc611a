"""How often something may happen: a bucket that fills by time."""


class RateLimit:
    """``rate`` times a second on average, and as many at once after a quiet second."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._left = max(rate, 1.0)
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Whether it may happen now; if so, it counts. ``now`` is in seconds."""
        elapsed = 0.0 if self._at is None else max(now - self._at, 0.0)
        self._at = now
        self._left = min(self._left + elapsed * self._rate, max(self._rate, 1.0))
        if self._left < 1:
            return False
        self._left -= 1
        return True
