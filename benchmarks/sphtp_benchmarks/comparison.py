"""Verbs that compare systems: their options, and a plan carried out from end to end."""

import json as json_format
import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click
import trio
from rich.console import Console

from sphtp_benchmarks.catalog import Catalog
from sphtp_benchmarks.conditions import conditions
from sphtp_benchmarks.figures import Sheet
from sphtp_benchmarks.options import (
    as_json,
    cases_of,
    rounds_of_all,
    seconds_of_each,
    systems_of,
    to_markdown,
)
from sphtp_benchmarks.page import page
from sphtp_benchmarks.rounds import Plan, run_rounds
from sphtp_benchmarks.screen import progress, show
from sphtp_client.program import ExitStatus, run_until_stopped

Choose = Callable[..., Sequence[str] | None]


def comparing(
    catalog: Catalog, head: str, default: str = "all"
) -> Callable[[Choose], click.Command]:
    """Make a verb that measures the systems of a catalog; ``head`` begins its page of results.

    ``default`` describes the systems that are measured unless others are named, for the help.

    The decorated function gives the verb its name, its help and options of its own. If no systems
    are named, it is called with the values of these options, and returns the systems to measure,
    or None for all.
    """
    shared = (
        *(rounds_of_all, seconds_of_each, cases_of(catalog), systems_of(catalog, default)),
        *(to_markdown, as_json),
    )

    def make(choose: Choose) -> click.Command:
        @wraps(choose)
        def measure(
            rounds: int,
            seconds: float,
            cases: tuple[str, ...],
            systems: tuple[str, ...],
            markdown: Path | None,
            json: bool,
            **own: Any,
        ) -> None:
            plan = Plan(
                rounds=rounds,
                seconds=seconds,
                cases=cases or tuple(catalog.cases),
                systems=systems or choose(**own) or tuple(catalog.systems),
                catalog=catalog,
            )
            compare(plan, head, markdown, json=json)

        verb: Callable[..., Any] = measure
        for option in reversed(shared):
            verb = option(verb)
        return click.command()(verb)

    return make


def compare(plan: Plan, head: str, markdown: Path | None, *, json: bool) -> None:
    """Measure, write the page if one is wanted, print, and end the program with its exit code."""
    sheet, circumstances = Sheet(plan.catalog), conditions(plan)
    with progress(plan, Console(stderr=True), quiet=json) as starting:
        work = partial(run_rounds, plan, sheet, starting)
        stopped = trio.run(run_until_stopped, work)
    if stopped:
        sys.exit(stopped.code)
    if markdown is not None:
        markdown.write_text(page(sheet, circumstances, head), encoding="utf-8")
    if json:
        print(json_format.dumps(sheet.document(circumstances), indent=2))
    else:
        show(sheet, Console())
    sys.exit(ExitStatus.FAILED.code if sheet.failures else 0)
