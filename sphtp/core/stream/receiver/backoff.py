"""How long a receiver waits before it asks: random, so that not all ask at once."""

from collections.abc import Callable, Mapping
from math import expm1, log, log1p
from typing import Final

from sphtp.core.entropy import Entropy
from sphtp.core.stream.settings import Backoff


def draw_uniform(entropy: Entropy, interval: float) -> float:
    """Draw between half and one and a half of ``interval``."""
    return interval * (0.5 + entropy.random())


def draw_exponential(entropy: Entropy, most: float, group_size: int) -> float:
    """Draw up to ``most`` seconds, the later the likelier (RFC 5401, 3.2.1).

    Of a group that shares a loss few draw early, and their repair comes before the others ask.
    """
    steepness = log(group_size) + 1
    return most / steepness * log1p(entropy.random() * expm1(steepness))


INITIAL: Final[Mapping[Backoff, Callable[[Entropy, float, int], float]]] = {
    Backoff.UNIFORM: lambda entropy, interval, _: draw_uniform(entropy, interval),
    Backoff.EXPONENTIAL: draw_exponential,
}
"""How the wait before a first NAK is drawn, of generator, interval and group size."""

LATE: Final = 0.6
"""What of the interval is drawn from in a group: on average that is half of it."""

AGAIN: Final[Mapping[Backoff, Callable[[Entropy, float, int], float]]] = {
    Backoff.UNIFORM: lambda entropy, interval, _: draw_uniform(entropy, interval),
    Backoff.EXPONENTIAL: lambda entropy, interval, group: (
        0.5 * interval + draw_exponential(entropy, LATE * interval, group)
    ),
}
"""The same for later NAKs: half of the interval at least, and all of it on average.

Of many who draw evenly somebody always draws the least, and asks anew for what is on its way.
"""
