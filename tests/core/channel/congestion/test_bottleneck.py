"""Bulk senders through one bottleneck: 20 Mbit/s, 50 ms, a queue of one bandwidth-delay product."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from statistics import fmean

import pytest

from sphtp.core.channel.congestion.controller import Controller, make_controller
from sphtp.core.channel.settings import parse_congestion
from tests.core.channel.congestion.bottleneck import DATAGRAM, Flow, Path, World
from tests.soaked import soaked


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


LIMIT = 8_000_000
QUICK, OTHERS = ("cubic", "tolerant"), ("newreno",)
ADAPTIVE = (*QUICK, *OTHERS)
ALL = (*ADAPTIVE, "fixed:2000000")
STARTS = {"soon after": (0.0, 2.3), "late": (0.0, 15.1)}
LONG = {"soon after": 16, "late": 60}
"""Seconds: the second half is measured, in which both send."""

ROWS: dict[str, str] = {}


@cache
def outcome(
    name: str,
    *,
    seconds: int = 10,
    starts: tuple[float, ...] = (0.0,),
    loss: float = 0.0,
    queues: float = 1.0,
    losses: tuple[tuple[float, float], ...] = (),
) -> Outcome:
    def make() -> Controller:
        return make_controller(*parse_congestion(name), DATAGRAM, LIMIT)

    found = run(Path(loss=loss, queues=queues), make, seconds=seconds, starts=starts, losses=losses)
    title = f"{name}, flows from {starts}, loss {loss}, queue {queues}, {losses or 'steady'}"
    ROWS[title] = found.row(title)
    return found


def table() -> str:
    return "\n" + "\n".join(ROWS.values())


@pytest.mark.parametrize("name", [*QUICK, *soaked(OTHERS)])
def test_one_flow_uses_the_path_and_its_queue_does_not_grow_without_end(name: str) -> None:
    found = outcome(name)
    assert found.utilisation >= 0.85, table()
    check_queue(found)


@pytest.mark.parametrize("start", ["soon after", *soaked(["late"])])
@pytest.mark.parametrize("name", [*QUICK, *soaked(OTHERS)])
def test_two_flows_share(name: str, start: str) -> None:
    found = outcome(name, seconds=LONG[start], starts=STARTS[start])
    assert found.utilisation >= 0.85, table()
    assert found.smaller >= 0.4, table()


@pytest.mark.soak
@pytest.mark.parametrize("name", ADAPTIVE)
def test_the_queue_of_two_flows_does_not_grow_without_end(name: str) -> None:
    check_queue(outcome(name, seconds=30, starts=(0.0, 2.3)))


def check_queue(found: Outcome) -> None:
    assert found.queue_growth < 0.1, table()
    assert found.queue_mean < 0.85, table()
    assert found.dropped < 0.01, table()


@pytest.mark.parametrize("starts", [(0.0,), *soaked([(0.0, 2.3)])])
def test_the_tolerant_one_leaves_a_deep_queue_alone(starts: tuple[float, ...]) -> None:
    found = outcome("tolerant", starts=starts, queues=8.0)
    assert found.queue_mean < 0.85, table()
    assert found.queue_peak < 1.6, table()


def test_random_loss() -> None:
    tolerant = outcome("tolerant", loss=0.02)
    others = [outcome(name, loss=0.02) for name in ("newreno", "cubic")]
    assert tolerant.utilisation >= 0.7, table()
    assert all(other.utilisation < 0.3 for other in others), table()
    assert outcome("tolerant", loss=0.1).utilisation >= 0.7, table()


@pytest.mark.parametrize("start", ["soon after", *soaked(["late"])])
def test_two_tolerant_flows_share_under_random_loss(start: str) -> None:
    found = outcome("tolerant", seconds=LONG[start], starts=STARTS[start], loss=0.02)
    assert found.utilisation >= 0.7, table()
    assert found.smaller >= 0.4, table()


@pytest.mark.parametrize("name", [*QUICK, *soaked(OTHERS)])
def test_a_blackout_is_survived(name: str) -> None:
    found = outcome(name, seconds=20, losses=((5.0, 1.0), (8.5, 0.0)))
    assert found.utilisation >= 0.85, table()


@pytest.mark.parametrize("name", [*QUICK, *soaked(OTHERS)])
def test_a_path_that_holds_fewer_datagrams_than_an_ack_acks(name: str) -> None:
    """As loopback is: one's window has to outgrow the receiver's ack delay, or it stays there."""
    path = Path(rate=1e9, round_trip=0.0002, queues=20.0, jitter=0.0, datagram=65_507)
    found = run(path, lambda: make_controller(*parse_congestion(name), 65_507, LIMIT), seconds=2)
    assert found.utilisation >= 0.85, found.row(name)


def test_a_fixed_rate_is_that_rate() -> None:
    found = outcome("fixed:2000000")
    assert found.utilisation == pytest.approx(0.8, abs=0.01), table()
    assert found.queue_peak < 0.2, table()


@pytest.mark.parametrize("name", ALL)
def test_a_sender_with_little_to_send_gets_no_large_window(name: str) -> None:
    supply = 250_000.0
    found = run(
        Path(),
        lambda: make_controller(*parse_congestion(name), DATAGRAM, LIMIT),
        seconds=4,
        supply=supply,
    )
    assert found.utilisation == pytest.approx(0.1, abs=0.005)
    if name in ADAPTIVE:
        # What it needs is a tenth of the path; a bulk sender has the whole of it, and the queue.
        assert found.flows[0].peak_window < 0.5 * Path().product


def test_one_seed_gives_one_trace() -> None:
    def trace(seed: int) -> list[float]:
        make = lambda: make_controller(*parse_congestion("tolerant"), DATAGRAM, LIMIT)  # noqa: E731
        return run(Path(loss=0.02), make, seconds=2, starts=(0.0, 0.5), seed=seed).shares

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)
