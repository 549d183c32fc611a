"""The two sources of randomness that this shell hands to the core."""

from random import Random, SystemRandom
from typing import Final

from sphtp.core.entropy import Entropy, Secrets

SECRETS: Final[Secrets] = SystemRandom()
"""The source of keys, tokens, cookies and nonces: the operating system, seeded run or not."""


def decisions(seed: int | None) -> Entropy:
    """Return the generator of ids, jitter and back-off; a seed makes it repeatable."""
    return SystemRandom() if seed is None else Random(seed)
