"""The verb ``sphtp bench flood``: a channel while junk arrives at its node."""

import json as json_format
from functools import partial

import click

from sphtp_benchmarks.conditions import conditions
from sphtp_benchmarks.flood.measure import Flood, measure
from sphtp_benchmarks.flood.task import FloodSide, FloodTask
from sphtp_benchmarks.options import as_json, rounds_of_median
from sphtp_benchmarks.rounds import Plan
from sphtp_benchmarks.verb import measured


@click.command()
@click.option(
    "--rate",
    help="Junk datagrams per second.",
    type=click.IntRange(1, 1_000_000),
    default=20_000,
    show_default=True,
)
@rounds_of_median
@click.option(
    "--seconds",
    help="Seconds of measuring in quiet, and at least as many under the flood.",
    type=click.FloatRange(0.5),
    default=4.0,
    show_default=True,
)
@click.option("--seed", help="Makes the junk repeatable.", type=int, default=1, show_default=True)
@as_json
def flood(rate: int, rounds: int, seconds: float, seed: int, json: bool) -> None:
    """Measure a channel while junk comes to its node's port.

    There are three processes: a node, one that sends it a message now and then and waits for the
    answer, and one that sends it datagrams of random bytes. Half of these begin like a datagram of
    SphTP. Exit codes: 0 measured, 2 usage, 3 the measurement failed, 130 after Ctrl-C, 143 after
    SIGTERM.
    """
    task = FloodTask(side=FloodSide.VICTIM, rate=rate, seconds=seconds, seed=seed)
    circumstances = conditions(Plan(rounds=rounds, seconds=seconds, cases=(), systems=()))
    figures = measured(partial(measure, task, rounds), quiet=json)
    if json:
        document = {"conditions": circumstances, "results": figures.document()}
        print(json_format.dumps(document, indent=2))
    else:
        tell(figures)


def tell(figures: Flood) -> None:
    """Print the figures."""
    print(f"{figures.junk_per_s:,.0f} junk datagrams per second came to the node")
    quiet, flooded = figures.quiet_p50_us, figures.flooded_p50_us
    print(f"round trip, median: {quiet:.0f} us in quiet, {flooded:.0f} us flooded", end=" ")
    print(f"({figures.slower:.1f} times)")
    print(f"99th percentile: {figures.quiet_p99_us:.0f} us, {figures.flooded_p99_us:.0f} us")
    print(f"memory: {figures.growth_bytes / 1e6:+.1f} MB; {figures.messages:.0f} messages in order")
