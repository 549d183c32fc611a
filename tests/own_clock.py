"""Time as tests on real sockets have it: that of their own process.

Both ends of such a test live in one process, whose timers and deadlines are real: a channel breaks
after 0.6 s, a server expects a sign of life within 0.4 s, a complaint comes within a second. On a
machine that is busy the process may stand still for seconds, and then all of them are over at once,
though nobody was slow. So these tests have a clock that counts what the process did: the seconds of
processor time that it used, and those that it chose to sleep. It does not count how long others
kept it from the processor. Of a sleep it counts no more than was asked for, and it asks for slices
of ``SLICE``, so that a stop within a sleep counts as a slice, too.
"""

from time import perf_counter, thread_time
from typing import Final

import trio

SLICE: Final = 0.2
"""The most seconds of one sleep. ``trio.testing.wait_all_tasks_blocked`` needs less than that."""


class OwnClock(trio.abc.Clock):
    """The seconds that the thread ran or slept, without those in which it was kept from running."""

    def __init__(self) -> None:
        self._slept = 0.0
        self._asleep_at = 0.0
        self._asleep_for = 0.0

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        if self._asleep_for:
            self._slept += min(perf_counter() - self._asleep_at, self._asleep_for)
            self._asleep_for = 0.0
        return self._slept + thread_time()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        wait = min(deadline - self.current_time(), SLICE)
        if wait > 0:
            self._asleep_at, self._asleep_for = perf_counter(), wait
        return wait
