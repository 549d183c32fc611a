"""Carrying out a plan from end to end: rounds, progress, and what came out, for people or JSON."""

import json as json_format
import sys
from functools import partial
from pathlib import Path

import trio
from rich.console import Console

from sphtp_client.bench.conditions import conditions
from sphtp_client.bench.figures import Sheet
from sphtp_client.bench.page import page
from sphtp_client.bench.rounds import Plan, run_rounds
from sphtp_client.bench.screen import progress, show
from sphtp_client.stopping import run_until_stopped
from sphtp_client.verdict import Verdict


def compare(plan: Plan, head: str, markdown: Path | None, *, json: bool) -> None:
    """Measure, print, write the page if one is wanted, and end the program with its exit code."""
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
    sys.exit(Verdict.FAILED.code if sheet.failures else 0)
