"""The verb ``sphtp bench stream``: streams beside publishers and subscribers of other systems."""

from pathlib import Path

import click

from sphtp_client.bench.comparison import compare
from sphtp_client.bench.options import (
    as_json,
    cases_of,
    rounds_of_all,
    seconds_of_each,
    systems_of,
    to_markdown,
)
from sphtp_client.bench.rounds import Plan
from sphtp_client.bench.stream.catalog import CASES, STREAMS, SYSTEMS
from sphtp_client.bench.stream.page import HEAD


@click.command()
@rounds_of_all
@seconds_of_each
@cases_of(STREAMS)
@systems_of(STREAMS)
@to_markdown
@as_json
def stream(
    rounds: int,
    seconds: float,
    cases: tuple[str, ...],
    systems: tuple[str, ...],
    markdown: Path | None,
    json: bool,
) -> None:
    """Measure a stream from one process to others, and other systems in turn with it.

    ZeroMQ comes with pip install 'sphtp[bench]'; a system that is not installed is reported as
    absent. Exit codes: 0 all measured, 2 usage, 3 a measurement failed, 130 after Ctrl-C, 143
    after SIGTERM.
    """
    plan = Plan(
        rounds=rounds,
        seconds=seconds,
        cases=cases or tuple(CASES),
        systems=systems or tuple(SYSTEMS),
        catalog=STREAMS,
    )
    compare(plan, HEAD, markdown, json=json)
