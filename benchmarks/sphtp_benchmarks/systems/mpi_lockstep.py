"""Workers of MPI, by mpi4py: ``mpiexec -n 4 python -m ...systems.mpi_lockstep TASK``.

The launcher starts them, and gives the standard input of the parent to the first one alone. If
that one ends before it has finalized MPI, the launcher ends the others.
"""

import sys
import threading
from dataclasses import replace

import numpy

from sphtp_benchmarks.lockstep.steps import Steps
from sphtp_benchmarks.meters import end_with_stdin, say, stay
from sphtp_benchmarks.process_task import ProcessTask


def main() -> None:
    """Keep step with the others; the first one reports for all."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.rank == 0:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    part = replace(ProcessTask.read(sys.argv[1]), number=world.rank)
    others = [rank for rank in range(world.size) if rank != world.rank]
    steps = Steps(part)
    into = numpy.empty(part.size // 8)
    for array in steps:
        requests = [world.Isend(array, dest=rank) for rank in others]
        for rank in others:
            world.Recv(into, source=rank)
            steps.take(into)
        MPI.Request.Waitall(requests)
    reports = world.gather(steps.report())
    if reports is not None:
        for report in reports:
            say(**report)
    stay()


if __name__ == "__main__":
    main()
