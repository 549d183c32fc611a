"""The page of figures in virtual time: a run as Markdown."""

from collections.abc import Iterable, Sequence
from typing import Final

from sphtp_benchmarks.markdown import filled, table
from sphtp_benchmarks.simulated.catalog import EXPERIMENTS, Run
from sphtp_benchmarks.simulated.experiment import Experiment, Finding

TITLE: Final = "# Latency and bottlenecks"
HEAD: Final = """\
Written by `sphtp bench latency --markdown FILE`; not edited by hand. All figures are from simulated
networks in virtual time: with the same random seed, here {seed}, every machine computes the same
figures. The channels are complete, with default settings unless stated otherwise. The
[benchmarks](benchmarks.md) show the further cost of programs and sockets.
"""


def page(run: Run) -> str:
    """Return the whole page."""
    parts = [TITLE, "", filled(HEAD.format(seed=run.seed)), ""]
    for name, findings in run.found.items():
        parts += section(EXPERIMENTS[name], findings)
    return "\n".join(parts).rstrip("\n") + "\n"


def section(experiment: Experiment, findings: Sequence[Finding]) -> Iterable[str]:
    """Yield the lines of one experiment."""
    yield f"## {experiment.title}\n"
    yield filled(experiment.before) + "\n"
    yield from table(experiment.headings, [finding.cells() for finding in findings])
    yield f"\n{filled(experiment.after)}\n"
