"""Round trip estimate: exponentially smoothed, with its mean deviation (RFC 6298, section 2)."""

SMOOTHING = 1 / 8
DEVIATION_SMOOTHING = 1 / 4
DEVIATIONS = 4
MINIMUM_PATIENCE = 0.02


class RoundTrip:
    """Times in seconds; ``smoothed`` is None before the first sample."""

    __slots__ = ("deviation", "latest", "minimum", "smoothed")

    def __init__(self) -> None:
        self.smoothed: float | None = None
        self.deviation = 0.0
        self.latest = 0.0
        self.minimum = float("inf")

    def sample(self, elapsed: float) -> None:
        """Take the time between a packet's departure and its ack."""
        self.latest = elapsed
        self.minimum = min(self.minimum, elapsed)
        if self.smoothed is None:
            self.smoothed, self.deviation = elapsed, elapsed / 2
            return
        error = abs(self.smoothed - elapsed)
        self.deviation += (error - self.deviation) * DEVIATION_SMOOTHING
        self.smoothed += (elapsed - self.smoothed) * SMOOTHING

    def patience(self, ack_delay: float, fallback: float) -> float:
        """How long to wait for an ack before a packet counts as lost.

        The seed's fixed ``fallback`` until there is an estimate, and while that is shorter; a
        longer round trip stretches it, for else every packet would be sent twice.
        """
        if self.smoothed is None:
            return fallback
        spread = max(DEVIATIONS * self.deviation, MINIMUM_PATIENCE)
        return max(fallback, self.smoothed + spread + ack_delay)
