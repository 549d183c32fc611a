"""The verb ``sphtp bench recovery``: the time in which streams recover losses."""

import json as json_format
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from sphtp_benchmarks.options import as_json, seed_of_network, to_markdown
from sphtp_benchmarks.recovery.page import HEADINGS, cells, page
from sphtp_benchmarks.recovery.trial import PROFILES, TRIALS, Recovery, make


@click.command()
@click.option(
    "--profile",
    "profiles",
    help="Timers to try; repeatable. Default: all.",
    type=click.Choice(list(PROFILES)),
    multiple=True,
)
@click.option(
    "--receivers",
    "numbers",
    help="Number of receivers that share each loss; repeatable. Default: 1 and 20.",
    type=click.Choice(["1", "20"]),
    multiple=True,
)
@seed_of_network
@to_markdown
@as_json
def recovery(
    profiles: tuple[str, ...],
    numbers: tuple[str, ...],
    seed: int,
    markdown: Path | None,
    json: bool,
) -> None:
    """Measure the time in which streams recover losses.

    The time is virtual: the same seed gives the same figures on every machine, whatever its load.
    All experiments together take about half a minute. Exit codes: 0 done, 1 after Ctrl-C, 2 usage.
    """
    progress, found = Console(stderr=True), list[Recovery]()
    for trial in TRIALS:
        is_wanted = trial.profile in (profiles or PROFILES)
        if is_wanted and str(trial.receivers) in (numbers or ("1", "20")):
            if not json:
                progress.print(trial.name, highlight=False)
            found.append(make(trial, seed))
    if markdown is not None:
        markdown.write_text(page(found, seed), encoding="utf-8")
    if json:
        rows = [one.document() for one in found]
        print(json_format.dumps({"seed": seed, "recovery": rows}, indent=2))
    else:
        show(found, Console())


def show(found: list[Recovery], console: Console) -> None:
    """Print the table."""
    table = Table(title="How long recovery takes", title_justify="left")
    for at, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if at else "left")
    for one in found:
        table.add_row(*cells(one))
    console.print(table)
