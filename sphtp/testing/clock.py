"""A clock that moves only when it is told to."""


class VirtualClock:
    """A clock that starts at zero seconds; usable in place of ``time.monotonic``.

    For programs that wait, Trio has ``trio.testing.MockClock``.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def __call__(self) -> float:
        """Return the present time, in seconds."""
        return self._now

    @property
    def now(self) -> float:
        """The present time, in seconds."""
        return self._now

    def advance_to(self, when: float) -> None:
        """Move to a time; raise ``ValueError`` if it is past."""
        if not when >= self._now:
            raise ValueError(f"time cannot go back from {self._now} s to {when} s")
        self._now = when

    def advance(self, seconds: float) -> None:
        """Move forward; raise ``ValueError`` if ``seconds`` is negative."""
        self.advance_to(self._now + seconds)
