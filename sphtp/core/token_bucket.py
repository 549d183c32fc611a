"""Token buckets: limits of events per second, and pacing of datagrams.

A bucket fills with tokens at a rate, up to its burst. Each event takes a token. Without a token, an
event is refused or has to wait. So rate and burst limit the number of events in any period, and a
burst is possible after a quiet period. A bucket starts full. If the clock goes back, the bucket
gets no tokens until the clock has passed its latest time again.

``TokenBucket`` counts events, and refuses them. ``Pacer`` counts bytes, and returns the time of the
next packet. Its rate may change with every packet (the congestion window over the round trip, RFC
9002, section 7.7), and packets that must leave at once may overdraw it. Timers are coarse and
wakeups are expensive. So the pacer's bucket holds some milliseconds of the rate, and a sender
without tokens waits until there are enough for a batch.
"""

from collections.abc import Hashable
from sys import maxsize
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MOST_KEYS: Final = 1024

BURST: Final = 10
"""The datagrams that may leave at once although a rate limits them (RFC 9002, section 7.7)."""

HOLD: Final = 0.002
"""The default of ``Pacer.hold``: the seconds of the rate that a pacer's bucket can hold."""

BATCH: Final = 0.001
"""Seconds of the rate for which a sender without tokens waits, so that a wakeup is worthwhile."""


class TokenBucket:
    """A bucket that gets ``rate`` tokens a second and holds up to ``burst``.

    By default it holds the tokens of one second, and at least one.
    """

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self._rate = rate
        self._burst = max(rate, 1.0) if burst is None else burst
        self._tokens = self._burst
        self._at: float | None = None

    def set_rate(self, rate: float) -> None:
        """Change the rate, and the burst to the default; tokens beyond the new burst are lost."""
        self._rate = rate
        self._burst = max(rate, 1.0)
        self._tokens = min(self._tokens, self._burst)

    def take(self, now: float) -> bool:
        """Take a token; return False if there is none."""
        return self.take_up_to(now, 1) == 1

    def take_up_to(self, now: float, wanted: int) -> int:
        """Take up to ``wanted`` tokens; return the number taken."""
        if self._at is None:
            self._at = now
        elif now > self._at:
            self._tokens = min(self._tokens + (now - self._at) * self._rate, self._burst)
            self._at = now
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken


class TokenBuckets(Generic[K]):
    """A ``TokenBucket`` of ``rate`` tokens a second for each of the ``MOST_KEYS`` latest keys."""

    __slots__ = ("_buckets", "_rate")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._buckets: dict[K, TokenBucket] = {}

    def take(self, now: float, key: K) -> bool:
        """Take a token of ``key``; return False if its bucket is empty."""
        bucket = self._buckets.pop(key, None) or TokenBucket(self._rate)
        if len(self._buckets) >= MOST_KEYS:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = bucket
        return bucket.take(now)


class Pacer:
    """A token bucket that paces packets. Sizes in bytes, times in seconds, rates in bytes/s.

    The bucket holds ``burst`` bytes (ten datagrams are a good choice) or ``hold`` seconds of the
    rate, whichever is more. A sender that sleeps until its bucket is full loses the tokens of any
    longer time, and so sends less than its rate. A rate of None never delays a packet.
    """

    __slots__ = ("_at", "_tokens", "burst", "hold")

    def __init__(self, burst: int) -> None:
        self.burst = burst
        self.hold = HOLD
        self._tokens = float(burst)
        self._at: float | None = None

    @classmethod
    def for_datagrams(cls, size: int, rate: float | None) -> "Pacer":
        """Make a pacer for datagrams of ``size`` bytes with a bucket that is full at ``rate``."""
        return cls(max(BURST * size, int((rate or 0.0) * HOLD)))

    def ready_at(self, now: float, size: int, rate: float | None) -> float:
        """Return the time at which a packet of ``size`` bytes may leave: ``now``, or later.

        A later time is when the bucket has tokens for a batch of 1 ms, or for the packet if that is
        larger.
        """
        if rate is None:
            return now
        if now != self._at or size > self.burst:
            self._refill(now, size, rate)
        # A rounding error must not make a sender wait for a fraction of a byte.
        if self._tokens > size - 1:
            return now
        return now + (max(size, rate * BATCH) - self._tokens) / rate

    def budget(self, now: float, rate: float | None) -> int:
        """Return the number of bytes that may leave at once."""
        if rate is None:
            return maxsize
        if now != self._at:
            self._refill(now, 0, rate)
        return max(int(self._tokens), 0)

    def sent(self, now: float, size: int, rate: float | None) -> None:
        """Take the tokens of packets that just left, even if there are not enough."""
        if rate is not None:
            if now != self._at or size > self.burst:
                self._refill(now, size, rate)
            self._tokens -= size

    def _refill(self, now: float, size: int, rate: float) -> None:
        elapsed = 0.0 if self._at is None else max(now - self._at, 0.0)
        self._at = now if self._at is None else self._at + elapsed
        # The bucket must be able to hold the tokens of the largest packet.
        room = max(self.burst, rate * self.hold, size)
        self._tokens = min(self._tokens + elapsed * rate, room)
