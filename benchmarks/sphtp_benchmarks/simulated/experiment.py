"""Measurements in virtual time: an experiment, its trials, and the findings of each."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The finding of a trial; a subclass has the figures."""

    def cells(self) -> Sequence[str]:
        """Return the figures as texts, in the order of the experiment's headings."""
        raise NotImplementedError

    def document(self) -> dict[str, Any]:
        """Return the figures as a document for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class SimulatedTrial:
    """One line of an experiment; ``measure`` takes a seed."""

    name: str
    measure: Callable[[int], Finding]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Trials that belong in one table; ``before`` and ``after`` are the texts around it."""

    name: str
    title: str
    before: str
    after: str
    headings: Sequence[str]
    trials: Sequence[SimulatedTrial]


def ms(seconds: float) -> str:
    """Return a time in whole milliseconds."""
    return f"{seconds * 1e3:.0f} ms"


def percent(share: float) -> str:
    """Return a share in whole percent."""
    return f"{100 * share:.0f} %"
