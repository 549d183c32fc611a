"""The events that clients and servers hand to the application."""

from dataclasses import dataclass

from sphtp.core.control.codec import Parameter
from sphtp.core.control.records import ClusterView, Member, Peer, ServerAddress
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.vocabulary import Reason


@dataclass(frozen=True, slots=True)
class Established:
    """Every server of the view acknowledged the client's id."""

    id: int
    resumed: bool
    """True if the client has the same id as before a suspension."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """No server is heard. The client keeps its id and peers until it hears one again."""


@dataclass(frozen=True, slots=True)
class IdLost:
    """Another client holds the id. This client announces another one."""

    id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class PeerEntered:
    """A client entered: servers introduced it to a peer, or one of them registered it.

    Its data, topics and groups follow in a `PeerChanged`.
    """

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerChanged:
    """A client's data, topics, groups or addresses changed."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """A client left: no living server vouches for it; at a server, it is de-registered."""

    peer: Peer
    reason: Reason


@dataclass(frozen=True, slots=True)
class PeerUnknown:
    """A peer was looked up and no server knows it.

    Answers can be lost, and then this event does not come.
    """

    id: int


@dataclass(frozen=True, slots=True)
class ServerEntered:
    """A server was heard for the first time."""

    member: Member


@dataclass(frozen=True, slots=True)
class ServerLeft:
    """A server left or fell silent."""

    member: Member
    reason: Reason


@dataclass(frozen=True, slots=True)
class Refused:
    """Servers refuse this client for good. This is the last event."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Left:
    """The client left. This is the last event."""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message with a command of the application."""

    sender: int
    command: int
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class PeerSuspected:
    """A client has been silent for half the expiry, or its connection has ended."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class JoinFailing:
    """This server hears no server that it is to join, and no other one. The event repeats."""

    address: ServerAddress
    why: str
    """The cause in plain words, such as ``connection refused by 127.0.0.1:8764``."""


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """The members or the number of the view changed."""

    view: ClusterView


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The server entered another state."""

    state: ServerState


ClientEvent = (
    Established
    | Suspended
    | IdLost
    | PeerEntered
    | PeerChanged
    | PeerLeft
    | PeerUnknown
    | ServerEntered
    | ServerLeft
    | Refused
    | Left
    | UserMessage
)

ServerEvent = (
    PeerEntered
    | PeerChanged
    | PeerSuspected
    | PeerLeft
    | ServerEntered
    | ServerLeft
    | JoinFailing
    | ViewChanged
    | StateChanged
    | UserMessage
)
