"""Bulk senders through a bottleneck, whole channels with each congestion controller."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from sphtp.config import ChannelSettings
from sphtp.testing import Crowd, Faults
from sphtp_benchmarks.simulated.experiment import Experiment, Finding, SimulatedTrial, percent
from sphtp_benchmarks.simulated.path import (
    ETHERNET,
    RATE,
    ROUND_TRIP,
    WAITING,
    Flow,
    Queue,
    bottleneck,
)

CONTROLLERS: Final = ("cubic", "newreno", "tolerant")
SECONDS: Final = {1: 16.0, 2: 60.0}
"""Seconds of a trial, by its number of flows; the second half counts."""

LATER: Final = 2.3
"""Seconds after the first flow at which the second one begins."""

LOSS: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A path with a number of flows, which share it, their controller, and the random loss."""

    controller: str
    flows: int = 1
    loss: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Used(Finding):
    """Shares of the line's rate by flow; the queue in bandwidth-delay products; its drops."""

    path: Shared
    shares: tuple[float, ...]
    queue_mean: float
    queue_growth: float
    dropped: float

    @property
    def used(self) -> float:
        """The share of the line's rate that arrived as messages."""
        return sum(self.shares)

    @property
    def smallest(self) -> float:
        """The share of the slowest flow in the rate of all flows."""
        return min(self.shares) / self.used

    def cells(self) -> tuple[str, ...]:
        """Return a line of the table."""
        return (
            f"`{self.path.controller}`",
            str(self.path.flows),
            percent(self.path.loss),
            percent(self.used),
            ":".join(f"{100 * share / self.used:.0f}" for share in self.shares),
            f"{self.queue_mean:.1f}",
            f"{100 * self.dropped:.1f} %",
        )


def measure(path: Shared, seed: int) -> Used:
    """Let flows share the path; the second half of the time counts."""
    settings = ChannelSettings(congestion=path.controller, send_buffer_bytes=WAITING)
    crowd = Crowd(seed, 2 * path.flows, Faults(delay=ROUND_TRIP / 2, mtu=ETHERNET), settings)
    ends = [(2 * flow, 2 * flow + 1) for flow in range(path.flows)]
    flows = [Flow(crowd, crowd.open(*pair)) for pair in ends]
    ways = [(crowd.addresses[one], crowd.addresses[other]) for one, other in ends]
    link = crowd.network.share_link(bottleneck(path.loss), *ways)
    queue = Queue(link)

    def watch() -> None:
        queue.look(crowd.now)
        for flow in flows:
            flow.work()

    half = SECONDS[path.flows] / 2
    for flow in flows:
        flow.begin()
        crowd.run(LATER, watch)
    crowd.run(half - LATER * len(flows), watch)
    queue.clear()
    before, start = link.statistics(crowd.now), [flow.received for flow in flows]
    crowd.run(half, watch)
    after = link.statistics(crowd.now)
    rates = [(flow.received - base) * 8 / half for flow, base in zip(flows, start, strict=True)]
    return Used(
        path=path,
        shares=tuple(rate / RATE for rate in rates),
        queue_mean=queue.mean,
        queue_growth=queue.growth,
        dropped=(after.queue_dropped - before.queue_dropped) / (after.offered - before.offered),
    )


def _trial(path: Shared) -> SimulatedTrial:
    name = f"{path.controller}, {path.flows} flows, {percent(path.loss)} lost"
    return SimulatedTrial(name, partial(measure, path))


BOTTLENECK: Final = Experiment(
    name="bottleneck",
    title="Bulk through a bottleneck",
    before=f"""\
Channels that always have something to send, over one line of {RATE / 1e6:.0f} Mbit/s with a round
trip of {ROUND_TRIP * 1e3:.0f} ms, packets of at most {ETHERNET} bytes, and a queue of one
bandwidth-delay product (BDP), which drops packets when it is full. `used` is the rate of arriving
messages as a share of the line's rate, in the second half of {SECONDS[1]:.0f} s for one flow and of
{SECONDS[2]:.0f} s for two flows. `split` is the share of each flow in percent, `queue` the mean
length of the queue in BDP, and `dropped` the share of packets that the queue dropped. The second
flow begins {LATER} s after the first. Headers take two
percent. Random loss occurs only in the direction of the data, and is separate from the packets that
the queue drops.
""",
    after="""\
If packets are lost at random, controllers that take each loss for a full queue use little of the
line. The controller `tolerant` is made for such lines. [Congestion
control](../explanation/congestion.md) has the details.
""",
    headings=("controller", "flows", "random loss", "used", "split", "queue, BDP", "dropped"),
    trials=[
        *(_trial(Shared(controller=name)) for name in CONTROLLERS),
        *(_trial(Shared(controller=name, flows=2)) for name in CONTROLLERS),
        *(_trial(Shared(controller=name, loss=LOSS)) for name in CONTROLLERS),
    ],
)
