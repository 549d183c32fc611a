"""The statistics of steps: their times, and the waiting for others in each of them.

A step ends when the last contribution is there, so a member waits for one other at a time: for the
one whose contribution came last. The time from this member's own contribution to the end of the
step counts for that one alone. So the times by member add up to all the time that was waited, and
the member with the most is the one to look at.
"""

from bisect import bisect_left
from collections.abc import Collection, Hashable
from typing import Final, Generic, TypeVar

Member = TypeVar("Member", bound=Hashable)

BOUNDS: Final = (
    *(0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""The upper bounds of the buckets in seconds: a step on one machine takes 50 us or more, and one
that takes over 10 s waits for a program that has stopped."""


class TimeHistogram:
    """Counts of times in buckets. ``counts`` has one more than ``BOUNDS``, for longer times."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count a time."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class StepStatistics(Generic[Member]):
    """The times of the steps of one member.

    ``steps`` are the times from the end of one step to the end of the next, computing included.
    ``exchanges`` are the times from this member's contribution to the end of the step, and
    ``waits`` the same by the member whose contribution came last, without the steps for which
    nobody was waited for.
    """

    def __init__(self) -> None:
        self.steps = TimeHistogram()
        self.exchanges = TimeHistogram()
        self.waits: dict[Member, TimeHistogram] = {}
        self._ended_at: float | None = None

    def add(self, began: float, ended: float, last: Member | None) -> None:
        """Count a step: when this member contributed, and when the contribution of ``last`` came.

        ``last`` is None if all others had contributed before.
        """
        self.exchanges.add(ended - began)
        if last is not None:
            waits = self.waits.get(last)
            if waits is None:
                waits = self.waits[last] = TimeHistogram()
            waits.add(ended - began)
        if self._ended_at is not None:
            self.steps.add(ended - self._ended_at)
        self._ended_at = ended

    def keep_only(self, members: Collection[Member]) -> None:
        """Forget those who are no members any more."""
        for gone in self.waits.keys() - set(members):
            del self.waits[gone]
