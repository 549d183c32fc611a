"""The commands of the control machines to the bus."""

from dataclasses import dataclass
from enum import Enum

from sphtp.core.control.records import ServerAddress


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
    """Undo a ``Dial``."""

    address: ServerAddress


BusCommand = Subscribe | Unsubscribe | Dial | HangUp
ServerBusCommand = Dial | HangUp


class BusAudience(Enum):
    """The audience of a server's message, which is the PUB socket that sends it."""

    CLIENTS = "clients"
    SERVERS = "servers"


@dataclass(frozen=True, slots=True)
class BusMessage:
    """A message of a server with its audience."""

    audience: BusAudience
    data: bytes


def topic(simulation: int) -> bytes:
    """Return the topic of a simulation id. Messages for everybody have id 0."""
    return simulation.to_bytes(4, "little")
