"""Measure the start of SphTP: CPU time and memory of fresh processes that import it.

Each case runs in processes of its own, in turn with the others, so that a disturbance of the
machine disturbs all of them alike. A case's figure is its median. The ratio to Trio's is comparable
between machines. The compiled bytecode is there beforehand, as in an installed package.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

CASES: Final[Mapping[str, str]] = {
    "nothing": "",
    "trio": "import trio",
    "sphtp": "import sphtp",
    "a node": "from sphtp import open_channel, open_node; from sphtp.security import Security",
    "a client": "from sphtp import open_client",
    "a server": "from sphtp import open_server",
    "every name": "from sphtp import *",
}

REPORT: Final = """
import resource
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""


def start(program: str) -> tuple[float, float]:
    """Return the CPU seconds, and the most memory in MiB, of a fresh process for a program."""
    run = subprocess.run(
        [sys.executable, "-c", program + REPORT],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[1],
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""},
    )
    seconds, memory = map(float, run.stdout.split())
    return seconds, memory


@click.command()
@click.option("--runs", default=25, show_default=True, help="Processes for each case.")
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of lines.")
def main(*, runs: int, as_json: bool) -> None:
    """Print CPU time and memory of each case; the lines also have their ratios to Trio's."""
    found: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
    for program in CASES.values():
        start(program)  # the first one compiles what is not compiled yet
    for _ in range(runs):
        for case, program in CASES.items():
            found[case].append(start(program))
    medians = {
        case: tuple(statistics.median(column) for column in zip(*rows, strict=True))
        for case, rows in found.items()
    }
    if as_json:
        click.echo(json.dumps(medians))
        return
    trio_seconds, trio_memory = medians["trio"]
    click.echo(f"{'':12} {'CPU':>8} {'of Trio':>8} {'memory':>10} {'of Trio':>8}")
    for case, (seconds, memory) in medians.items():
        click.echo(
            f"{case:12} {seconds * 1000:5.0f} ms {seconds / trio_seconds:8.2f} "
            f"{memory:6.1f} MiB {memory / trio_memory:8.2f}"
        )


if __name__ == "__main__":
    main()
