"""A token bucket: what a window allows at once leaves spread over the round trip.

Timers are coarse and waking up is dear, so the bucket holds some milliseconds of the rate, and who
has to wait does so for a batch.
"""

from sys import maxsize

HOLD = 0.002
BATCH = 0.001


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

    def ready_at(self, now: float, size: int, rate: float | None) -> float:
        """When a packet of ``size`` may leave: ``now``, or later when the bucket is too empty.

        Later is when there is enough for a batch of 1 ms; whoever looks earlier may still find
        that ``size`` is there.
        """
        if rate is None:
            return now
        self._refill(now, size, rate)
        # A rounding error must not make anyone wait for a fraction of a byte.
        if self._tokens > size - 1:
            return now
        return now + (max(size, rate * BATCH) - self._tokens) / rate

    def budget(self, now: float, rate: float | None) -> int:
        """How many bytes may leave at once."""
        if rate is None:
            return maxsize
        self._refill(now, 0, rate)
        return max(int(self._tokens), 0)

    def sent(self, now: float, size: int, rate: float | None) -> None:
        """Take the tokens of packets that just left, whether or not it was their time."""
        if rate is not None:
            self._refill(now, size, rate)
            self._tokens -= size

    def _refill(self, now: float, size: int, rate: float) -> None:
        if now == self._at and size <= self.burst:
            return
        elapsed = 0.0 if self._at is None else max(now - self._at, 0.0)
        self._at = now
        room = max(self.burst, rate * HOLD, size)
        self._tokens = min(self._tokens + elapsed * rate, room)
