"""Round trip estimate: exponentially smoothed, with its mean deviation (RFC 6298, section 2)."""

from typing import Final

from sphtp.core.channel.frames import DELAY_STEP

SMOOTHING: Final = 1 / 8
DEVIATION_SMOOTHING: Final = 1 / 4
DEVIATIONS: Final = 4
LEAST_SPREAD: Final = 0.005
QUEUE_SHARE: Final = 1 / 4
QUEUE_GRAIN: Final = 0.01
"""What is added to the shortest round trip before a longer one means a queue: a packet takes its
time on a slow line, and programs wake late."""


class RoundTrip:
    """Times in seconds; ``smoothed`` is None before the first sample."""

    __slots__ = ("deviation", "latest", "minimum", "smoothed")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start, or start anew on another path."""
        self.smoothed: float | None = None
        self.deviation = 0.0
        self.latest = 0.0
        self.minimum = float("inf")

    def sample(self, elapsed: float, delay: float = 0.0) -> None:
        """Take the time between a packet's departure and its ack, of which the peer kept ``delay``.

        A delay that would make the way shorter than it ever was, by more than the steps in which
        delays are told, is not believed.
        """
        self.minimum = min(self.minimum, elapsed)
        if elapsed - delay >= self.minimum - DELAY_STEP:
            elapsed = max(elapsed - delay, self.minimum)
        self.latest = elapsed
        if self.smoothed is None:
            self.smoothed, self.deviation = elapsed, elapsed / 2
            return
        error = abs(self.smoothed - elapsed)
        self.deviation += (error - self.deviation) * DEVIATION_SMOOTHING
        self.smoothed += (elapsed - self.smoothed) * SMOOTHING

    @property
    def shows_queue(self) -> bool:
        """Whether packets wait in the path, as far as round trips tell.

        They are well above the shortest one then, by more than they vary.
        """
        if self.smoothed is None:
            return False
        return self.smoothed - self.deviation > self.minimum * (1 + QUEUE_SHARE) + QUEUE_GRAIN

    def patience(self, ack_delay: float, fallback: float) -> float:
        """How long to wait for any ack before asking for one (RFC 9002, section 6.2.1).

        ``fallback``, the seed's fixed time, until there is an estimate.
        """
        if self.smoothed is None:
            return fallback
        return self.smoothed + max(DEVIATIONS * self.deviation, LEAST_SPREAD) + ack_delay
