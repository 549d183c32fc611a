"""A run on a terminal: its progress, and its results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from sphtp_benchmarks.figures import Sheet
from sphtp_benchmarks.pair import Measurement
from sphtp_benchmarks.rounds import Plan
from sphtp_benchmarks.text import caption, remarks, table_of


@contextmanager
def progress(
    plan: Plan, console: Console, *, quiet: bool
) -> Iterator[Callable[[int, Measurement], None]]:
    """Show the progress of a run. Yield the function to call for each step.

    A terminal gets a bar. Anything else gets a line for each step, or nothing if ``quiet``.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    total = plan.rounds * len(list(plan.tasks(1)))
    disabled = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disabled) as bar:
        line = bar.add_task("starting", total=total, completed=-1)

        def starting(number: int, task: Measurement) -> None:
            text = f"round {number}/{plan.rounds}  {task.case} {task.system}"
            bar.update(line, description=text, advance=1)
            if disabled and not quiet:
                console.print(text, highlight=False)

        yield starting


def show(sheet: Sheet, console: Console) -> None:
    """Print a table for each case that was measured, and the absent systems and failures."""
    for name, case in sheet.catalog.cases.items():
        lines = table_of(name, sheet)
        if not lines:
            continue
        table = Table(title=f"{name}: {case.text}", title_justify="left")
        for at, heading in enumerate(lines[0]):
            table.add_column(heading, justify="right" if at else "left")
        for line in lines[1:]:
            table.add_row(*line)
        console.print(table, caption(name, sheet, lines[0]), "", sep="\n")
    for remark in remarks(sheet):
        console.print(remark, markup=False, highlight=False, soft_wrap=True)
