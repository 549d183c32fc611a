"""Results of measurements: figures of one, medians of several, ratios of medians."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import Any, Self

from sphtp_benchmarks.catalog import CHANNELS, Catalog, Measure

MB = 1e6


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One measurement, or medians of several; None if a case does not measure a figure.

    ``cpu_us_per_message`` and ``cpu_us_per_step`` are the processor time of all processes
    together. ``delivered`` and ``reported`` are shares of the messages sent: those that arrived,
    and those whose loss was reported to a receiver; ``told`` is both together.
    """

    messages_per_s: float | None = None
    mb_per_s: float | None = None
    rtt_p50_us: float | None = None
    rtt_p99_us: float | None = None
    cpu_us_per_message: float | None = None
    sender_us_per_message: float | None = None
    receiver_us_per_message: float | None = None
    delivered: float | None = None
    reported: float | None = None
    told: float | None = None
    steps_per_s: float | None = None
    cpu_us_per_step: float | None = None

    @classmethod
    def of_stream(cls, sent: Mapping[str, float], heard: Mapping[str, float], size: int) -> Self:
        """Return the figures from the reports of a sender and a receiver."""
        rate = heard["measured"] / heard["seconds"]
        cpu = sent["cpu"] / sent["sent"] + heard["cpu"] / heard["received"]
        return cls(messages_per_s=rate, mb_per_s=rate * size / MB, cpu_us_per_message=cpu * 1e6)

    @classmethod
    def of_publication(
        cls, sent: Mapping[str, float], heard: Sequence[Mapping[str, float]], size: int
    ) -> Self:
        """Return the figures from the reports of a sender and its receivers."""
        rate = median(each["measured"] / each["seconds"] for each in heard)
        expected = sent["sent"] * len(heard)
        delivered = sum(each["received"] for each in heard) / expected
        reported = sum(each["reported"] for each in heard) / expected
        return cls(
            messages_per_s=rate,
            mb_per_s=rate * size / MB,
            sender_us_per_message=sent["cpu"] / sent["sent"] * 1e6,
            receiver_us_per_message=median(each["cpu"] / each["received"] for each in heard) * 1e6,
            delivered=delivered,
            reported=reported,
            told=delivered + reported,
        )

    @classmethod
    def of_round_trips(cls, timed: Mapping[str, float]) -> Self:
        """Return the figures from the report of a stopwatch."""
        return cls(rtt_p50_us=timed["p50"], rtt_p99_us=timed["p99"])

    @classmethod
    def of_steps(cls, said: Sequence[Mapping[str, float]], size: int) -> Self:
        """Return the figures from the reports of workers that each send to every other one."""
        rate = median(each["measured"] / each["seconds"] for each in said)
        sent = len(said) * (len(said) - 1)
        return cls(
            steps_per_s=rate,
            mb_per_s=rate * sent * size / MB,
            cpu_us_per_step=sum(each["cpu"] / each["measured"] for each in said) * 1e6,
        )

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
class SystemFigures:
    """A system in a case: medians, and the rounds they come from."""

    system: str
    case: str
    figures: Figures
    rounds: tuple[Figures, ...]

    def document(self) -> dict[str, Any]:
        """Return the figures as a document for JSON."""
        rounds = [asdict(figures) for figures in self.rounds]
        return {"system": self.system, "case": self.case, **asdict(self.figures), "rounds": rounds}


@dataclass
class Sheet:
    """All results so far."""

    catalog: Catalog = CHANNELS
    absent: dict[str, str] = field(default_factory=dict)  # the reason, by system
    failures: list[str] = field(default_factory=list)
    measured: dict[tuple[str, str], list[Figures]] = field(default_factory=dict)

    def note(self, case: str, system: str, figures: Figures) -> None:
        """Add a round."""
        self.measured.setdefault((case, system), []).append(figures)

    def rows(self) -> list[SystemFigures]:
        """Return the medians of all cases and systems, in the order of the first measurement."""
        return [
            SystemFigures(system, case, Figures.medians(rounds), tuple(rounds))
            for (case, system), rounds in self.measured.items()
        ]

    def ratios(self) -> dict[str, float | None]:
        """Return ratios of medians; None if one was not measured, or the divisor is 0."""
        return {
            ratio.name: _divide(
                self._median(*ratio.over, ratio.measure), self._median(*ratio.under, ratio.measure)
            )
            for ratio in self.catalog.ratios
        }

    def document(self, conditions: Mapping[str, Any]) -> dict[str, Any]:
        """Return all results as a document for JSON."""
        return {
            "conditions": dict(conditions),
            "absent": self.absent,
            "failures": self.failures,
            "results": [row.document() for row in self.rows()],
            "ratios": self.ratios(),
        }

    def _median(self, case: str, system: str, measure: Measure) -> float | None:
        rounds = self.measured.get((case, system), [])
        value: float | None = getattr(Figures.medians(rounds), measure.value)
        return value


def _divide(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None
