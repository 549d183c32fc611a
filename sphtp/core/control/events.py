"""What the machines tell the application."""

from dataclasses import dataclass

from sphtp.core.control.codec import Parameter
from sphtp.core.control.records import ClusterView, Member, Peer, ServerAddress
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.vocabulary import Reason


@dataclass(frozen=True, slots=True)
class Established:
    """Every server of the view acknowledged our id."""

    id: int
    resumed: bool
    """The same id as before a suspension."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """No server is heard; id and peers are kept until one is heard again."""


@dataclass(frozen=True, slots=True)
class IdLost:
    """Somebody else holds the id; the client announces another one."""

    id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class PeerEntered:
    """A client is there: servers introduced it to a peer, or one of them registered it.

    What it tells of itself comes with a `PeerChanged`.
    """

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerChanged:
    """A client's data, topics or addresses changed."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """No living server vouches for a client any more, or it left; of a server: de-registered."""

    peer: Peer
    reason: Reason


@dataclass(frozen=True, slots=True)
class PeerUnknown:
    """A peer was looked up, and no server knows it. Answers can be lost, and this with them."""

    id: int


@dataclass(frozen=True, slots=True)
class ServerEntered:
    """A server was heard for the first time."""

    member: Member


@dataclass(frozen=True, slots=True)
class ServerLeft:
    """A server said good-bye or fell silent."""

    member: Member
    reason: Reason


@dataclass(frozen=True, slots=True)
class Refused:
    """Servers refuse this client for good; the last event."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Left:
    """The client left; the last event."""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message with a command of the application."""

    sender: int
    command: int
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class PeerSuspected:
    """A client has been silent for half the expiry, or its connection has ended."""

    id: int


@dataclass(frozen=True, slots=True)
class JoinFailing:
    """A server that this one is to join is not heard, and no other one is; said again and again."""

    address: ServerAddress
    why: str
    """In plain words, such as ``connection refused by 127.0.0.1:8764``."""


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """The members or the number of the view changed."""

    view: ClusterView


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The server went on to another state."""

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
