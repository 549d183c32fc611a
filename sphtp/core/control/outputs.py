"""What the machines ask of the bus."""

from dataclasses import dataclass
from enum import Enum

from sphtp.core.control.records import ServerAddress


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Receive messages that start with these four bytes."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Stop receiving messages that start with these four bytes."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to a server: a client both sockets, a server its extra PUB to ``address.sub``."""

    address: ServerAddress


@dataclass(frozen=True, slots=True)
class HangUp:
    """Undo a ``Dial``."""

    address: ServerAddress


BusCommand = Subscribe | Unsubscribe | Dial | HangUp
ServerBusCommand = Dial | HangUp


class BusAudience(Enum):
    """Which PUB socket of a server a message goes out of."""

    CLIENTS = "clients"
    SERVERS = "servers"


@dataclass(frozen=True, slots=True)
class BusMessage:
    """A message of a server, and for whom."""

    audience: BusAudience
    data: bytes


def topic(simulation: int) -> bytes:
    """Return the subscription of a simulation id; the messages for everybody have id 0."""
    return simulation.to_bytes(4, "little")
