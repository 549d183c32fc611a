"""The verb ``sphtp bench company``: the cost of idle channels."""

import json as json_format
from functools import partial
from typing import Any

import click

from sphtp_benchmarks.company.measure import Company, measure
from sphtp_benchmarks.company.task import CompanySide, CompanyTask
from sphtp_benchmarks.conditions import conditions
from sphtp_benchmarks.options import as_json, rounds_of_median
from sphtp_benchmarks.rounds import Plan
from sphtp_benchmarks.verb import measured


@click.command()
@click.option(
    "--channels",
    help="Number of idle channels beside the busy one.",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
)
@rounds_of_median
@click.option(
    "--seconds",
    help="Seconds for which each rate is measured, after a warm-up of a quarter of that.",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
)
@as_json
def company(channels: int, rounds: int, seconds: float, json: bool) -> None:
    """Measure the cost of idle channels at a node with a busy one.

    There are two processes, each with one socket. Memory is that of the process that dials, which
    has one end of each channel.
    Exit codes: 0 measured, 2 usage, 3 the measurement failed, 130 after Ctrl-C, 143 after SIGTERM.
    """
    task = CompanyTask(side=CompanySide.HOST, channels=channels, seconds=seconds)
    circumstances = conditions(Plan(rounds=rounds, seconds=seconds, cases=(), systems=()))
    figures = measured(partial(measure, task, rounds), quiet=json)
    tell(figures, circumstances, json=json)


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
    print(f"processor for the idle ones alone, both ends: {100 * figures.idle_cpu:.1f} %")
