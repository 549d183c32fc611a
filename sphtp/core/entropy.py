"""The two sources of randomness that the core receives: one for decisions, one for secrets.

They are separate so that no random seed determines a key. Decisions (jitter, backoff, ids) may
follow from a random seed, so that a run can be repeated. Secrets (keys, tokens, cookies, nonces)
may not; only ``sphtp.testing``, tests and benchmarks pass a source of secrets with a random seed.
"""

from typing import Protocol


class Entropy(Protocol):
    """Randomness for decisions, such as `random.Random(seed)`: one seed gives one trace.

    The interface has no method that draws bits, so that a type checker rejects it for keys.
    """

    def random(self) -> float:
        """Return a float in [0, 1)."""
        ...

    def uniform(self, a: float, b: float) -> float:
        """Return a float between a and b."""
        ...


class Secrets(Protocol):
    """Unpredictable bits, such as those of `random.SystemRandom()`."""

    def getrandbits(self, count: int, /) -> int:
        """Return a non-negative integer of at most ``count`` bits."""
        ...
