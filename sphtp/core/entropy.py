"""The two sources of randomness that the core is handed: one to decide by, one to keep secrets.

They are two so that no seed reaches a key. What is drawn to decide (jitter, back-off, an id) may
follow from a seed, and a run can be repeated; what is drawn to be secret (keys, tokens, cookies,
nonces) may not, and only ``sphtp.testing`` hands in a source of secrets that has a seed.
"""

from typing import Protocol


class Entropy(Protocol):
    """Decisions: `random.Random(seed)` fits, and one seed gives one trace.

    It draws no bits, so that nobody makes a key of them.
    """

    def random(self) -> float:
        """Return a float in [0, 1)."""
        ...

    def uniform(self, a: float, b: float) -> float:
        """Return a float between a and b."""
        ...


class Secrets(Protocol):
    """Bits that nobody can foresee: `random.SystemRandom()` fits."""

    def getrandbits(self, count: int, /) -> int:
        """Return a non-negative integer of at most ``count`` bits."""
        ...
