"""What measurements say: figures of one, medians of several, ratios of medians."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import Any, Self

from sphtp_client.bench.catalog import CASES, OURS, SEALED, Case

MB = 1e6


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One measurement, or medians of several; None is what a case does not measure.

    ``cpu_us_per_message`` is the processor time of both processes together.
    """

    messages_per_s: float | None = None
    mb_per_s: float | None = None
    rtt_p50_us: float | None = None
    rtt_p99_us: float | None = None
    cpu_us_per_message: float | None = None

    @classmethod
    def of_stream(cls, sent: Mapping[str, float], heard: Mapping[str, float], size: int) -> Self:
        """Return the figures from what a sender and a receiver reported."""
        rate = heard["measured"] / heard["seconds"]
        cpu = sent["cpu"] / sent["sent"] + heard["cpu"] / heard["received"]
        return cls(messages_per_s=rate, mb_per_s=rate * size / MB, cpu_us_per_message=cpu * 1e6)

    @classmethod
    def of_round_trips(cls, timed: Mapping[str, float]) -> Self:
        """Return the figures from what a stopwatch reported."""
        return cls(rtt_p50_us=timed["p50"], rtt_p99_us=timed["p99"])

    @classmethod
    def medians(cls, several: Sequence[Self]) -> Self:
        """Return the median of each figure; None where there is none."""
        names = [each.name for each in fields(cls)]
        known = {
            name: [value for each in several if (value := getattr(each, name)) is not None]
            for name in names
        }
        return cls(**{name: median(values) if values else None for name, values in known.items()})


@dataclass(frozen=True)
class Row:
    """A system in a case: medians, and the rounds they come from."""

    system: str
    case: str
    figures: Figures
    rounds: tuple[Figures, ...]

    def document(self) -> dict[str, Any]:
        """Return it as JSON wants it."""
        rounds = [asdict(figures) for figures in self.rounds]
        return {"system": self.system, "case": self.case, **asdict(self.figures), "rounds": rounds}


@dataclass
class Sheet:
    """Everything measured so far."""

    absent: dict[str, str] = field(default_factory=dict)  # why, by system
    failures: list[str] = field(default_factory=list)
    measured: dict[tuple[str, str], list[Figures]] = field(default_factory=dict)

    def note(self, case: str, system: str, figures: Figures) -> None:
        """Add a round."""
        self.measured.setdefault((case, system), []).append(figures)

    def rows(self) -> list[Row]:
        """Return what was measured, in the order in which it first was."""
        return [
            Row(system, case, Figures.medians(rounds), tuple(rounds))
            for (case, system), rounds in self.measured.items()
        ]

    def ratios(self) -> dict[str, float | None]:
        """Return ours over theirs by case and peer; None when one of the two was not measured.

        Ours is in the clear there, as most of theirs are; ``sealed/...`` says what sealing costs.
        Above one is good for us where a case measures a rate, and bad for round trips.
        """
        theirs = {
            f"{case.name}/{peer}": self._ratio(case, OURS, peer)
            for case in CASES.values()
            for peer in peers(case)
        }
        sealed = {
            f"{SEALED}/{case.name}": self._ratio(case, SEALED, OURS)
            for case in CASES.values()
            if SEALED in case.systems
        }
        return theirs | sealed

    def document(self, conditions: Mapping[str, Any]) -> dict[str, Any]:
        """Return it all as JSON wants it."""
        return {
            "conditions": dict(conditions),
            "absent": self.absent,
            "failures": self.failures,
            "results": [row.document() for row in self.rows()],
            "ratios": self.ratios(),
        }

    def _ratio(self, case: Case, one: str, other: str) -> float | None:
        over, under = (self._median(case, system) for system in (one, other))
        return over / under if over is not None and under else None

    def _median(self, case: Case, system: str) -> float | None:
        rounds = self.measured.get((case.name, system), [])
        value: float | None = getattr(Figures.medians(rounds), case.measure.value)
        return value


def peers(case: Case) -> Iterable[str]:
    """Return the systems of a case that ours is compared with."""
    return (system for system in case.systems if system not in (OURS, SEALED))
