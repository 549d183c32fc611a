"""Time that goes on when it is told to."""


class VirtualClock:
    """Seconds from zero on; fits where ``time.monotonic`` would be called.

    Trio has its own for programs that wait: ``trio.testing.MockClock``.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def __call__(self) -> float:
        """Return the present, in seconds."""
        return self._now

    @property
    def now(self) -> float:
        """The present, in seconds."""
        return self._now

    def advance_to(self, when: float) -> None:
        """Go on to a time; raises ``ValueError`` when it is past."""
        if not when >= self._now:
            raise ValueError(f"time cannot go back from {self._now} s to {when} s")
        self._now = when

    def advance(self, seconds: float) -> None:
        """Let time pass; raises ``ValueError`` when ``seconds`` is negative."""
        self.advance_to(self._now + seconds)
