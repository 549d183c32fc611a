"""The outputs of the control machines: commands for the bus, and events for the application."""

from dataclasses import dataclass
from enum import Enum

from sphtp.core.control.codec import Parameter
from sphtp.core.control.records import ClusterView, Member, Peer, ServerAddress
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.vocabulary import Reason


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Subscribe to messages that start with these four bytes."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Unsubscribe from messages that start with these four bytes."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to a server: a client by both sockets, a server by its extra PUB."""

    address: ServerAddress


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connections of a ``Dial``, and dial no more."""

    address: ServerAddress


BusCommand = Subscribe | Unsubscribe | Dial | HangUp
ServerBusCommand = Dial | HangUp


class BusAudience(Enum):
    """The audience of a server's message, which selects the PUB socket."""

    CLIENTS = "clients"
    SERVERS = "servers"


@dataclass(frozen=True, slots=True)
class BusMessage:
    """A message of a server with its audience."""

    audience: BusAudience
    data: bytes


def topic(simulation: int) -> bytes:
    """Return the topic of a simulation id: the first four bytes of its messages."""
    return simulation.to_bytes(4, "little")


def replace_topics(before: frozenset[int], after: frozenset[int]) -> list[Subscribe | Unsubscribe]:
    """Return the commands that replace topics: subscribe to new, then unsubscribe from old ones."""
    commands: list[Subscribe | Unsubscribe] = []
    commands += [Subscribe(topic(each)) for each in sorted(after - before)]
    commands += [Unsubscribe(topic(each)) for each in sorted(before - after)]
    return commands


@dataclass(frozen=True, slots=True)
class Established:
    """The event that every server that has to acknowledge the client's id has done so."""

    id: int
    resumed: bool
    """True if the client has the same id as before a suspension."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """The event that no server is live, or that none has confirmed the id for one expiry.

    The client keeps its id and peers meanwhile.
    """


@dataclass(frozen=True, slots=True)
class IdLost:
    """The event that a server has refused the client's id, mostly because another client holds it.

    The client announces another id.
    """

    id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class PeerEntered:
    """The entry of a client: at a client, a server introduced it; at a server, it was registered.

    The data, topics and groups of a new client follow in a `PeerChanged`.
    """

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerChanged:
    """A change of a client's data, topics, groups or addresses."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """The departure of a client.

    At a client: it left, no live server lists it any more, another client has its id, or this
    client no longer follows it. At a server: it is no longer registered.
    """

    peer: Peer
    reason: Reason


@dataclass(frozen=True, slots=True)
class PeerUnknown:
    """The result of a lookup for a peer that no server has registered.

    If an answer is lost, this event may not come.
    """

    id: int


@dataclass(frozen=True, slots=True)
class ServerEntered:
    """The entry of a server: its first heartbeat arrived."""

    member: Member


@dataclass(frozen=True, slots=True)
class ServerLeft:
    """The departure of a server: it stopped, fell silent, or another server has its id."""

    member: Member
    reason: Reason


@dataclass(frozen=True, slots=True)
class Refused:
    """The final refusal of this client by a server. This is the last event."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Left:
    """The departure of this client. This is the last event."""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message with a command of the application, from a client or a server."""

    sender: int
    command: int
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class PeerSuspected:
    """The suspicion of a client: it was silent for half of ``expiry``, or its connection ended."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class JoinFailing:
    """The failure of this server to reach a server that it has to join. The event repeats."""

    address: ServerAddress
    why: str
    """The cause in words, such as ``connection refused by 127.0.0.1:8764``."""


@dataclass(frozen=True, slots=True)
class RegistryFailing:
    """The failure of a request to the shared registry. The server repeats the request."""

    why: str
    """The cause in words."""


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """A change of the members or the number of the view."""

    view: ClusterView


@dataclass(frozen=True, slots=True)
class StateChanged:
    """A change of the server's state."""

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
    | RegistryFailing
    | ViewChanged
    | StateChanged
    | UserMessage
)
