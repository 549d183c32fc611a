"""The token buckets of data and repairs."""

from typing import Final

from sphtp.core.token_bucket import HOLD, Pacer

BURST: Final = 10
"""Datagrams that may leave at once when a rate holds them back."""


def full_pacer(size: int, rate: float | None) -> Pacer:
    """A pacer of datagrams of a size whose bucket starts as full as it gets."""
    return Pacer(max(BURST * size, int((rate or 0.0) * HOLD)))
