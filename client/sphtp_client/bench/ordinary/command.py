"""The verb ``sphtp bench ordinary``: one message per call, beside other systems."""

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
from sphtp_client.bench.ordinary.catalog import CASES, ORDINARY, SYSTEMS
from sphtp_client.bench.ordinary.page import HEAD
from sphtp_client.bench.rounds import Plan


@click.command()
@rounds_of_all
@seconds_of_each
@cases_of(ORDINARY)
@systems_of(ORDINARY)
@to_markdown
@as_json
def ordinary(
    rounds: int,
    seconds: float,
    cases: tuple[str, ...],
    systems: tuple[str, ...],
    markdown: Path | None,
    json: bool,
) -> None:
    """Measure ordinary calls: one message of 64 bytes per call, and other systems in turn.

    ZeroMQ comes with pip install 'sphtp[bench]'; a system that is not installed is reported as
    absent. Exit codes: 0 all measured, 2 usage, 3 a measurement failed, 130 after Ctrl-C, 143
    after SIGTERM.
    """
    plan = Plan(
        rounds=rounds,
        seconds=seconds,
        cases=cases or tuple(CASES),
        systems=systems or tuple(SYSTEMS),
        catalog=ORDINARY,
    )
    compare(plan, HEAD, markdown, json=json)
