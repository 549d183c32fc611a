"""Cases of workers in lock step, as data."""

from typing import Final

from sphtp_benchmarks.catalog import (
    Case,
    Catalog,
    Measure,
    System,
    TrafficPattern,
    against,
    cost_of,
)

OURS: Final = "sphtp"
GROUP: Final = "group"
GROUP_VIEWS: Final = "group-views"
CLEAR: Final = "clear"
TCP: Final = "tcp"
ZMQ: Final = "zmq"
ZMQ_UNCOPIED: Final = "zmq-uncopied"
ZENOH: Final = "zenoh"
MPI: Final = "mpi"
MPI_SHM: Final = "mpi_shm"
THEIRS: Final = (TCP, ZMQ, ZMQ_UNCOPIED, ZENOH, MPI, MPI_SHM)


def launcher(transport: str) -> tuple[str, ...]:
    """Return the command of Open MPI that starts workers which send by a transport.

    It starts more processes than there are processors, and processes as root, only with options.
    """
    return (
        *("mpiexec", "--mca", "pml", "ob1", "--mca", "btl", f"{transport},self"),
        *("--oversubscribe", "--allow-run-as-root", "-n"),
    )


SYSTEMS: Final = {
    system.name: system
    for system in (
        System(
            OURS,
            "sealed (encrypted) channels, through shared memory: "
            "`await channel.send(array)`, `await channel.receive()`",
            "sphtp",
            "sphtp",
            module="lockstep",
        ),
        System(
            GROUP,
            "a group over such channels: `await group.exchange(array)`",
            "sphtp",
            "sphtp",
            module="group_lockstep",
        ),
        System(
            GROUP_VIEWS,
            "the same with `array_views`: a received array is read-only, where its sender wrote it",
            "sphtp",
            "sphtp",
            module="group_lockstep",
        ),
        System(CLEAR, "channels without encryption", "sphtp", "sphtp", module="lockstep"),
        System(
            TCP,
            "Trio socket streams, each array preceded by its length; each large array is sent by a "
            "task of its own, since workers that all sent before they received would deadlock",
            "trio",
            "trio",
            module="tcp_lockstep",
        ),
        System(
            ZMQ,
            "ZeroMQ: a PAIR for each other worker, TCP, blocking: `socket.send(array)`, "
            "`frombuffer(socket.recv())`",
            "zmq",
            "pyzmq",
            module="zmq_lockstep",
        ),
        System(
            ZMQ_UNCOPIED,
            "the same with `copy=False`: the program must not change an array until it has been "
            "sent, and a received array is read-only",
            "zmq",
            "pyzmq",
            module="zmq_lockstep",
        ),
        System(
            ZENOH,
            "Zenoh: a key for each other worker, peers on TCP, blocking calls",
            "zenoh",
            "eclipse-zenoh",
            module="zenoh_lockstep",
        ),
        System(
            MPI,
            "MPI by mpi4py, over TCP: `Isend` to all, `Recv` from each",
            "mpi4py",
            "mpi4py",
            module="mpi_lockstep",
            launcher=launcher("tcp"),
        ),
        System(
            MPI_SHM,
            "the same through memory that the processes share",
            "mpi4py",
            "mpi4py",
            module="mpi_lockstep",
            launcher=launcher("sm"),
        ),
    )
}

SIZES: Final = {"4kB": 4_000, "400kB": 400_000}
LARGE: Final = 65_536
"""Bytes from which on pyzmq recommends to send without a copy."""
UNCOPIED: Final = (ZMQ_UNCOPIED, GROUP_VIEWS)
"""The systems that are measured with large arrays only."""

CASES: Final = {
    case.name: case
    for case in (
        Case(
            f"{workers}x{name}",
            f"{workers} workers; each sends an array of {size // 1000} kB to every other at each "
            "step",
            Measure.STEPS,
            size,
            tuple(name for name in SYSTEMS if size >= LARGE or name not in UNCOPIED),
            traffic=TrafficPattern.ALL_TO_ALL,
            workers=workers,
        )
        for workers in (4, 2)
        for name, size in SIZES.items()
    )
}

LOCKSTEP: Final = Catalog(
    "lockstep",
    SYSTEMS,
    CASES,
    against(OURS, THEIRS, CASES.values())
    + cost_of(CLEAR, OURS, CASES.values())
    + cost_of(GROUP, OURS, CASES.values())
    + cost_of(GROUP_VIEWS, OURS, CASES.values()),
)
