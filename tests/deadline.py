"""Deadlines of tests on real sockets, by the clock of their process: ``tests/own_clock.py``."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tests.own_clock import OwnClock

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
