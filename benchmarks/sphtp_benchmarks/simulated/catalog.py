"""All experiments, and a run of some of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sphtp_benchmarks.simulated.bottleneck import BOTTLENECK
from sphtp_benchmarks.simulated.delivery import DELIVERY
from sphtp_benchmarks.simulated.experiment import Experiment, Finding, SimulatedTrial
from sphtp_benchmarks.simulated.heavy_loss import HEAVY_LOSS
from sphtp_benchmarks.simulated.lanes import LANES_TABLE

EXPERIMENTS: Final = {each.name: each for each in (DELIVERY, HEAVY_LOSS, BOTTLENECK, LANES_TABLE)}


@dataclass
class Run:
    """The findings for a random seed, by experiment and in the order of its trials."""

    seed: int
    found: dict[str, list[Finding]] = field(default_factory=dict)

    def make(
        self, names: Sequence[str], starting: Callable[[Experiment, SimulatedTrial], None]
    ) -> None:
        """Make every trial of the experiments named."""
        for name, experiment in EXPERIMENTS.items():
            if name in names:
                for trial in experiment.trials:
                    starting(experiment, trial)
                    self.found.setdefault(name, []).append(trial.measure(self.seed))

    def document(self) -> dict[str, Any]:
        """Return the findings as a document for JSON."""
        results = {
            name: [finding.document() for finding in findings]
            for name, findings in self.found.items()
        }
        return {"seed": self.seed, "results": results}
