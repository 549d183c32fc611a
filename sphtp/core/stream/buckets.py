"""The token buckets of data and repairs."""

from sphtp.core.pacing import HOLD, Pacer


def full_pacer(burst: int, rate: float | None) -> Pacer:
    """A pacer whose bucket starts as full as it gets: ``burst`` bytes, or 2 ms of the rate."""
    return Pacer(max(burst, int((rate or 0.0) * HOLD)))
