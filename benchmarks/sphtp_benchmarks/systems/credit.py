"""Backpressure for systems that have none: without it their queues grow, and they get slower."""

from dataclasses import dataclass
from typing import Self

CREDIT = b"\x01"


@dataclass(frozen=True)
class CreditWindow:
    """Messages that may be on their way; numbers of messages.

    The receiver grants ``every`` more each time it has taken as many; the sender sends ``burst`` at
    a time while they fit.
    """

    size: int
    every: int
    burst: int

    @classmethod
    def of(cls, in_flight: int, message: int) -> Self:
        """Return the window for some bytes in flight and messages of this size."""
        size = max(4, in_flight // message)
        return cls(size=size, every=max(1, size // 4), burst=max(1, size // 16))


class Grants:
    """The receiver's side: the grants that it owes."""

    def __init__(self, window: CreditWindow) -> None:
        self._every = window.every
        self._owed = 0

    def due(self, received: int) -> int:
        """Count messages received; return the number of grants to send now."""
        due, self._owed = divmod(self._owed + received, self._every)
        return due


class Room:
    """The sender's side: the number of messages that may still be sent."""

    def __init__(self, window: CreditWindow) -> None:
        self._window = window
        self._room = window.size

    def granted(self, times: int) -> None:
        """Count grants received."""
        self._room += times * self._window.every

    def take(self, count: int) -> bool:
        """Take room for ``count`` messages. Return False if there is not enough."""
        if self._room < count:
            return False
        self._room -= count
        return True
