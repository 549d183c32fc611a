"""A deadline for tests on real sockets: ``pytestmark = within_20_seconds``."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio


def _run(main: Callable[[], Awaitable[None]], **options: Any) -> None:
    async def timed() -> None:
        with trio.fail_after(20):
            await main()

    trio.run(timed, **options)


within_20_seconds = pytest.mark.trio(run=_run)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what no event tells; the deadline of the test is the limit."""
    while not holds():  # noqa: ASYNC110 - it is for what has no event
        await trio.sleep(0.001)
