"""Who gets which repair: on a group everybody gets all, else each receiver what it asked for.

On a group a repair for one reaches all, who mostly missed the same. A copy for each receiver costs
as much as it did the first time, and all but one of them are of no use: at 5 % loss eight receivers
would get eight times the repairs that they need, and where their copies share a path that is full,
these would keep it full.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from sphtp.core.stream.ranges import Span
from sphtp.core.stream.source.repairs import Repairs
from sphtp.core.timers import earliest

ALL: Final = 0
"""Stands for all receivers; none has that number."""


class Outgoing(NamedTuple):
    """Bodies that leave together for one receiver, or for ``ALL``."""

    receiver: int
    bodies: list[bytes]


class RepairDesk:
    """Repairs for each receiver, or one for all if they are ``shared``, as ``make`` makes them.

    Receivers that wait for nothing cost nothing: they are not looked at.
    """

    def __init__(self, make: Callable[[], Repairs], *, shared: bool) -> None:
        self._make = make
        self._shared = shared
        self._repairs: dict[int, Repairs] = {}
        # Those for whom something waits, and who of them has not had a turn in this round.
        self._busy: dict[int, Repairs] = {}
        self._round: deque[int] = deque()

    @property
    def waiting(self) -> int:
        """How many repairs wait for their turn."""
        return sum(repairs.waiting for repairs in self._busy.values())

    @property
    def ready(self) -> float | None:
        """When the next repair or NCF may leave; None when there is none."""
        ready: float | None = None
        for repairs in self._busy.values():
            ready = earliest(ready, repairs.ready)
        return ready

    def ask(self, now: float, receiver: int, span: Span) -> None:
        """Take it that a receiver misses these, all of which are in the window."""
        receiver = ALL if self._shared else receiver
        repairs = self._repairs.get(receiver)
        if repairs is None:
            repairs = self._repairs[receiver] = self._make()
        repairs.ask(now, span)
        if repairs.ready is not None:
            self._busy[receiver] = repairs

    def leave(self, receiver: int) -> None:
        """Repair nothing more for a receiver alone."""
        self._repairs.pop(receiver, None)
        self._busy.pop(receiver, None)

    def clear(self) -> None:
        """Repair nothing more."""
        self._repairs.clear()
        self._busy.clear()

    def poll(self, now: float, most: int) -> Outgoing | None:
        """Take what may leave for the next receiver of a round, ``most`` bodies at most.

        None when the round is over; the next call begins another one.
        """
        while self._round:
            receiver = self._round.popleft()
            repairs = self._busy.get(receiver)
            if repairs is None:
                continue
            bodies = repairs.poll(now, most)
            if repairs.ready is None:
                del self._busy[receiver]
            if bodies:
                return Outgoing(receiver, bodies)
        self._round.extend(self._busy)
        return None
