"""Events of peers that come and go, for programs: those of the machines, with a `Peer` in each."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sphtp.core.control import events as core
from sphtp.core.control.records import PeerRecord
from sphtp.core.control.vocabulary import Reason
from sphtp.shell.peer import Peer


@dataclass(frozen=True, slots=True)
class PeerEntered:
    """Servers introduced a client; what it tells of itself comes with a `PeerChanged`."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerChanged:
    """A client's data, topics or addresses changed."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """No living server vouches for a client any more, or it said good-bye."""

    peer: Peer
    reason: Reason


@dataclass(frozen=True, slots=True)
class ClientEntered:
    """A client was registered, here or at another server."""

    client: Peer


@dataclass(frozen=True, slots=True)
class ClientChanged:
    """A client's data, topics or addresses changed."""

    client: Peer


@dataclass(frozen=True, slots=True)
class ClientLeft:
    """A client was de-registered and its data deleted."""

    client: Peer
    reason: Reason


ClientEvent = (
    core.Established
    | core.Suspended
    | core.IdLost
    | PeerEntered
    | PeerChanged
    | PeerLeft
    | core.PeerUnknown
    | core.ServerEntered
    | core.ServerLeft
    | core.Refused
    | core.Left
    | core.UserMessage
)

ServerEvent = (
    ClientEntered
    | ClientChanged
    | core.ClientSuspected
    | ClientLeft
    | core.ServerEntered
    | core.ServerLeft
    | core.ViewChanged
    | core.StateChanged
    | core.JoinFailing
    | core.UserMessage
)

_OF_CLIENT: Final[Mapping[type[Any], Callable[[Any], Any]]] = {
    core.PeerEntered: lambda event: PeerEntered(Peer.from_record(event.record)),
    core.PeerChanged: lambda event: PeerChanged(Peer.from_record(event.record)),
    core.PeerLeft: lambda event: PeerLeft(Peer.from_record(event.record), event.reason),
}
_OF_SERVER: Final[Mapping[type[Any], Callable[[Any], Any]]] = {
    core.PeerEntered: lambda event: ClientEntered(Peer.from_record(event.record)),
    core.PeerChanged: lambda event: ClientChanged(Peer.from_record(event.record)),
    core.PeerLeft: lambda event: ClientLeft(Peer.from_record(event.record), event.reason),
}


def of_client(event: core.ClientEvent) -> ClientEvent:
    """Return an event of a client's machine as programs get it."""
    public: ClientEvent = _OF_CLIENT.get(type(event), _as_it_is)(event)
    return public


def of_server(event: core.ServerEvent) -> ServerEvent:
    """Return an event of a server's machine as programs get it."""
    public: ServerEvent = _OF_SERVER.get(type(event), _as_it_is)(event)
    return public


def _as_it_is(event: Any) -> Any:
    return event


class Clients(Mapping[int, Peer]):
    """The clients that a server knows, by id: a view of its records, as they are at any time."""

    def __init__(self, records: Mapping[int, PeerRecord]) -> None:
        self._records = records

    def __getitem__(self, number: int) -> Peer:
        return Peer.from_record(self._records[number])

    def __iter__(self) -> Iterator[int]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, number: object) -> bool:
        return number in self._records
