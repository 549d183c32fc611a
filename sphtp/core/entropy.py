"""The randomness that the core is handed: `random.Random(seed)` fits."""

from typing import Protocol


class Entropy(Protocol):
    """A seeded generator; one seed gives one trace."""

    def random(self) -> float:
        """Return a float in [0, 1)."""
        ...

    def getrandbits(self, count: int, /) -> int:
        """Return a non-negative integer of at most ``count`` bits."""
        ...

    def uniform(self, a: float, b: float) -> float:
        """Return a float between a and b."""
        ...
