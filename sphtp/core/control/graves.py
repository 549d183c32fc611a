"""Ids that nobody holds but that not everybody may have: released, or seen in use."""

from collections import OrderedDict
from dataclasses import dataclass

from sphtp.core.control.vocabulary import Reason


@dataclass(frozen=True, slots=True)
class Grave:
    """The last holder of an id."""

    nonce: int
    until: float
    reason: Reason | None
    """Why it was released; None when it was only seen in use."""

    def admits(self, nonce: int) -> bool:
        """Tell whether this holder may have the id: the last one, unless it gave the id up."""
        return nonce == self.nonce and self.reason is not Reason.LEFT


class Graves:
    """Keeps an id from others for one expiry, so that late messages find no wrong holder."""

    __slots__ = ("_capacity", "_graves", "_period")

    def __init__(self, period: float, capacity: int) -> None:
        self._period = period
        self._capacity = capacity
        self._graves: OrderedDict[int, Grave] = OrderedDict()

    def put(self, now: float, number: int, nonce: int, reason: Reason | None) -> None:
        """Keep ``number`` for ``nonce``; when there is no room, the oldest id is free again."""
        self._prune(now)
        self._graves.pop(number, None)
        if len(self._graves) >= self._capacity:
            self._graves.popitem(last=False)
        self._graves[number] = Grave(nonce, now + self._period, reason)

    def find(self, now: float, number: int) -> Grave | None:
        """Return the grave of this id while it is kept."""
        self._prune(now)
        return self._graves.get(number)

    def remove(self, number: int) -> None:
        """Free this id."""
        self._graves.pop(number, None)

    def __len__(self) -> int:
        return len(self._graves)

    def _prune(self, now: float) -> None:
        while self._graves and next(iter(self._graves.values())).until <= now:
            self._graves.popitem(last=False)
