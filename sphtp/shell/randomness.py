"""The two sources of randomness that this shell hands to the core."""

from random import Random, SystemRandom
from typing import Final

from sphtp.core.entropy import Entropy, Secrets

SECRETS: Final[Secrets] = SystemRandom()
"""The source of keys, tokens, cookies and nonces: the operating system, whatever the seed."""


def decisions(seed: int | None) -> Entropy:
    """Return what ids, jitter and back-off are drawn from; a seed makes them repeatable."""
    return SystemRandom() if seed is None else Random(seed)
