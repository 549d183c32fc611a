"""Time as tests on real sockets have it: a clock of the process, and deadlines by it.

Both ends of such a test live in one process, whose timers and deadlines are real: a channel breaks
after 0.6 s, a server expects a sign of life within 0.4 s, a complaint comes within a second. On a
machine that is busy the process may stand still for seconds, and then all of them are over at once,
though nobody was slow. So these tests have a clock that counts what the process did: the seconds of
processor time that it used, and those that it chose to sleep. It does not count how long others
kept it from the processor. Of a sleep it counts no more than was asked for, and it asks for slices
of ``SLICE``, so that a stop within a sleep counts as a slice, too.
"""

from collections.abc import Awaitable, Callable
from time import perf_counter, thread_time
from typing import Any, Final

import pytest
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


Run = Callable[..., None]


def within(seconds: float) -> Run:
    """Return what runs a test for so long at most, by the clock of its process.

    A test that asks for another clock has that one.
    """

    def run(main: Callable[[], Awaitable[None]], **options: Any) -> None:
        async def timed() -> None:
            with trio.fail_after(seconds):
                await main()

        if options.get("clock") is None:
            options["clock"] = OwnClock()
        trio.run(timed, **options)

    return run


within_20_seconds = pytest.mark.trio(run=within(20))


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what no event tells; the deadline of the test is the limit."""
    while not holds():  # noqa: ASYNC110 - it is for what has no event
        await trio.sleep(0.001)
