"""The measurements of streams, as data."""

from typing import Final

from sphtp_benchmarks.catalog import (
    Case,
    Catalog,
    Measure,
    Ratio,
    System,
    TrafficPattern,
    against,
    cost_of,
)

OURS: Final = "sphtp"
CLEAR: Final = "clear"
UNHELD: Final = "unheld"

SYSTEMS: Final = {
    system.name: system
    for system in (
        System(
            OURS,
            "a stream by unicast with recovery, flow control and AES-256-GCM",
            "sphtp",
            "sphtp",
            module="stream",
        ),
        System(CLEAR, "the same in the clear", "sphtp", "sphtp", module="stream"),
        System(
            UNHELD,
            "sealed, with `flow_window=0`: the source waits for no receiver",
            "sphtp",
            "sphtp",
            module="stream",
        ),
        System("zeromq", "ZeroMQ: PUB to SUB, TCP", "zmq", "pyzmq"),
        System(
            "zeromq-waits",
            "the same with `XPUB_NODROP`: the publisher waits for its slowest subscriber",
            "zmq",
            "pyzmq",
            module="zeromq",
        ),
        System("pynng", "nng: Pub0 to Sub0, TCP", "pynng", "pynng"),
    )
}

THEIRS: Final = ("zeromq", "zeromq-waits", "pynng")

CASES: Final = {
    case.name: case
    for case in (
        Case(
            "64B",
            "Messages of 64 bytes to one receiver",
            Measure.MESSAGES,
            64,
            (OURS, CLEAR, *THEIRS),
            traffic=TrafficPattern.TO_MANY,
        ),
        Case(
            "1400",
            "Messages of 64 bytes to one receiver, in datagrams of at most 1400 bytes",
            Measure.MESSAGES,
            64,
            (OURS, CLEAR),
            max_datagram=1400,
            traffic=TrafficPattern.TO_MANY,
        ),
        Case(
            "8KiB",
            "Messages of 8 KiB to one receiver",
            Measure.BYTES,
            8192,
            (OURS, CLEAR, *THEIRS),
            traffic=TrafficPattern.TO_MANY,
        ),
        Case(
            "fanout8",
            "Messages of 64 bytes to eight receivers, each in a process of its own",
            Measure.SENDING,
            64,
            (OURS, CLEAR, *THEIRS),
            traffic=TrafficPattern.TO_MANY,
            receivers=8,
        ),
        Case(
            "slow",
            "Messages of 1 KiB, as fast as the system lets the sender, to a receiver that reads "
            "20,000 a second: it reads 2000 at once, then its thread sleeps",
            Measure.TOLD,
            1024,
            (OURS, UNHELD, *THEIRS),
            traffic=TrafficPattern.TO_MANY,
            reads_per_s=20_000,
        ),
    )
}

FANOUT: Final = [
    Ratio(
        "fanout8/1" if system == OURS else f"fanout8/1/{system}",
        Measure.SENDING,
        over=("fanout8", system),
        under=("64B", system),
        beside=("fanout8", system),
    )
    for system in CASES["fanout8"].systems
]

_COMPARED: Final = [case for case in CASES.values() if case.name != "fanout8"]

STREAMS: Final = Catalog(
    "stream",
    SYSTEMS,
    CASES,
    against(OURS, THEIRS, _COMPARED) + cost_of(CLEAR, OURS, _COMPARED) + FANOUT,
)
