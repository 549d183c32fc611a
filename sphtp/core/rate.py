"""How often something may happen: a bucket that fills by time."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MOST_KEYS: Final = 1024


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


class RateLimits(Generic[K]):
    """A ``RateLimit`` for each key, of the 1024 keys seen last."""

    __slots__ = ("_limits", "_rate")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._limits: dict[K, RateLimit] = {}

    def take(self, now: float, key: K) -> bool:
        """Whether it may happen now for this key; if so, it counts."""
        limit = self._limits.pop(key, None) or RateLimit(self._rate)
        if len(self._limits) >= MOST_KEYS:
            del self._limits[next(iter(self._limits))]
        self._limits[key] = limit
        return limit.take(now)
