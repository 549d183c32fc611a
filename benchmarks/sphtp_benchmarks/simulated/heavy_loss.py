"""Latency over a path that loses up to nine packets in ten, beside that of Fiedler's rule."""

from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

from sphtp.config import ChannelSettings
from sphtp.testing import Faults, Pair
from sphtp_benchmarks.simulated.experiment import Experiment, Finding, SimulatedTrial, percent
from sphtp_benchmarks.simulated.seed_rule import RESEND_TIME, SeedRule

MESSAGES: Final = 100
SIZE: Final = 1000
ROUND_TRIP: Final = 0.020
LOSSES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
RUNS: Final = 21
"""The number of runs of which the median counts, each with a seed of its own."""

LONGEST: Final = 100_000.0
"""Seconds within which all must have arrived."""

SEED_RULE: Final = "Fiedler's rule"
CONTROLLERS: Final = ("cubic", "newreno", "tolerant", "fixed:2e6")


@dataclass(frozen=True, kw_only=True)
class Endured(Finding):
    """Median seconds until the last message has arrived, by share of packets lost each way."""

    rule: str
    seconds: dict[float, float]

    def cells(self) -> tuple[str, ...]:
        """Return a line of the table."""
        name = self.rule if self.rule == SEED_RULE else f"`{self.rule}`"
        return (name, *(f"{seconds:.2f}" for seconds in self.seconds.values()))


def measure(rule: str, seed: int) -> Endured:
    """Send the messages at once, ``RUNS`` times for each share of loss."""
    take = measure_seed_rule if rule == SEED_RULE else partial(measure_channel, rule)
    return Endured(
        rule=rule,
        seconds={
            loss: median([take(loss, seed * RUNS + run) for run in range(RUNS)]) for loss in LOSSES
        },
    )


def measure_seed_rule(loss: float, seed: int) -> float:
    """Return the seconds until all messages have arrived by Fiedler's rule."""
    simulation = SeedRule(seed, Faults(delay=ROUND_TRIP / 2, loss=loss), MESSAGES, SIZE)
    simulation.drive(lambda: simulation.is_delivered, LONGEST)
    return simulation.now


def measure_channel(controller: str, loss: float, seed: int) -> float:
    """Return the seconds until all messages have arrived over a channel, opened without losses."""
    settings = ChannelSettings(congestion=controller, timeout=86_400)
    pair = Pair(seed, Faults(delay=ROUND_TRIP / 2), settings)
    sender, receiver = pair.open()
    pair.run(1.0)
    pair.network.set_default(Faults(delay=ROUND_TRIP / 2, loss=loss))
    start = pair.now
    pair.transfer(sender, receiver, [bytes(SIZE)] * MESSAGES, LONGEST)
    return pair.now - start


HEAVY_LOSS: Final = Experiment(
    name="heavy-loss",
    title="Heavy loss",
    before=f"""\
{MESSAGES} reliable messages of {SIZE:,} bytes, sent at once over a round trip of
{ROUND_TRIP * 1e3:.0f} ms; both directions lose the same share, at random. The table shows the
seconds until all messages have arrived, as medians of {RUNS} runs. The first row is a rule for
comparison, from Glenn Fiedler's article *Reliable Ordered Messages*: the sender sends every message
again each {RESEND_TIME} s until the peer acks it, whatever the capacity of the path. The other rows
are channels with the congestion controller of that name, and a `timeout` of a day.
""",
    after="""\
Such losses reduce a congestion window to two packets, with which the transfer would take hours at a
loss of nine packets in ten. So a few packets may always leave in each 0.1 s, and more if the round
trips show no queue. Acks are repeated while many packets are missing. See [congestion
control](../explanation/congestion.md#a-least-rate-after-fiedlers-rule).
""",
    headings=("rule", *(percent(loss) for loss in LOSSES)),
    trials=[SimulatedTrial(rule, partial(measure, rule)) for rule in (SEED_RULE, *CONTROLLERS)],
)
