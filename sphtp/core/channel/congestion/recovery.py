"""One reaction per round trip of losses, and the way back from a reaction that was a mistake."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Recovery(Generic[T]):
    """Remembers when the latest reaction was, what it answered, and what was true before it."""

    __slots__ = ("_before", "_lost", "_started")

    def __init__(self) -> None:
        self._started = float("-inf")
        self._lost = 0
        self._before: T | None = None

    def covers(self, sent_at: float) -> bool:
        """Whether a packet left before the latest reaction, which answered for it already."""
        return sent_at <= self._started

    def begin(self, now: float, before: T) -> None:
        """React: from here on a new round trip counts, and ``before`` is what can be restored."""
        self._started, self._lost, self._before = now, 0, before

    def lost(self, size: int) -> None:
        """Count bytes that the latest reaction answers for."""
        self._lost += size

    def spurious(self, size: int) -> T | None:
        """Take lost bytes back; return what to restore once none of them remain."""
        self._lost -= size
        if self._before is None or self._lost > 0:
            return None
        before = self._before
        self.reset()
        return before

    def reset(self) -> None:
        """Forget the latest reaction."""
        self._started, self._lost, self._before = float("-inf"), 0, None
