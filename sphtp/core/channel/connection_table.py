"""The connections of an endpoint: by id, by who began them, by where their peers are; and turns.

Datagrams find their connection by the id that this side chose (RFC 9000, section 5.1). A CONNECT
has none yet, so that one that comes again is known by its origin. What a peer seals or resets under
its own id is found by the peer's address and that id.

Those that may have something to send are ``ready``, in the order of their turns; those of which
something may have changed that somebody waits for are ``active``; and when each is due next stands
in a queue of timers. A packet that comes, or a timer, makes a connection all of that; a command
makes it ready, and what comes of it shows when it has been polled.
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
    """The connections by id, those that are ready to send, and their timers.

    ``connections`` has them by id, ``peers`` the keys of sealed ones by address and id of their
    peers.
    """

    def __init__(self) -> None:
        self.peers: Peers = {}
        self.connections: dict[int, Connection] = {}
        self._by_origin: dict[Origin, Connection] = {}
        self.timers = TimerQueue[int]()
        self.ready: dict[Connection, None] = {}
        self.active: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self.connections)

    def __iter__(self) -> "Iterator[Connection]":
        return iter(tuple(self.connections.values()))

    # Who takes part

    def new_id(self, secrets: Secrets) -> int:
        """Draw an id that nobody here has, nor its answering id, and that is not 0."""
        while True:
            connection_id = secrets.getrandbits(32)
            both = {connection_id, answering_id(connection_id)}
            if 0 not in both and self.connections.keys().isdisjoint(both):
                return connection_id

    def find(self, connection_id: int) -> "Connection | None":
        """The connection with an id, for which something came."""
        connection = self.connections.get(connection_id)
        if connection is not None:
            self.ready[connection] = self.active[connection] = None
        return connection

    def opened_from(self, origin: Origin) -> "Connection | None":
        """The connection that takes the CONNECTs of an address and a connection id there."""
        return self._by_origin.get(origin)

    def add(self, connection: "Connection") -> None:
        """Let a connection take part."""
        self.connections[connection.connection_id] = connection
        self.index(connection)
        self.ready[connection] = None

    def index(self, connection: "Connection") -> None:
        """Take note of where a connection's CONNECTs come from, and where its peer is."""
        origin, keys = connection.handshake.origin, connection.protection
        if origin is not None:
            self._by_origin.setdefault(origin, connection)
        if isinstance(keys, AesGcm) and keys.peer and connection.address is not None:
            self.peers[connection.address, keys.peer] = keys

    def remove(self, connection: "Connection") -> None:
        """Let it take part no longer; what is to be reported of it still is."""
        origin = connection.handshake.origin
        self.connections.pop(connection.connection_id, None)
        self.ready.pop(connection, None)
        self.timers.set(connection.connection_id, None)
        if origin is not None and self._by_origin.get(origin) is connection:
            del self._by_origin[origin]
        self._forget_peer(connection)

    def move(self, connection: "Connection", now: float, address: tuple[str, int]) -> None:
        """Let its peer be at another address from now on."""
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
        """Yield the connections that are due."""
        for connection_id in self.timers.take_due(now):
            connection = self.connections[connection_id]
            self.ready[connection] = self.active[connection] = None
            yield connection
