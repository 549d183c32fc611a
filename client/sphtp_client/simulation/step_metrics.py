"""The metrics of one simulation: its steps, and the neighbours for which they waited."""

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from sphtp.core.group.steps import StepStatistics
from sphtp.shell.metrics import MetricText
from sphtp.shell.web import metric_family

STEPS = MetricText(
    "sphtp_simulation_step_seconds", ("node",),
    "Time from the end of an exchange with the neighbours to the end of the next.",
)  # fmt: skip
WAITS = MetricText(
    "sphtp_simulation_wait_seconds", ("node", "peer"),
    "Time of an exchange, by the neighbour whose message came last.",
)  # fmt: skip
DONE = MetricText("sphtp_simulation_steps_total", ("node",), "Steps done.")
TABLE = (DONE, STEPS, WAITS)


class StepCollector(Collector):
    """A collector of ``prometheus_client`` over the steps of a slab."""

    def __init__(self, node: str, statistics: StepStatistics[str]) -> None:
        self._node = node
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """Return the metrics with their values now."""
        node, statistics = (self._node,), self._statistics
        yield metric_family(DONE, {node: float(sum(statistics.exchanges.counts))})
        yield metric_family(STEPS, {node: statistics.steps})
        waits = statistics.waits.items()
        yield metric_family(WAITS, {(self._node, peer): times for peer, times in waits})
