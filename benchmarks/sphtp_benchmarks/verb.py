"""The common part of verbs with processes of their own: their run and their end."""

import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
from rich.console import Console

from sphtp_benchmarks.pair import MeasurementError
from sphtp_client.program import ExitStatus, run_until_stopped

T = TypeVar("T")


def measured(measure: Callable[[Callable[[str], None]], Awaitable[T]], *, quiet: bool) -> T:
    """Return the result of ``measure``, which gets a function that shows its progress.

    End the program with its exit code if the measurement fails or is stopped.
    """
    screen, found = Console(stderr=True), list[T]()

    def starting(text: str) -> None:
        if not quiet:
            screen.print(text, highlight=False)

    async def work() -> None:
        found.append(await measure(starting))

    try:
        stopped = trio.run(run_until_stopped, work)
    except MeasurementError as error:
        screen.print(f"failed: {error}", highlight=False, markup=False)
        sys.exit(ExitStatus.FAILED.code)
    if stopped:
        sys.exit(stopped.code)
    return found[0]
