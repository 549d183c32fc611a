"""The verb ``sphtp bench latency``: figures in virtual time."""

import json as json_format
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from sphtp_benchmarks.options import as_json, seed_of_network, to_markdown
from sphtp_benchmarks.simulated.catalog import EXPERIMENTS, Run
from sphtp_benchmarks.simulated.experiment import Experiment, SimulatedTrial
from sphtp_benchmarks.simulated.page import page


@click.command()
@click.option(
    "--case",
    "cases",
    help="An experiment to make; repeatable. Default: all.",
    type=click.Choice(list(EXPERIMENTS)),
    multiple=True,
)
@seed_of_network
@to_markdown
@as_json
def latency(cases: tuple[str, ...], seed: int, markdown: Path | None, json: bool) -> None:
    """Measure the latency of messages on simulated networks.

    The time is virtual: the same seed gives the same figures on every machine, whatever its load.
    All experiments together take a minute or two. Exit codes: 0 done, 1 after Ctrl-C, 2 usage.
    """
    run, progress = Run(seed), Console(stderr=True)

    def starting(experiment: Experiment, trial: SimulatedTrial) -> None:
        if not json:
            progress.print(f"{experiment.name}: {trial.name}", highlight=False)

    run.make(cases or tuple(EXPERIMENTS), starting)
    if markdown is not None:
        markdown.write_text(page(run), encoding="utf-8")
    if json:
        print(json_format.dumps(run.document(), indent=2))
    else:
        show(run, Console())


def show(run: Run, console: Console) -> None:
    """Print one table per experiment."""
    for name, findings in run.found.items():
        experiment = EXPERIMENTS[name]
        table = Table(title=experiment.title, title_justify="left")
        for at, heading in enumerate(experiment.headings):
            table.add_column(heading, justify="right" if at else "left")
        for finding in findings:
            table.add_row(*finding.cells())
        console.print(table, "", sep="\n")
