"""How a client tells what happens: lines for people, or JSON for programs."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TextIO

from sphtp_client.lines import write_line
from sphtp_client.simulation.events import (
    Connected,
    Event,
    Failed,
    Finished,
    PeerLeft,
    Progress,
    Result,
    ServerCame,
    ServerLost,
    Started,
    Totals,
)


class Reporter(Protocol):
    """Whatever wants to hear of a run; of its progress every so many seconds."""

    progress_every: float

    def say(self, event: Event) -> None:
        """Tell one event."""
        ...


class JsonReporter:
    """One JSON object per line."""

    progress_every = 0.5

    def __init__(self, output: TextIO, _errors: TextIO) -> None:
        self._output = output

    def say(self, event: Event) -> None:
        """Write one line."""
        write_line(self._output, event.model_dump_json())


class TextReporter:
    """A line that a person can read; a failure goes where errors go."""

    progress_every = 2.0

    def __init__(self, output: TextIO, errors: TextIO) -> None:
        self._output = output
        self._errors = errors

    def say(self, event: Event) -> None:
        """Write one line."""
        stream = self._errors if isinstance(event, Failed) else self._output
        write_line(stream, _SENTENCES[type(event)](event))


REPORTERS: Mapping[str, Callable[[TextIO, TextIO], Reporter]] = {
    "text": TextReporter,
    "json": JsonReporter,
}


def _started(event: Started) -> str:
    return f"server {event.id:#010x} listens on {event.pub} and {event.sub}"


def _connected(event: Connected) -> str:
    who = f"slab {event.slab} of {event.slabs}"
    return f"{who}: connected as id {event.id:#010x}, servers {_ids(event.servers)}"


def _server_came(event: ServerCame) -> str:
    return f"server {event.id:#010x} came; servers {_ids(event.servers)}"


def _server_lost(event: ServerLost) -> str:
    return f"server {event.id:#010x} is gone ({event.reason}); servers {_ids(event.servers)}"


def _ids(servers: Iterable[int]) -> str:
    return ", ".join(f"{server:#010x}" for server in servers) or "none"


def _progress(event: Progress) -> str:
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
    Progress: _progress,
    PeerLeft: str,
    Result: _result,
    Finished: _finished,
    Failed: _failed,
}
