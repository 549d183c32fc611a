"""The reports of a simulation process: JSON objects, one per line, or lines for people.

``sphtp client --json`` writes these records on standard output, and ``sphtp cluster`` reads
them. The log of a server in JSON has ``Started``, and ``cluster.place`` writes ``Placed``. A reader
ignores lines that are not such records, and unknown keys.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Protocol, TextIO

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sphtp_client.program import write_line


class EventRecord(BaseModel):
    """The base of all events, which ignores unknown keys of later versions."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class LinkReport(EventRecord):
    """The figures of one channel from this side.

    ``sent``, ``received`` and ``lost`` count packets, ``resent`` messages and fragments. ``rtt_ms``
    is the smoothed round trip in ms; None before the first sample.
    """

    peer: int
    slab: int
    sent: int
    received: int
    lost: int
    resent: int
    rtt_ms: float | None = None


class Totals(EventRecord):
    """The number of spheres, their energy in J, and their momentum in kg m/s."""

    count: int
    energy: float
    momentum: tuple[float, ...]


class Placed(EventRecord):
    """The event that an engine has placed a process on a machine; the first of the process."""

    event: Literal["placed"] = "placed"
    host: str
    pid: int


class Started(EventRecord):
    """The event that a server listens; ``pub`` and ``sub`` are its two URLs, with actual ports.

    ``metrics`` is the URL of its metrics; None if it serves none.
    """

    event: Literal["started"] = "started"
    id: int
    pub: str
    sub: str
    metrics: str | None = None


class Connected(EventRecord):
    """The event that all servers have acknowledged a client.

    ``metrics`` is the URL of its metrics, and ``page`` the URL of its page; None without them.
    """

    event: Literal["connected"] = "connected"
    id: int
    slab: int
    slabs: int
    servers: tuple[int, ...] = ()
    metrics: str | None = None
    page: str | None = None


class ServerCame(EventRecord):
    """The event that a further server has joined; ``servers`` are the ids of all live servers."""

    event: Literal["server_came"] = "server_came"
    id: int
    servers: tuple[int, ...] = ()


class ServerLost(EventRecord):
    """The event that a server left or expired; ``servers`` are the ids of those that remain."""

    event: Literal["server_lost"] = "server_lost"
    id: int
    reason: str
    servers: tuple[int, ...] = ()


class StepProgress(EventRecord):
    """The event of a slab's progress; ``servers`` are the ids of all live servers.

    The first report has no speed, which needs two reports.
    """

    event: Literal["progress"] = "progress"
    step: int
    steps: int
    steps_per_s: float | None = None
    servers: tuple[int, ...] = ()
    links: tuple[LinkReport, ...] = ()


class PageLimited(EventRecord):
    """The event that the page of a client shows only a part of the cluster, with the reason."""

    event: Literal["page_limited"] = "page_limited"
    reason: str

    def __str__(self) -> str:
        return f"the page shows only a part: {self.reason}"


class PeerGone(EventRecord):
    """The event that a peer of this run is gone, with the reason."""

    event: Literal["peer_left"] = "peer_left"
    slab: int
    id: int
    reason: str

    def __str__(self) -> str:
        return f"slab {self.slab} (id {self.id:#010x}) left: {self.reason}"


class Result(EventRecord):
    """The digest of all spheres at the end, and their totals at the start and at the end.

    Slab 0 reports it, or a client that is alone.
    """

    event: Literal["result"] = "result"
    steps: int
    seconds: float
    state_sha256: str
    start: Totals
    end: Totals


class Finished(EventRecord):
    """The last event of a successful run: a slab has done all steps and closed its channels."""

    event: Literal["finished"] = "finished"
    steps: int
    seconds: float
    links: tuple[LinkReport, ...] = ()


class Failed(EventRecord):
    """The last event of a run that failed."""

    event: Literal["failed"] = "failed"
    message: str


ProcessEvent = (
    Placed
    | Started
    | Connected
    | ServerCame
    | ServerLost
    | StepProgress
    | PageLimited
    | PeerGone
    | Result
    | Finished
    | Failed
)

_EVENT: TypeAdapter[ProcessEvent] = TypeAdapter(
    Annotated[ProcessEvent, Field(discriminator="event")]
)


def parse_event(line: bytes) -> ProcessEvent | None:
    """Return the event in a line; None if the line is not an event."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return _EVENT.validate_json(line)
    except ValidationError:
        return None


class Reporter(Protocol):
    """The interface of reporters of a run.

    ``progress_every`` is the time between two reports of progress, in seconds.
    """

    progress_every: float

    def report(self, event: ProcessEvent) -> None:
        """Write one event."""
        ...


class JsonReporter:
    """A reporter that writes one JSON object per line."""

    progress_every = 0.5

    def __init__(self, output: TextIO, _errors: TextIO) -> None:
        self._output = output

    def report(self, event: ProcessEvent) -> None:
        """Write the event as a JSON object, in one line."""
        write_line(self._output, event.model_dump_json())


class TextReporter:
    """A reporter that writes lines for people, and failures to standard error."""

    progress_every = 2.0

    def __init__(self, output: TextIO, errors: TextIO) -> None:
        self._output = output
        self._errors = errors

    def report(self, event: ProcessEvent) -> None:
        """Write the event for people, in one line or several."""
        stream = self._errors if isinstance(event, Failed) else self._output
        write_line(stream, _SENTENCES[type(event)](event))


REPORTERS: Mapping[str, Callable[[TextIO, TextIO], Reporter]] = {
    "text": TextReporter,
    "json": JsonReporter,
}


def _started(event: Started) -> str:
    text = f"server {event.id:#010x} listens on {event.pub} and {event.sub}"
    return text + _metrics(event.metrics)


def _connected(event: Connected) -> str:
    who = f"slab {event.slab} of {event.slabs}"
    text = f"{who}: connected as id {event.id:#010x}, servers {_ids(event.servers)}"
    page = "" if event.page is None else f"; page at {event.page}"
    return text + _metrics(event.metrics) + page


def _metrics(url: str | None) -> str:
    return "" if url is None else f"; metrics at {url}"


def _server_came(event: ServerCame) -> str:
    return f"server {event.id:#010x} came; servers {_ids(event.servers)}"


def _server_lost(event: ServerLost) -> str:
    return f"server {event.id:#010x} is gone ({event.reason}); servers {_ids(event.servers)}"


def _ids(servers: Iterable[int]) -> str:
    return ", ".join(f"{server:#010x}" for server in servers) or "none"


def _progress(event: StepProgress) -> str:
    links = (
        f"; slab {link.slab}: {link.sent} sent, {link.lost} lost, {link.resent} resent"
        + ("" if link.rtt_ms is None else f", round trip {link.rtt_ms:.1f} ms")
        for link in event.links
    )
    speed = "" if event.steps_per_s is None else f", {event.steps_per_s:.0f} steps/s"
    return f"step {event.step}/{event.steps}{speed}" + "".join(links)


def _result(event: Result) -> str:
    lines = (
        f"state_sha256 {event.state_sha256} after {event.steps} steps, {event.seconds:.1f} s",
        f"start: {_totals(event.start)}",
        f"end:   {_totals(event.end)}",
    )
    return "\n".join(lines)


def _totals(totals: Totals) -> str:
    momentum = ", ".join(f"{part:.6g}" for part in totals.momentum)
    return f"{totals.count} spheres, energy {totals.energy:.9g} J, momentum ({momentum}) kg m/s"


def _finished(event: Finished) -> str:
    return f"finished {event.steps} steps in {event.seconds:.1f} s"


def _failed(event: Failed) -> str:
    return f"failed: {event.message}"


_SENTENCES: Mapping[type[Any], Callable[[Any], str]] = {
    Started: _started,
    Connected: _connected,
    ServerCame: _server_came,
    ServerLost: _server_lost,
    StepProgress: _progress,
    PageLimited: str,
    PeerGone: str,
    Result: _result,
    Finished: _finished,
    Failed: _failed,
}
