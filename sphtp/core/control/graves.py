"""Ids that nobody holds but that not everybody may have: released, or seen in use."""

from dataclasses import dataclass

from sphtp.core.control.vocabulary import Reason
from sphtp.core.timers import ExpiringDict


@dataclass(frozen=True, slots=True)
class Grave:
    """The last holder of an id."""

    nonce: int
    reason: Reason | None
    """Why it was released; None when it was only seen in use."""

    def admits(self, nonce: int) -> bool:
        """Tell whether this holder may have the id: the last one, unless it gave the id up."""
        return nonce == self.nonce and self.reason is not Reason.LEFT


class Graves:
    """Keeps an id from others for one expiry, so that late messages find no wrong holder."""

    __slots__ = ("_graves", "_period")

    def __init__(self, period: float, capacity: int) -> None:
        self._period = period
        self._graves = ExpiringDict[int, Grave](capacity)

    def put(self, now: float, number: int, nonce: int, reason: Reason | None) -> None:
        """Keep ``number`` for ``nonce``; when there is no room, the oldest id is free again."""
        self._graves.take_expired(now)
        self._graves.put(number, Grave(nonce, reason), now + self._period)

    def find(self, now: float, number: int) -> Grave | None:
        """Return the grave of this id while it is kept."""
        self._graves.take_expired(now)
        return self._graves.get(number)

    def remove(self, number: int) -> None:
        """Free this id."""
        self._graves.pop(number)

    def __len__(self) -> int:
        return len(self._graves)
