"""When which missing range is to be asked for; of those that are due, the lowest first."""

from heapq import heapify, heappop, heappush
from typing import Final

from sphtp.core.stream.receiver.loss_map import Gap

STALE: Final = 64
"""Places left behind, beside as many as there are timers, before they are cleared away."""

Places = list[tuple[float, int, Gap]]
"""A heap: what it is ordered by, the ticket, and whose it is."""


class NakTimer:
    """One timer for each range; what is set anew, or stopped, leaves its place behind for a while.

    Times in seconds.
    """

    __slots__ = ("_due", "_running", "_tickets", "_waiting")

    def __init__(self) -> None:
        self._tickets = 0
        self._running = 0
        # By time; once that has come, by number.
        self._waiting: Places = []
        self._due: Places = []

    def set(self, gap: Gap, due: float) -> None:
        """Let the timer of ``gap`` ring at ``due``, and at no other time."""
        self._running += not gap.ticket
        self._tickets += 1
        gap.ticket, gap.due = self._tickets, due
        heappush(self._waiting, (due, gap.ticket, gap))
        if len(self._waiting) + len(self._due) > 2 * self._running + STALE:
            self._clear_away()

    def stop(self, gap: Gap) -> None:
        """Let it not ring."""
        self._running -= bool(gap.ticket)
        gap.ticket = 0

    def take(self, now: float) -> Gap | None:
        """Stop and return the lowest range whose time has come; None when there is none."""
        while (due := _top(self._waiting)) is not None and due.due <= now:
            heappop(self._waiting)
            heappush(self._due, (due.first, due.ticket, due))
        lowest = _top(self._due)
        if lowest is not None:
            self.stop(lowest)
        return lowest

    def next_due(self) -> float | None:
        """When the next one rings, some time in the past if one rang; None when none is set."""
        tops = (_top(self._due), _top(self._waiting))
        return min((gap.due for gap in tops if gap is not None), default=None)

    def _clear_away(self) -> None:
        for places in (self._waiting, self._due):
            places[:] = [place for place in places if place[2].ticket == place[1]]
            heapify(places)


def _top(places: Places) -> Gap | None:
    """Return the first one that is still meant, and drop the places before it."""
    while places:
        _, ticket, gap = places[0]
        if gap.ticket == ticket:
            return gap
        heappop(places)
    return None
