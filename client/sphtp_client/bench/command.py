"""The verb ``sphtp bench``: what channels cost, and how fast they are beside other systems."""

import json as json_format
import sys
from functools import partial
from pathlib import Path

import click
import trio
from rich.console import Console

from sphtp_client.bench.catalog import CASES, OURS, SEALED, SYSTEMS
from sphtp_client.bench.company.command import company
from sphtp_client.bench.conditions import conditions
from sphtp_client.bench.figures import Sheet
from sphtp_client.bench.options import as_json, to_markdown
from sphtp_client.bench.page import page
from sphtp_client.bench.rounds import Plan, run_rounds
from sphtp_client.bench.screen import progress, show
from sphtp_client.bench.simulated.command import latency
from sphtp_client.stopping import run_until_stopped
from sphtp_client.verdict import Verdict


@click.group()
def bench() -> None:
    """Measure what channels do, on this machine and on simulated networks."""


bench.add_command(latency)
bench.add_command(company)


@bench.command()
@click.option(
    "--rounds",
    help="How often to measure everything; the result is the median.",
    type=click.IntRange(1),
    default=5,
    show_default=True,
)
@click.option(
    "--seconds",
    help="How long each measurement lasts, after a warm-up of a quarter of that.",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
)
@click.option(
    "--case",
    "cases",
    help="A case to measure; repeatable. Default: all.",
    type=click.Choice(list(CASES)),
    multiple=True,
)
@click.option(
    "--system",
    "systems",
    help="A system to measure; repeatable. Default: all.",
    type=click.Choice(list(SYSTEMS)),
    multiple=True,
)
@click.option(
    "--sealing",
    help="Measure what sealing costs: sealed channels beside channels in the clear, nothing else.",
    is_flag=True,
)
@to_markdown
@as_json
def channel(
    rounds: int,
    seconds: float,
    cases: tuple[str, ...],
    systems: tuple[str, ...],
    sealing: bool,
    markdown: Path | None,
    json: bool,
) -> None:
    """Measure a channel between two processes, and other systems in turn with it.

    The other systems come with pip install 'sphtp[bench]'; one that is not installed is
    reported as absent. Exit codes: 0 all measured, 2 usage, 3 a measurement failed, 130 after
    Ctrl-C, 143 after SIGTERM.
    """
    plan = Plan(
        rounds=rounds,
        seconds=seconds,
        cases=cases or tuple(CASES),
        systems=(OURS, SEALED) if sealing else systems or tuple(SYSTEMS),
    )
    sheet, circumstances = Sheet(), conditions(plan)
    with progress(plan, Console(stderr=True), quiet=json) as starting:
        work = partial(run_rounds, plan, sheet, starting)
        stopped = trio.run(run_until_stopped, work)
    if stopped:
        sys.exit(stopped.code)
    if markdown is not None:
        markdown.write_text(page(sheet, circumstances), encoding="utf-8")
    if json:
        print(json_format.dumps(sheet.document(circumstances), indent=2))
    else:
        show(sheet, Console())
    sys.exit(Verdict.FAILED.code if sheet.failures else 0)
