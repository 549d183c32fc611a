"""The catalog of measurements: systems, and cases that put some of them side by side."""

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

OURS: Final = "sphtp"
SEALED: Final = "sealed"
PACKETS: Final = "packets"
EXTRA: Final = "pip install --editable '.[bench]'"


class Measure(Enum):
    """The figure in which the systems of a case are compared: a field of ``Figures``."""

    MESSAGES = "messages_per_s"
    BYTES = "mb_per_s"
    ROUND_TRIP = "rtt_p50_us"
    SENDING = "sender_us_per_message"
    TOLD = "told"
    STEPS = "steps_per_s"


class TrafficPattern(Enum):
    """The directions of messages."""

    ONE_WAY = "from one process to the other, none may be missing"
    TO_AND_FRO = "to the other process and back, one at a time"
    TO_MANY = "from one process to all others, where missing messages are counted"
    ALL_TO_ALL = "from every process to every other, step by step"


@dataclass(frozen=True)
class System:
    """A system that carries messages between processes."""

    name: str
    text: str
    package: str  # to import
    distribution: str  # to install
    module: str = ""  # of ``sphtp_benchmarks.systems``, if not that of its name
    launcher: Sequence[str] = ()  # the command that starts all processes, up to their number

    @property
    def installed(self) -> bool:
        """True if its package is installed here, and its launcher if it has one."""
        has_launcher = not self.launcher or find_program(self.launcher[0]) is not None
        return has_launcher and find_spec(self.package) is not None

    @property
    def version(self) -> str | None:
        """The installed version, "unknown" for a checkout; None if it is not installed."""
        try:
            return version(self.distribution) if self.installed else None
        except PackageNotFoundError:
            return "unknown"  # a checkout that is on the path and was never installed

    @property
    def absence(self) -> str:
        """The sentence that names the missing distribution or launcher, and how to install it."""
        has_package = find_spec(self.package) is not None
        missing = self.launcher[0] if has_package and self.launcher else self.distribution
        return f"{missing} is not installed; {EXTRA} brings it"


def find_program(name: str) -> str | None:
    """Return the path of a program, of this Python's environment first; None without one."""
    beside = str(Path(sys.executable).parent)
    return shutil.which(name, path=os.pathsep.join((beside, os.environ.get("PATH", ""))))


@dataclass(frozen=True)
class Case:
    """One kind of traffic, and the systems that carry it in turn."""

    name: str
    text: str
    measure: Measure
    size: int
    systems: tuple[str, ...]
    max_datagram: int | None = None
    other_sizes: Mapping[str, int] = field(default_factory=dict)
    traffic: TrafficPattern = TrafficPattern.ONE_WAY
    receivers: int = 1
    workers: int = 2  # of all to all
    reads_per_s: float | None = None  # by a receiver that pauses; None for one that does not

    def size_for(self, system: str) -> int:
        """Return the bytes of a message; exceptions are named in ``text``."""
        return self.other_sizes.get(system, self.size)


@dataclass(frozen=True)
class Ratio:
    """One median over another, each of a case and a system.

    ``beside`` names the case whose table shows it, and the system of the line, if any do.
    """

    name: str
    measure: Measure
    over: tuple[str, str]
    under: tuple[str, str]
    beside: tuple[str, str] | None = None


@dataclass(frozen=True)
class Catalog:
    """Systems and cases that belong together, and the ratios that compare the systems."""

    name: str
    systems: Mapping[str, System]
    cases: Mapping[str, Case]
    ratios: Sequence[Ratio]


def against(ours: str, theirs: Collection[str], cases: Iterable[Case]) -> list[Ratio]:
    """Return the ratios of ours to each of theirs, in every case that has both: ``case/theirs``."""
    return [
        Ratio(f"{case.name}/{peer}", case.measure, (case.name, ours), line, beside=line)
        for case in cases
        if ours in case.systems
        for peer in case.systems
        if peer in theirs
        for line in [(case.name, peer)]
    ]


def cost_of(variant: str, ours: str, cases: Iterable[Case]) -> list[Ratio]:
    """Return the ratios of a variant to ours, in every case that has both: ``variant/case``."""
    return [
        Ratio(f"{variant}/{case.name}", case.measure, (case.name, variant), (case.name, ours))
        for case in cases
        if {ours, variant} <= set(case.systems)
    ]


SYSTEMS: Final = {
    system.name: system
    for system in (
        System(
            "sphtp",
            "a channel in the clear: reliable, in order; `send_many`, and `send` for round trips",
            "sphtp",
            "sphtp",
        ),
        System("sealed", "the same, sealed with AES-256-GCM, the default", "sphtp", "sphtp"),
        System(
            PACKETS,
            "the same as `sealed` without shared memory, as between two machines",
            "sphtp",
            "sphtp",
            module="sphtp",
        ),
        System("enet", "ENet through pyenet: reliable packets on one channel", "enet", "pyenet"),
        System("zeromq", "ZeroMQ: PUSH to PULL, PAIR for round trips, TCP", "zmq", "pyzmq"),
        System("tcp", "Trio socket streams, each message preceded by its length", "trio", "trio"),
        System(
            "aioquic",
            "a QUIC stream, each message preceded by its length; encrypted, as QUIC always is",
            "aioquic",
            "aioquic",
        ),
        System("pynng", "nng: Push0 to Pull0, Pair0 for round trips, TCP", "pynng", "pynng"),
        System("udp", "Trio UDP sockets alone, without repair of losses", "trio", "trio"),
    )
}

_RELIABLE = ("sphtp", "sealed", "enet", "zeromq", "tcp", "aioquic", "pynng")

CASES: Final = {
    case.name: case
    for case in (
        Case("64B", "Messages of 64 bytes, one way", Measure.MESSAGES, 64, _RELIABLE),
        Case(
            "64KiB",
            "Messages of 64 KiB, one way; of 32 KiB with ENet, whose window is 64 KiB",
            Measure.BYTES,
            65_536,
            (*_RELIABLE, PACKETS),
            other_sizes={"enet": 32_768},
        ),
        Case(
            "1200",
            "Messages of 64 KiB, one way, in datagrams of at most 1200 bytes",
            Measure.BYTES,
            65_536,
            ("sphtp", "sealed", "aioquic"),
            max_datagram=1200,
        ),
        Case(
            "rtt",
            "A message of 64 bytes and its answer, one at a time",
            Measure.ROUND_TRIP,
            64,
            (*_RELIABLE, PACKETS, "udp"),
            traffic=TrafficPattern.TO_AND_FRO,
        ),
    )
}

# Ours is in the clear there, as most of theirs are; ``sealed/...`` gives the cost of sealing. Above
# one is good for us where a case measures a rate, and bad for round trips.
CHANNELS: Final = Catalog(
    "channel",
    SYSTEMS,
    CASES,
    against(OURS, SYSTEMS.keys() - {OURS, SEALED, PACKETS}, CASES.values())
    + cost_of(SEALED, OURS, CASES.values())
    + cost_of(PACKETS, OURS, CASES.values()),
)
