"""Keys: drawn, kept in files that nobody else may read, and read again."""

from random import Random, SystemRandom

from sphtp.core.secure.identity import Identity


def draw_identity(seed: int | None = None) -> Identity:
    """Make a new identity; with a seed anybody can guess it, which is for tests."""
    return Identity.draw(SystemRandom() if seed is None else Random(f"identity {seed}"))
