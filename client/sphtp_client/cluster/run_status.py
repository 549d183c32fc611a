"""The status of a cluster run: the role of every process, and its last report.

The status only stores facts, and lines for people in ``notices``. ``display`` draws it, and
``outcome`` judges it.
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
    PageLimited,
    PeerGone,
    Placed,
    ProcessEvent,
    Result,
    ServerCame,
    ServerLost,
    Started,
    StepProgress,
    parse_event,
)

NOT_STARTED = 127  # the exit code of a shell for a command that it does not find
LOST = 255  # the exit code of ssh when the other machine is gone


class ProcessRole(Enum):
    """The role of a process in the cluster."""

    SERVER = "server"
    CLIENT = "client"
    REFERENCE = "reference"
    PROGRAM = "program"


@dataclass(frozen=True)
class ProcessExit:
    """The end of a process; ``asked`` is True if the supervisor ended it."""

    code: int
    asked: bool

    def __str__(self) -> str:
        if self.code < 0:
            return f"killed by {_signal_name(-self.code)}"
        return f"exit code {self.code}"


@dataclass
class ProcessStatus:
    """The status of one process: its name, its reports, and its end."""

    name: str
    role: ProcessRole
    slab: int | None = None
    pid: int | None = None
    place: str | None = None
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
        """True if the process was started and has not ended."""
        return self.pid is not None and self.exit is None

    @property
    def is_lost(self) -> bool:
        """True if the process did not end by itself: a signal killed it, or its machine is gone.

        It is False if the supervisor ended the process.
        """
        if self.exit is None or self.exit.asked:
            return False
        return self.exit.code < 0 or self.exit.code == LOST


class RunStatus:
    """The status of every process by name, in the order of their first starts."""

    def __init__(self) -> None:
        self.processes: dict[str, ProcessStatus] = {}
        self.notices: deque[str] = deque()
        self.standing: dict[str, Any] | None = None
        """The addresses, the secret's file and the variables for programs of the user.

        None if the run has clients, and until its servers listen.
        """
        self.page: str | None = None
        """The address of the page; None without one."""
        self.replaced: list[str] = []
        """A sentence for each lost process that was replaced."""
        self._note: Mapping[type[Any], Callable[[ProcessStatus, Any], None]] = {
            Placed: self._placed,
            Started: self._started,
            Connected: self._connected,
            ServerCame: self._servers_changed,
            ServerLost: self._servers_changed,
            StepProgress: self._progress,
            PageLimited: self._page_limited,
            PeerGone: self._peer_left,
            Result: self._result,
            Finished: self._finished,
            Failed: self._failed,
        }

    def take(self, name: str, role: ProcessRole, *, slab: int | None = None) -> ProcessStatus:
        """Add a process that is about to start, in place of an earlier one of this name."""
        process = self.processes[name] = ProcessStatus(name, role, slab)
        return process

    @property
    def is_ending(self) -> bool:
        """True if the supervisor has ended a process: at the end of the run, or to replace it."""
        return any(
            process.exit is not None and process.exit.asked for process in self.processes.values()
        )

    def of(self, role: ProcessRole) -> list[ProcessStatus]:
        """Return the processes of one role."""
        return [process for process in self.processes.values() if process.role is role]

    # These methods take the process, not its name, which its replacement may have.

    def spawned(self, process: ProcessStatus, pid: int) -> None:
        """Note the process id."""
        process.pid = pid
        self.notices.append(f"{process.name}: pid {pid}")

    def not_started(self, process: ProcessStatus, reason: str) -> None:
        """Note a process that could not be spawned."""
        process.failure = f"cannot be started: {reason}"
        process.exit = ProcessExit(NOT_STARTED, asked=False)
        self.notices.append(f"{process.name}: {process.failure}")

    def note_line(self, process: ProcessStatus, line: bytes) -> None:
        """Record the event in a line of standard output, or count a line without an event."""
        event = parse_event(line)
        if event is None:
            process.garbage += 1
        else:
            self.note_event(process, event)

    def note_event(self, process: ProcessStatus, event: ProcessEvent) -> None:
        """Record a report of a process."""
        self._note[type(event)](process, event)

    def note_error_line(self, process: ProcessStatus, line: str) -> None:
        """Store a line of standard error; the last lines explain a failure."""
        process.errors.append(line)

    def exited(self, process: ProcessStatus, code: int, *, asked: bool) -> None:
        """Record the end of a process."""
        process.exit = ProcessExit(code, asked)
        if code != 0 and not asked:
            self.notices.append(f"{process.name}: pid {process.pid} ended, {process.exit}")

    def lost(self, process: ProcessStatus, reason: str, *, asked: bool) -> None:
        """Record that a process is lost with its machine or worker."""
        process.failure = reason
        process.exit = ProcessExit(LOST, asked)
        if not asked:
            self.notices.append(f"{process.name}: lost, {reason}")

    def _placed(self, process: ProcessStatus, event: Placed) -> None:
        process.place, process.pid = event.host, event.pid
        self.notices.append(f"{process.name}: pid {event.pid} on {event.host}")

    def _started(self, process: ProcessStatus, event: Started) -> None:
        process.id, process.address = event.id, f"{event.pub},{event.sub}"
        self.notices.append(
            f"{process.name}: pid {process.pid} id {event.id:#010x} listens on {event.pub}"
            f"{_metrics(event.metrics)}"
        )

    def _connected(self, process: ProcessStatus, event: Connected) -> None:
        process.id, process.servers = event.id, event.servers
        self.notices.append(
            f"{process.name}: pid {process.pid} id {event.id:#010x} connected, slab {event.slab}"
            f"{_metrics(event.metrics)}"
        )

    def _servers_changed(self, process: ProcessStatus, event: ServerCame | ServerLost) -> None:
        process.servers = event.servers

    def _progress(self, process: ProcessStatus, event: StepProgress) -> None:
        if process.step == 0 and event.step > 0:
            self.notices.append(f"{process.name}: running")
        process.step, process.steps_per_s = event.step, event.steps_per_s or 0.0
        process.servers, process.links = event.servers, event.links

    def _page_limited(self, process: ProcessStatus, event: PageLimited) -> None:
        self.notices.append(f"{process.name}: {event}")

    def _peer_left(self, process: ProcessStatus, event: PeerGone) -> None:
        process.left = (*process.left, event)
        self.notices.append(f"{process.name}: {event}")

    def _result(self, process: ProcessStatus, event: Result) -> None:
        process.result = event

    def _finished(self, process: ProcessStatus, event: Finished) -> None:
        process.finished, process.step = True, event.steps
        process.links = event.links or process.links
        self.notices.append(f"{process.name}: {event.steps} steps in {event.seconds:.1f} s")

    def _failed(self, process: ProcessStatus, event: Failed) -> None:
        process.failure = event.message
        if not process.left:  # otherwise the notice about the lost peer contains it
            self.notices.append(f"{process.name}: {event.message}")


def _metrics(url: str | None) -> str:
    return "" if url is None else f", metrics at {url}"


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
