"""Runs of bulk senders through a bottleneck, and what came out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean

from sphtp.core.channel.congestion.controller import Controller
from tests.core.channel.congestion.bottleneck import Flow, Path, World


@dataclass
class Outcome:
    """Of the second half of a run: shares of the rate; the queue, in bandwidth-delay products."""

    shares: list[float]
    queue_mean: float
    queue_peak: float
    queue_growth: float
    dropped: float
    flows: list[Flow] = field(repr=False)

    @property
    def utilisation(self) -> float:
        return sum(self.shares)

    @property
    def smaller(self) -> float:
        return min(self.shares) / self.utilisation

    def row(self, name: str) -> str:
        split = ":".join(f"{100 * share / self.utilisation:.0f}" for share in self.shares)
        return (
            f"{name:<40} used {100 * self.utilisation:5.1f} %  split {split:<7}"
            f" queue {self.queue_mean:.2f} mean {self.queue_peak:.2f} peak"
            f"  dropped {100 * self.dropped:.2f} %"
        )


def run(
    path: Path,
    make: Callable[[], Controller],
    *,
    seconds: int,
    starts: Sequence[float] = (0.0,),
    supply: float | None = None,
    losses: Sequence[tuple[float, float]] = (),
    seed: int = 1,
) -> Outcome:
    """Run bulk senders; from each time in ``losses`` on, the path loses that share at random."""
    world = World(replace(path), seed)
    flows = [Flow(world, make(), start, supply) for start in starts]
    half = seconds // 2
    for when, loss in losses:
        world.at(when, partial(setattr, world.path, "loss", loss))
    world.run(half)
    dropped, offered = world.dropped, world.offered
    world.run(seconds)
    queued = world.queue(half, seconds)
    later = world.queue((half + seconds) // 2, seconds)
    span = range(half, seconds)
    return Outcome(
        shares=[
            sum(flow.received.get(second, 0) for second in span) / path.rate / len(span)
            for flow in flows
        ],
        queue_mean=fmean(queued),
        queue_peak=max(queued),
        queue_growth=fmean(later) - fmean(queued),
        dropped=(world.dropped - dropped) / (world.offered - offered),
        flows=flows,
    )
