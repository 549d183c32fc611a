"""Which numbers have been seen, among those that are not too old to tell (RFC 6479's purpose)."""

from typing import Final

WINDOW: Final = 2048
"""How far a datagram may fall behind the newest one: far more than any network reorders."""

_ALL: Final = (1 << WINDOW) - 1


class ReplayWindow:
    """One integer: bit n stands for the number n before ``newest``."""

    __slots__ = ("_seen", "newest")

    def __init__(self, first: int = 0) -> None:
        self.newest = first - 1
        self._seen = 0

    def is_new(self, number: int) -> bool:
        """Whether it has certainly not been seen."""
        behind = self.newest - number
        return behind < 0 or (behind < WINDOW and not self._seen >> behind & 1)

    def mark(self, number: int) -> None:
        """Note one that is new. Only what is authentic may be noted."""
        ahead = number - self.newest
        if ahead > 0:
            self._seen = (self._seen << ahead | 1) & _ALL if ahead < WINDOW else 1
            self.newest = number
        else:
            self._seen |= 1 << -ahead
