"""Liveness of servers and clients: the time since each was last heard (SphTP, step 11)."""

from collections.abc import Iterable

from sphtp.core.timers import ExpiringDict, earliest


class Liveness:
    """The silence of each member: suspect after half of ``expiry``, given up after all of it.

    A member that is doubted is given up earlier. Refreshing takes constant time, and so does
    finding the members that are due: fresh ones become suspects, and suspects and doubted ones are
    given up, each group in the order in which its members joined it.
    """

    __slots__ = ("_doubted", "_fresh", "_half", "_suspect")

    def __init__(self, expiry: float) -> None:
        self._half = expiry / 2
        self._fresh = ExpiringDict[int, None]()
        self._suspect = ExpiringDict[int, None]()
        self._doubted = ExpiringDict[int, None]()

    def __contains__(self, number: int) -> bool:
        return number in self._fresh or number in self._suspect or number in self._doubted

    def __len__(self) -> int:
        return len(self._fresh) + len(self._suspect) + len(self._doubted)

    @property
    def suspects(self) -> Iterable[int]:
        """The members that are doubted, or were silent for half of ``expiry``."""
        return (*self._suspect, *self._doubted)

    def refresh(self, now: float, number: int) -> None:
        """Note that ``number`` was heard."""
        self._suspect.pop(number)
        self._doubted.pop(number)
        self._fresh.put(number, None, now + self._half)

    def doubt(self, now: float, number: int, wait: float) -> bool:
        """Give ``number`` up unless it is heard within ``wait``. Return True if that is new.

        Each call has to come with the same ``wait``. A member that expires earlier anyway is left
        alone; so is one that is not watched, or is doubted already.
        """
        suspected_at, end = self._fresh.due(number), self._suspect.due(number)
        is_new = suspected_at is not None
        if suspected_at is not None:
            end = suspected_at + self._half
        if end is None or end <= now + wait:
            return False
        self._fresh.pop(number)
        self._suspect.pop(number)
        self._doubted.put(number, None, now + wait)
        return is_new

    def forget(self, number: int) -> None:
        """Stop watching ``number``, if it is watched."""
        for watched in (self._fresh, self._suspect, self._doubted):
            watched.pop(number)

    def postpone_expiries(self, lag: float) -> None:
        """Give every member ``lag`` more seconds: this process did not run."""
        for watched in (self._fresh, self._suspect, self._doubted):
            watched.postpone(lag)

    def take_suspects(self, now: float) -> list[int]:
        """Return the members that become suspect now, each once per silence."""
        taken = self._fresh.take_expired(now)
        for number, suspected_at in taken:
            self._suspect.put(number, None, suspected_at + self._half)
        return [number for number, _ in taken]

    def take_expired(self, now: float) -> list[int]:
        """Return the members that are given up now, and forget them.

        Call ``take_suspects`` before.
        """
        taken = self._suspect.take_expired(now) + self._doubted.take_expired(now)
        return [number for number, _ in taken]

    def next_due(self) -> float | None:
        """Return the time at which the next member becomes suspect or is given up."""
        return earliest(self._fresh.next_due(), self._suspect.next_due(), self._doubted.next_due())
