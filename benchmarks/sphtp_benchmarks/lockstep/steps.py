"""The steps of a worker, counted and timed, and its meeting with the others: for every system."""

from collections.abc import Iterator, Sequence
from time import perf_counter, process_time
from typing import Any, Final, TypeAlias

import numpy

from sphtp_benchmarks.meters import say, told
from sphtp_benchmarks.process_task import ProcessTask

Array: TypeAlias = "numpy.ndarray[Any, Any]"

DTYPE: Final = numpy.dtype(numpy.float64)
STEP: Final = 0
"""The place of the number of its step in an array."""
LAST: Final = 1
"""The place of a one in the array of the last step."""


class OutOfStepError(Exception):
    """An array is not that of this step."""


def meet(part: ProcessTask, ports: Sequence[int]) -> list[int]:
    """Send the others the ports on which each worker with a higher number is awaited.

    Returns the ports on which those with lower numbers await this one.
    """
    say(ports=list(ports))
    everybody: list[list[int]] = told()
    lower = everybody[: part.number]
    return [theirs[part.number - number - 1] for number, theirs in enumerate(lower)]


class Steps:
    """Hands out the array of each step, until the first worker says that it is the last one.

    There are two arrays, in turn. A worker fills one again when it has those of the step between
    from all others, and they send these after they have taken the one before: nothing is changed
    that is still being sent.
    """

    def __init__(self, part: ProcessTask) -> None:
        self._leads = part.number == 0
        self._warm_up = part.warm_up
        self._seconds = part.seconds
        self._arrays = [numpy.zeros(part.size // DTYPE.itemsize) for _ in range(2)]
        self._step = 0
        self._is_last = False
        self._warm: tuple[float, float, int] | None = None

    def __iter__(self) -> Iterator[Array]:
        until = perf_counter() + self._warm_up
        while not self._is_last:
            now = perf_counter()
            if self._warm is None and now >= until:
                self._warm = (now, process_time(), self._step)
                until = now + self._seconds
            self._is_last = self._leads and self._warm is not None and now >= until
            array = self._arrays[self._step % 2]
            array[STEP], array[LAST] = self._step, self._is_last
            yield array
            self._step += 1

    def take(self, array: Array) -> None:
        """Look at what another worker has sent; raises ``OutOfStepError``."""
        if array[STEP] != self._step or array.shape != self._arrays[0].shape:
            raise OutOfStepError(f"step {array[STEP]}, shape {array.shape}, in step {self._step}")
        if array[LAST]:
            self._is_last = True

    def report(self) -> dict[str, float]:
        """Return how many steps there were and, of those after the warm-up, what they took."""
        if self._warm is None:
            raise RuntimeError("the last step came before the warm-up was over")
        began, cpu_before, before = self._warm
        return {
            "steps": self._step,
            "measured": self._step - before,
            "seconds": perf_counter() - began,
            "cpu": process_time() - cpu_before,
        }

    def done(self) -> None:
        """Report to the parent."""
        say(**self.report())
