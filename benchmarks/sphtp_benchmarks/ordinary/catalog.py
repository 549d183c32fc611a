"""Cases of one message per call, as data."""

from typing import Final

from sphtp_benchmarks.catalog import Case, Catalog, Measure, Ratio, System, against

OURS: Final = "sphtp"
TCP: Final = "tcp"
ZMQ_ASYNCIO: Final = "zmq_asyncio"

ORDINARY_CASE: Final = "ordinary"
NOWAIT: Final = "nowait"
TASKS: Final = "tasks"
SENDERS: Final = 4
"""Tasks that send on one channel in the case ``tasks``."""

SYSTEMS: Final = {
    system.name: system
    for system in (
        System(
            OURS,
            "a sealed channel: `await channel.send(x)` and `async for x in channel`",
            "sphtp",
            "sphtp",
            module="ordinary",
        ),
        System(
            TCP,
            "Trio socket streams: `await stream.send_all(length + x)` for each message",
            "trio",
            "trio",
            module="tcp_each",
        ),
        System(
            ZMQ_ASYNCIO,
            "ZeroMQ on asyncio, PUSH to PULL, TCP: `await socket.send(x)`, `await socket.recv()`",
            "zmq",
            "pyzmq",
        ),
    )
}

CASES: Final = {
    case.name: case
    for case in (
        Case(
            ORDINARY_CASE,
            "Messages of 64 bytes, one awaited call for each",
            Measure.MESSAGES,
            64,
            (OURS, TCP, ZMQ_ASYNCIO),
        ),
        Case(
            NOWAIT,
            "The same with `send_nowait`, and an awaited call where that would block",
            Measure.MESSAGES,
            64,
            (OURS, TCP),
        ),
        Case(
            TASKS,
            f"The same from {SENDERS} tasks on one channel, one awaited call for each message",
            Measure.MESSAGES,
            64,
            (OURS,),
        ),
    )
}

ORDINARY: Final = Catalog(
    "ordinary",
    SYSTEMS,
    CASES,
    [
        *against(OURS, (TCP, ZMQ_ASYNCIO), CASES.values()),
        Ratio(
            f"{TASKS}/{ORDINARY_CASE}",
            Measure.MESSAGES,
            over=(TASKS, OURS),
            under=(ORDINARY_CASE, OURS),
            beside=(TASKS, OURS),
        ),
    ],
)
