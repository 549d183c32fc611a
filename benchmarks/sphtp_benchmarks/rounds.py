"""Several rounds, and in each of them the systems of each case in turn."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from sphtp_benchmarks.catalog import CHANNELS, Catalog
from sphtp_benchmarks.figures import Sheet
from sphtp_benchmarks.pair import Measurement, MeasurementError, measure


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The measurements, and their number of rounds; seconds per measurement, without warm-up."""

    rounds: int
    seconds: float
    cases: Sequence[str]
    systems: Sequence[str]
    catalog: Catalog = CHANNELS

    @property
    def warm_up(self) -> float:
        """Seconds at the start of each measurement that do not count."""
        return self.seconds / 4

    def wanted(self) -> list[tuple[str, str]]:
        """Return each case with each of its systems, installed or not, in order."""
        return [
            (name, system)
            for name, case in self.catalog.cases.items()
            if name in self.cases
            for system in case.systems
            if system in self.systems
        ]

    def absent(self) -> dict[str, str]:
        """Return the systems that are wanted and not installed, with the remedy."""
        return {
            name: self.catalog.systems[name].absence
            for name in dict.fromkeys(system for _, system in self.wanted())
            if not self.catalog.systems[name].installed
        }

    def tasks(self, number: int) -> Iterator[Measurement]:
        """Yield the measurements of a round, each case in the order of ``turned``."""
        absent = self.absent()
        for case, pairs in groupby(self.wanted(), itemgetter(0)):
            present = [system for _, system in pairs if system not in absent]
            for system in turned(present, number - 1):
                yield Measurement(case, system, self.seconds, self.warm_up, self.catalog.name)


def turned(systems: Sequence[str], by: int) -> list[str]:
    """Return the systems, beginning with another one in each round.

    A machine that has just worked hard may be slower.
    """
    start = by % len(systems) if systems else 0
    return [*systems[start:], *systems[:start]]


async def run_rounds(
    plan: Plan, sheet: Sheet, starting: Callable[[int, Measurement], None]
) -> None:
    """Make the measurements, and fill the sheet. A failure is noted there, and ends no others."""
    sheet.absent.update(plan.absent())
    for number in range(1, plan.rounds + 1):
        for task in plan.tasks(number):
            starting(number, task)
            try:
                sheet.note(task.case, task.system, await measure(task))
            except MeasurementError as error:
                sheet.failures.append(f"{task.case} {task.system}, round {number}: {error}")
