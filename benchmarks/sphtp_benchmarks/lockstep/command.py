"""The verb ``sphtp bench lockstep``: workers in lock step, beside other systems."""

from typing import Final

import click

from sphtp_benchmarks.comparison import comparing
from sphtp_benchmarks.lockstep.catalog import CLEAR, LOCKSTEP, SYSTEMS

HEAD: Final = """\
# Benchmarks of workers in lock step

Written by one run of `sphtp bench lockstep --markdown FILE`; not edited by hand.

Two or four processes on one machine. At each step, each process sends one NumPy array of floats to
each other process, then waits for an array from each. The code is ordinary, with one call for each
array, or for a group one for each step. A step is over when all processes have all arrays. The
systems take turns, and each round begins with another system. CPU per step is the processor time of
all workers together. With more workers than processors, it determines the rate.

A channel returns arrays with type and shape. MPI fills arrays that the worker has made before. The
other systems carry bytes, and the worker has to know the type and shape. ZeroMQ and Zenoh send and
receive in their own threads, which are written in C++ and Rust.
"""


@comparing(LOCKSTEP, HEAD, default="all but clear")
@click.option(
    "--clear",
    help="Measure channels in the clear as well. Without effect with --system.",
    is_flag=True,
)
def lockstep(clear: bool) -> list[str]:
    """Measure workers in lock step that exchange arrays, all to all, and other systems in turn.

    The other systems come with pip install --editable '.[bench]'; one that is not installed is
    reported as absent. Exit codes: 0 no measurement failed, 2 usage, 3 a measurement failed,
    130 after Ctrl-C, 143 after SIGTERM.
    """
    return [system for system in SYSTEMS if clear or system != CLEAR]
