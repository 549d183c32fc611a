"""Fuzz one target after the other: `python -m tests.fuzz.run`, or `make fuzz`.

Says how many inputs each was given, and all together. Ends with 1 when one of them found something;
the input that did it is kept, and the command that runs it again is printed.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from tests.fuzz.starts import starts
from tests.fuzz.targets import CORPUS, TARGETS

ROOT: Final = Path(__file__).resolve().parents[2]
DEN: Final = ROOT / ".fuzz"
"""What a run leaves behind: inputs that reach something, by target, and findings."""

LONGEST_INPUT: Final = 1024
HANGS_AFTER: Final = 30
"""Seconds within which a target must be done with an input."""

MOST_MEMORY: Final = 2048
"""MiB that a process may take."""

INPUTS: Final = re.compile(r"^stat::number_of_executed_units: +(\d+)", re.MULTILINE)


@click.command()
@click.option("--seconds", default=60, show_default=True, help="For each target.")
@click.option("--runs", default=-1, help="Inputs for each target; by default as many as it can.")
@click.option("--targets", default="", help="Names, or parts of them; by default all.")
@click.option("--seed", default=0, help="The fuzzer's; 0 draws one.")
def run(seconds: int, runs: int, targets: str, seed: int) -> None:
    """Fuzz targets, one after the other."""
    counts: dict[str, int] = {}
    findings: list[str] = []
    for name in chosen(targets):
        counts[name], output = fuzz(name, seconds, runs, seed)
        found = sorted(path for path in (DEN / "findings" / name).glob("*"))
        fresh = [f"{name}: {path.relative_to(ROOT)}" for path in found if path.name in output]
        click.echo(f"{name:24} {counts[name]:>12,} inputs{', a finding' if fresh else ''}")
        if fresh or not INPUTS.search(output):
            click.echo(output[-4000:], err=True)
            findings += fresh or [f"{name}: it ended without a word"]
    click.echo(f"{'all':24} {sum(counts.values()):>12,} inputs")
    for finding in findings:
        name, _, path = finding.partition(": ")
        click.echo(f"{finding}\n  again: .venv/bin/python -m tests.fuzz.replay {name} {path}")
    sys.exit(bool(findings))


def chosen(targets: str) -> Iterator[str]:
    """Yield the targets that are named, in their order; raises ``click.BadParameter``."""
    wanted = targets.replace(",", " ").split()
    for part in wanted:
        if not any(part in name for name in TARGETS):
            raise click.BadParameter(f"no target is called {part}; there are {', '.join(TARGETS)}")
    return (name for name in TARGETS if not wanted or any(part in name for part in wanted))


def fuzz(name: str, seconds: int, runs: int, seed: int) -> tuple[int, str]:
    """Fuzz a target in a process of its own; return how many inputs it was given, and its words."""
    work, findings = DEN / "corpus" / name, DEN / "findings" / name
    for folder in (work, findings):
        folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(starts(name)):
        (work / f"start-{number}").write_bytes(data)
    arguments = [
        f"-max_total_time={seconds}",
        f"-runs={runs}",
        f"-seed={seed}",
        f"-max_len={LONGEST_INPUT}",
        "-len_control=0",
        f"-timeout={HANGS_AFTER}",
        f"-rss_limit_mb={MOST_MEMORY}",
        "-print_final_stats=1",
        f"-artifact_prefix={findings}/",
    ]
    # The first folder takes what is new; the others are only read.
    folders = [str(folder) for folder in (work, CORPUS / name) if folder.is_dir()]
    command = [sys.executable, "-m", "tests.fuzz.guided", name, *arguments, *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    output = (done.stdout + done.stderr).decode(errors="replace")
    match = INPUTS.search(output)
    return int(match[1]) if match else 0, output


if __name__ == "__main__":
    run()
