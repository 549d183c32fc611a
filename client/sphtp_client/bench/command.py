"""The verb ``sphtp bench``: what channels and streams cost, and how fast they are beside others."""

from pathlib import Path

import click

from sphtp_client.bench.catalog import CASES, CHANNELS, OURS, SEALED, SYSTEMS
from sphtp_client.bench.company.command import company
from sphtp_client.bench.comparison import compare
from sphtp_client.bench.flood.command import flood
from sphtp_client.bench.options import (
    as_json,
    cases_of,
    rounds_of_all,
    seconds_of_each,
    systems_of,
    to_markdown,
)
from sphtp_client.bench.ordinary.command import ordinary
from sphtp_client.bench.page import HEAD
from sphtp_client.bench.recovery.command import recovery
from sphtp_client.bench.rounds import Plan
from sphtp_client.bench.simulated.command import latency
from sphtp_client.bench.stream.command import stream


@click.group()
def bench() -> None:
    """Measure what channels and streams do, on this machine and on simulated networks."""


bench.add_command(latency)
bench.add_command(recovery)
bench.add_command(company)
bench.add_command(flood)
bench.add_command(stream)
bench.add_command(ordinary)


@bench.command()
@rounds_of_all
@seconds_of_each
@cases_of(CHANNELS)
@systems_of(CHANNELS)
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
    compare(plan, HEAD, markdown, json=json)
