"""What a simulation process says while it runs: one JSON object per line on standard output.

The same records are written by `sphtp client --report json` and read by `sphtp cluster`. Reading is
generous: a line that is none of these is no event, and unknown keys are skipped.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError


class Record(BaseModel):
    """Base of everything said: frozen, and open to keys of later versions."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class LinkReport(Record):
    """One channel seen from this side: packets, and the smoothed round trip in milliseconds."""

    peer: int
    slab: int
    sent: int
    received: int
    lost: int
    resent: int
    rtt_ms: float | None = None


class Totals(Record):
    """What a simulation must keep: the number of spheres, their energy and their momentum."""

    count: int
    energy: float
    momentum: tuple[float, ...]


class Started(Record):
    """A server listens; ``pub`` and ``sub`` are its two URLs, with the ports it really has."""

    event: Literal["started"] = "started"
    id: int
    pub: str
    sub: str


class Connected(Record):
    """A client is established with every server of the view."""

    event: Literal["connected"] = "connected"
    id: int
    slab: int
    slabs: int
    servers: tuple[int, ...] = ()


class ServerCame(Record):
    """One more server knows this client; ``servers`` are all that do."""

    event: Literal["server_came"] = "server_came"
    id: int
    servers: tuple[int, ...] = ()


class ServerLost(Record):
    """A server said good-bye or fell silent; ``servers`` are those that remain."""

    event: Literal["server_lost"] = "server_lost"
    id: int
    reason: str
    servers: tuple[int, ...] = ()


class Progress(Record):
    """How far a slab is; ``servers`` are the ids of those that know this client.

    One step says nothing about speed, so the first report tells none.
    """

    event: Literal["progress"] = "progress"
    step: int
    steps: int
    steps_per_s: float | None = None
    servers: tuple[int, ...] = ()
    links: tuple[LinkReport, ...] = ()


class PeerLeft(Record):
    """A peer of this run is gone, and why."""

    event: Literal["peer_left"] = "peer_left"
    slab: int
    id: int
    reason: str

    def __str__(self) -> str:
        return f"slab {self.slab} (id {self.id:#010x}) left: {self.reason}"


class Result(Record):
    """The whole system at the end, as slab 0 has gathered it."""

    event: Literal["result"] = "result"
    steps: int
    seconds: float
    state_sha256: str
    start: Totals
    end: Totals


class Finished(Record):
    """A slab has done all its steps and closed its channels; the last word of a good run."""

    event: Literal["finished"] = "finished"
    steps: int
    seconds: float
    links: tuple[LinkReport, ...] = ()


class Failed(Record):
    """The last word of a run that ended early."""

    event: Literal["failed"] = "failed"
    message: str


Event = (
    Started | Connected | ServerCame | ServerLost | Progress | PeerLeft | Result | Finished | Failed
)

_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def parse_event(line: bytes) -> Event | None:
    """Read one line; None when it is no event, whatever else it may be."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return _EVENT.validate_json(line)
    except ValidationError:
        return None
