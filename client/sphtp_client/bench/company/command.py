"""The verb ``sphtp bench company``: what idle channels cost."""

import json as json_format
import sys
from typing import Any

import click
import trio
from rich.console import Console

from sphtp_client.bench.company.measure import Company, measure
from sphtp_client.bench.company.task import Side, Task
from sphtp_client.bench.conditions import conditions
from sphtp_client.bench.options import as_json
from sphtp_client.bench.pair import MeasurementError
from sphtp_client.bench.rounds import Plan
from sphtp_client.stopping import run_until_stopped
from sphtp_client.verdict import Verdict


@click.command()
@click.option(
    "--channels",
    help="How many idle channels to open beside the busy one.",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
)
@click.option(
    "--rounds",
    help="How often to measure; the result is the median.",
    type=click.IntRange(1),
    default=3,
    show_default=True,
)
@click.option(
    "--seconds",
    help="How long each rate is measured, after a warm-up of a quarter of that.",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
)
@as_json
def company(channels: int, rounds: int, seconds: float, json: bool) -> None:
    """Measure what idle channels cost a node with a busy one.

    Two processes with a socket each; memory is that of the one that dials, one end of each channel.
    Exit codes: 0 measured, 2 usage, 3 the measurement failed, 130 after Ctrl-C, 143 after SIGTERM.
    """
    task = Task(side=Side.HOST, channels=channels, seconds=seconds)
    circumstances = conditions(Plan(rounds=rounds, seconds=seconds, cases=(), systems=()))
    screen, found = Console(stderr=True), list[Company]()

    def starting(text: str) -> None:
        if not json:
            screen.print(text, highlight=False)

    async def work() -> None:
        found.append(await measure(task, rounds, starting))

    try:
        stopped = trio.run(run_until_stopped, work)
    except MeasurementError as error:
        screen.print(f"failed: {error}", highlight=False, markup=False)
        sys.exit(Verdict.FAILED.code)
    if stopped:
        sys.exit(stopped.code)
    tell(found[0], circumstances, json=json)


def tell(figures: Company, circumstances: dict[str, Any], *, json: bool) -> None:
    """Print the figures."""
    if json:
        document = {"conditions": circumstances, "results": figures.document()}
        print(json_format.dumps(document, indent=2))
        return
    print(f"{figures.channels} idle channels beside a busy one")
    print(f"memory of each: {figures.resident_bytes / 1024:.1f} KiB resident,", end=" ")
    print(f"{figures.traced_bytes / 1024:.1f} KiB traced")
    print(f"the busy one alone: {figures.alone_per_s:,.0f} messages/s")
    print(f"beside them: {figures.beside_per_s:,.0f} messages/s, {100 * figures.kept:.0f} % of it")
    print(f"processor for the idle ones alone: {100 * figures.idle_cpu:.0f} %")
