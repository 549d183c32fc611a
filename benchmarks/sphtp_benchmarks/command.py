"""The verb ``sphtp bench``: the cost and the rate of channels and streams, beside other systems."""

import click

from sphtp_benchmarks.catalog import CHANNELS, OURS, SEALED
from sphtp_benchmarks.company.command import company
from sphtp_benchmarks.comparison import comparing
from sphtp_benchmarks.flood.command import flood
from sphtp_benchmarks.lockstep.command import lockstep
from sphtp_benchmarks.ordinary.command import ordinary
from sphtp_benchmarks.page import HEAD
from sphtp_benchmarks.recovery.command import recovery
from sphtp_benchmarks.simulated.command import latency
from sphtp_benchmarks.stream.command import stream


@click.group()
def bench() -> None:
    """Measure channels and streams, on this machine and on simulated networks."""


@comparing(CHANNELS, HEAD, default="all, or those of --sealing")
@click.option(
    "--sealing",
    help="Measure only the cost of sealing: sealed channels beside channels in the clear. "
    "Without effect with --system.",
    is_flag=True,
)
def channel(sealing: bool) -> tuple[str, ...] | None:
    """Measure a channel between two processes, and other systems in turn with it.

    The other systems come with pip install --editable '.[bench]'; one that is not installed is
    reported as absent. Exit codes: 0 no measurement failed, 2 usage, 3 a measurement failed,
    130 after Ctrl-C, 143 after SIGTERM.
    """
    return (OURS, SEALED) if sealing else None


for verb in (latency, recovery, company, flood, stream, ordinary, lockstep, channel):
    bench.add_command(verb)
