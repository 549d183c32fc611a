"""The board of a cluster run: what every process is and what it said last.

It only remembers. Displays draw it, ``outcome`` judges it, and ``news`` holds the happenings that a
person wants to read as they come.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from signal import Signals
from typing import Any

from sphtp_client.simulation.reports import (
    Connected,
    Failed,
    Finished,
    LinkReport,
    PeerGone,
    ProcessEvent,
    Result,
    ServerCame,
    ServerLost,
    Started,
    StepProgress,
)

NOT_STARTED = 127  # what a shell says of a command that it cannot run


class ProcessRole(Enum):
    """What a process of the cluster is for."""

    SERVER = "server"
    CLIENT = "client"
    REFERENCE = "reference"


@dataclass(frozen=True)
class ProcessExit:
    """How a process ended; ``asked`` says that we had told it to."""

    code: int
    asked: bool

    def __str__(self) -> str:
        if self.code < 0:
            return f"killed by {_signal_name(-self.code)}"
        return f"exit code {self.code}"


@dataclass
class ProcessStatus:
    """One process: who it is, how far it is, how it ended."""

    name: str
    role: ProcessRole
    slab: int | None = None
    pid: int | None = None
    id: int | None = None
    address: str | None = None
    step: int = 0
    steps_per_s: float = 0.0
    servers: tuple[int, ...] = ()
    links: tuple[LinkReport, ...] = ()
    result: Result | None = None
    finished: bool = False
    failure: str | None = None
    left: tuple[PeerGone, ...] = ()
    exit: ProcessExit | None = None
    garbage: int = 0
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=20))

    @property
    def alive(self) -> bool:
        """Whether the process was started and has not ended."""
        return self.pid is not None and self.exit is None


class RunStatus:
    """Every seat by name, in the order they were taken."""

    def __init__(self) -> None:
        self.seats: dict[str, ProcessStatus] = {}
        self.news: deque[str] = deque()
        self._hear: Mapping[type[Any], Callable[[ProcessStatus, Any], None]] = {
            Started: self._started,
            Connected: self._connected,
            ServerCame: self._servers_changed,
            ServerLost: self._servers_changed,
            StepProgress: self._progress,
            PeerGone: self._peer_left,
            Result: self._result,
            Finished: self._finished,
            Failed: self._failed,
        }

    def take(self, name: str, role: ProcessRole, *, slab: int | None = None) -> ProcessStatus:
        """Add a process that is about to start."""
        seat = self.seats[name] = ProcessStatus(name, role, slab)
        return seat

    @property
    def is_ending(self) -> bool:
        """Whether a process has ended because we had told it to."""
        return any(seat.exit is not None and seat.exit.asked for seat in self.seats.values())

    def of(self, role: ProcessRole) -> list[ProcessStatus]:
        """Return the seats of one role."""
        return [seat for seat in self.seats.values() if seat.role is role]

    def spawned(self, name: str, pid: int) -> None:
        """Note the process id."""
        self.seats[name].pid = pid
        self.news.append(f"{name}: pid {pid}")

    def not_started(self, name: str, reason: str) -> None:
        """Note a process that could not be spawned."""
        seat = self.seats[name]
        seat.failure = f"cannot be started: {reason}"
        seat.exit = ProcessExit(NOT_STARTED, asked=False)
        self.news.append(f"{name}: {seat.failure}")

    def heard(self, name: str, event: ProcessEvent) -> None:
        """Note what a process said."""
        self._hear[type(event)](self.seats[name], event)

    def garbled(self, name: str) -> None:
        """Count a line that was no event."""
        self.seats[name].garbage += 1

    def complained(self, name: str, line: str) -> None:
        """Keep a line of standard error; the last ones explain a failure."""
        self.seats[name].errors.append(line)

    def exited(self, name: str, code: int, *, asked: bool) -> None:
        """Note how a process ended."""
        seat = self.seats[name]
        seat.exit = ProcessExit(code, asked)
        if code != 0 and not asked:
            self.news.append(f"{name}: pid {seat.pid} ended, {seat.exit}")

    def _started(self, seat: ProcessStatus, event: Started) -> None:
        seat.id, seat.address = event.id, f"{event.pub},{event.sub}"
        self.news.append(f"{seat.name}: pid {seat.pid} id {event.id:#010x} listens on {event.pub}")

    def _connected(self, seat: ProcessStatus, event: Connected) -> None:
        seat.id, seat.servers = event.id, event.servers
        self.news.append(
            f"{seat.name}: pid {seat.pid} id {event.id:#010x} connected, slab {event.slab}"
        )

    def _servers_changed(self, seat: ProcessStatus, event: ServerCame | ServerLost) -> None:
        seat.servers = event.servers

    def _progress(self, seat: ProcessStatus, event: StepProgress) -> None:
        if seat.step == 0 and event.step > 0:
            self.news.append(f"{seat.name}: running")
        seat.step, seat.steps_per_s = event.step, event.steps_per_s or 0.0
        seat.servers, seat.links = event.servers, event.links

    def _peer_left(self, seat: ProcessStatus, event: PeerGone) -> None:
        seat.left = (*seat.left, event)
        self.news.append(f"{seat.name}: {event}")

    def _result(self, seat: ProcessStatus, event: Result) -> None:
        seat.result = event

    def _finished(self, seat: ProcessStatus, event: Finished) -> None:
        seat.finished, seat.step = True, event.steps
        seat.links = event.links or seat.links
        self.news.append(f"{seat.name}: {event.steps} steps in {event.seconds:.1f} s")

    def _failed(self, seat: ProcessStatus, event: Failed) -> None:
        seat.failure = event.message
        if not seat.left:  # otherwise it has just been told
            self.news.append(f"{seat.name}: {event.message}")


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
