"""The connections of an endpoint, by id, by origin and by peer address, and their turns to send.

A datagram carries the connection id that this side chose (RFC 9000, section 5.1). A CONNECT carries
no such id, because the opener does not have it yet. So a repeated CONNECT is recognised by its
origin: the opener's address and connection id. ``peers`` finds the keys of a sealed connection by
the peer's address and connection id, for example for a RESET.

``ready`` holds the connections that may have something to send, in the order of their turns.
``active`` holds those with a change that the application may wait for. ``timers`` holds the next
deadline of each. An arriving packet or an expired timer makes a connection ready and active. A
command only makes it ready; when it has nothing left to send, it becomes active if it has an event
or a settled ticket.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sphtp.core.channel.handshake import Origin, answering_id
from sphtp.core.channel.protection import AesGcm, Peers
from sphtp.core.entropy import Secrets
from sphtp.core.timers import TimerQueue

if TYPE_CHECKING:
    from sphtp.core.channel.connection import Connection


class ConnectionTable:
    """The connections of an endpoint, those ready to send, and their timers.

    ``connections`` maps each connection id of this side to its connection. ``peers`` maps the
    peer's address and connection id of each sealed connection to its keys.
    """

    def __init__(self) -> None:
        self.peers: Peers = {}
        self.connections: dict[int, Connection] = {}
        self._by_origin: dict[Origin, Connection] = {}
        self.timers: TimerQueue[Connection] = TimerQueue()
        self.ready: dict[Connection, None] = {}
        self.active: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self.connections)

    def __iter__(self) -> "Iterator[Connection]":
        return iter(tuple(self.connections.values()))

    # Lookup, and changes

    def new_id(self, secrets: Secrets) -> int:
        """Draw an unused connection id whose answering id is unused, too. Neither is 0."""
        while True:
            connection_id = secrets.getrandbits(32)
            both = {connection_id, answering_id(connection_id)}
            if 0 not in both and self.connections.keys().isdisjoint(both):
                return connection_id

    def find(self, connection_id: int) -> "Connection | None":
        """Return the connection with this id and mark it ready and active; None if there is none.

        Call it for an arriving datagram.
        """
        connection = self.connections.get(connection_id)
        if connection is not None:
            self.ready[connection] = self.active[connection] = None
        return connection

    def opened_from(self, origin: Origin) -> "Connection | None":
        """Return the connection that handles the CONNECTs of an opener; None if there is none."""
        return self._by_origin.get(origin)

    def add(self, connection: "Connection") -> None:
        """Add a connection, and mark it ready."""
        self.connections[connection.connection_id] = connection
        self.index(connection)
        self.ready[connection] = None

    def index(self, connection: "Connection") -> None:
        """Index a connection by its origin, and by the address and connection id of its peer."""
        origin, keys = connection.handshake.origin, connection.protection
        if origin is not None:
            self._by_origin.setdefault(origin, connection)
        if isinstance(keys, AesGcm) and keys.peer and connection.address is not None:
            self.peers[connection.address, keys.peer] = keys

    def remove(self, connection: "Connection") -> None:
        """Remove a connection. The application can still poll its last events."""
        origin = connection.handshake.origin
        self.connections.pop(connection.connection_id, None)
        self.ready.pop(connection, None)
        connection.timer = None
        self.timers.set(connection, None)
        if origin is not None and self._by_origin.get(origin) is connection:
            del self._by_origin[origin]
        self._forget_peer(connection)

    def move(self, connection: "Connection", now: float, address: tuple[str, int]) -> None:
        """Change the address of a connection's peer, after its validation."""
        self._forget_peer(connection)
        connection.handle_new_path(now, address)
        self.index(connection)

    def _forget_peer(self, connection: "Connection") -> None:
        keys, address = connection.protection, connection.address
        if isinstance(keys, AesGcm) and address is not None:
            there = (address, keys.peer)
            if self.peers.get(there) is keys:
                del self.peers[there]

    def take_due(self, now: float) -> "Iterator[Connection]":
        """Yield the connections whose timer has expired; mark them ready and active."""
        for connection in self.timers.take_due(now):
            connection.timer = None
            self.ready[connection] = self.active[connection] = None
            yield connection
