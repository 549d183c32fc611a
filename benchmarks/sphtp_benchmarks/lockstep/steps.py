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
    """An array of another step, or of another shape."""


def meet(part: ProcessTask, ports: Sequence[int]) -> list[int]:
    """Report the ports on which this worker awaits those with higher numbers, in their order.

    Return the ports on which those with lower numbers await this one.
    """
    say(ports=list(ports))
    everybody: list[list[int]] = told()
    lower = everybody[: part.number]
    return [theirs[part.number - number - 1] for number, theirs in enumerate(lower)]


class Steps:
    """The array of each step, up to the step that the first worker marks as the last one.

    Two arrays take turns. Before a worker fills an array again, it has received the arrays of the
    step in between from all others, which send them after they have received that array. So no
    array changes while it is being sent.
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
        """Check the array of another worker. Raises ``OutOfStepError``."""
        if array[STEP] != self._step or array.shape != self._arrays[0].shape:
            raise OutOfStepError(f"step {array[STEP]}, shape {array.shape}, in step {self._step}")
        if array[LAST]:
            self._is_last = True

    def report(self) -> dict[str, float]:
        """Return the number of steps, and that of the steps after the warm-up with their times.

        Raises ``RuntimeError`` if the warm-up is not over.
        """
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
