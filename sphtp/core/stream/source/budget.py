"""The NAK budget: how much one receiver may ask for, so that it does not starve the others."""


class NakBudget:
    """``rate`` datagrams a second on average, and as many at once after a quiet second."""

    __slots__ = ("_at", "_left", "_rate", "_reported")

    def __init__(self, now: float, rate: float) -> None:
        self._rate = rate
        self._left = max(rate, 1.0)
        self._at = now
        self._reported: float | None = None

    def take(self, now: float, wanted: int) -> int:
        """Take what is left of ``wanted``; return how many that is."""
        elapsed = max(now - self._at, 0.0)
        self._at += elapsed
        self._left = min(self._left + elapsed * self._rate, max(self._rate, 1.0))
        taken = min(wanted, int(self._left))
        self._left -= taken
        return taken

    def report(self, now: float, interval: float) -> bool:
        """Whether to report it now: not more often than every ``interval`` seconds."""
        if self._reported is not None and now - self._reported < interval:
            return False
        self._reported = now
        return True
