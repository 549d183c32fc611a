"""Token buckets: how often something may happen, and how fast datagrams may leave.

A bucket fills by time, at a rate, up to its burst; what happens takes a token, and what finds none
does not happen, or waits. So over any time no more happens than the rate allows and one burst, and
after a quiet while a burst is possible. A bucket starts full. A clock that goes back gives nothing,
nor does it when it goes over the same time again.

``TokenBucket`` counts events, and says no. ``Pacer`` counts bytes at a rate that may change with
every packet (that of the congestion window over the round trip, RFC 9002, section 7.7), may be
overdrawn by what has to leave at once, and says when. Timers are coarse and waking up is dear: so
its bucket holds some milliseconds of the rate, and who has to wait does so for a batch.
"""

from collections.abc import Hashable
from sys import maxsize
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MOST_KEYS: Final = 1024

BURST: Final = 10
"""Datagrams that may leave at once when a rate holds them back (RFC 9002, section 7.7)."""

HOLD: Final = 0.002
"""Seconds of the rate that a pacer's bucket holds, if that is more than its burst."""

BATCH: Final = 0.001
"""Seconds of the rate for which it is worth waking up."""


class TokenBucket:
    """``rate`` tokens a second, and at most ``burst`` saved: those of a second, or one if less."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self._rate = rate
        self._burst = max(rate, 1.0) if burst is None else burst
        self._tokens = self._burst
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Take a token; False when there is none."""
        return self.take_up_to(now, 1) == 1

    def take_up_to(self, now: float, wanted: int) -> int:
        """Take ``wanted`` tokens, or as many as there are; return how many."""
        if self._at is None:
            self._at = now
        elif now > self._at:
            self._tokens = min(self._tokens + (now - self._at) * self._rate, self._burst)
            self._at = now
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken


class TokenBuckets(Generic[K]):
    """A ``TokenBucket`` for each key, of the 1024 keys seen last."""

    __slots__ = ("_buckets", "_rate")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._buckets: dict[K, TokenBucket] = {}

    def take(self, now: float, key: K) -> bool:
        """Take a token of a key; False when it has none."""
        bucket = self._buckets.pop(key, None) or TokenBucket(self._rate)
        if len(self._buckets) >= MOST_KEYS:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = bucket
        return bucket.take(now)


class Pacer:
    """Says when the next packet may leave. Sizes in bytes, times in seconds, rates in bytes/s.

    The bucket holds ``burst`` bytes (ten datagrams are a good choice) or 2 ms of the rate, what
    is more. A rate of None holds nothing back.
    """

    __slots__ = ("_at", "_tokens", "burst")

    def __init__(self, burst: int) -> None:
        self.burst = burst
        self._tokens = float(burst)
        self._at: float | None = None

    @classmethod
    def for_datagrams(cls, size: int, rate: float | None) -> "Pacer":
        """Make one for datagrams of ``size`` that starts as full as it gets at ``rate``."""
        return cls(max(BURST * size, int((rate or 0.0) * HOLD)))

    def ready_at(self, now: float, size: int, rate: float | None) -> float:
        """The time at which a packet of ``size`` may leave: ``now``, or later for want of tokens.

        Later is when there is enough for a batch of 1 ms; whoever looks earlier may still find
        that ``size`` is there.
        """
        if rate is None:
            return now
        if now != self._at or size > self.burst:
            self._refill(now, size, rate)
        # A rounding error must not make anyone wait for a fraction of a byte.
        if self._tokens > size - 1:
            return now
        return now + (max(size, rate * BATCH) - self._tokens) / rate

    def budget(self, now: float, rate: float | None) -> int:
        """The bytes that may leave at once."""
        if rate is None:
            return maxsize
        if now != self._at:
            self._refill(now, 0, rate)
        return max(int(self._tokens), 0)

    def sent(self, now: float, size: int, rate: float | None) -> None:
        """Take the tokens of packets that just left, whether or not it was their time."""
        if rate is not None:
            if now != self._at or size > self.burst:
                self._refill(now, size, rate)
            self._tokens -= size

    def _refill(self, now: float, size: int, rate: float) -> None:
        elapsed = 0.0 if self._at is None else max(now - self._at, 0.0)
        self._at = now if self._at is None else self._at + elapsed
        # A packet that is larger than the bucket would never find it full enough.
        room = max(self.burst, rate * HOLD, size)
        self._tokens = min(self._tokens + elapsed * rate, room)
