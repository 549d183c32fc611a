"""What scenarios do with a connection beside sending many at a time."""

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.handshake import TransportParameters
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.settings import Delivery


def follow(
    connection: Connection,
    payload: bytes,
    now: float = 0.0,
    *,
    delivery: Delivery = Delivery.RELIABLE,
    lane: int = 0,
    deadline: float | None = None,
    copies: int = 0,
) -> Ticket:
    """Send a message, and return what tells what became of it."""
    ticket = Ticket(now, lane, deadline, copies)
    connection.port.send(payload, ticket, delivery)
    return ticket


def send_once(connection: Connection, payload: bytes) -> Ticket:
    """Send an unreliable message."""
    return follow(connection, payload, delivery=Delivery.UNRELIABLE)


def offer(
    connection_id: int = 1,
    peer_id: int = 1,
    *,
    first: int = 0,
    messages: int = 1024,
    size: int = 2**20,
    datagram: int = 1200,
    limit: int = 10_000,
) -> TransportParameters:
    """What a peer may offer."""
    return TransportParameters(connection_id, peer_id, first, messages, size, datagram, limit)
