"""How much a node may send at a stretch before its program has its turn."""

from collections.abc import Sequence
from typing import Final

from sphtp.core.datagrams import MOST_BYTES

LONG: Final = 4 * 1024 * 1024
SHORT: Final = 2 * MOST_BYTES
"""Bytes of a turn: bulk is fastest in long ones, but nothing else happens meanwhile."""

FEW: Final = 64
SMALL: Final = 16 * 1024
"""Messages sent or read together, and bytes in them, up to which somebody may wait for them; of
more than that, who waits does so for the last one."""

MEMORY: Final = 0.1
"""Seconds for which one small message lets others be expected."""


class Courtesy:
    """Makes turns short while small messages come and go."""

    def __init__(self) -> None:
        self._until = 0.0

    def note(self, now: float, payloads: Sequence[bytes]) -> None:
        """Take note of messages that were sent or read together."""
        if len(payloads) <= FEW and sum(map(len, payloads)) <= SMALL:
            self._until = now + MEMORY

    def turn(self, now: float) -> int:
        """Bytes that may leave now before others have their turn."""
        return SHORT if now < self._until else LONG
