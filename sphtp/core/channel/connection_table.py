"""The connections of an endpoint: by id, by who began them, by where their peers are; and turns.

Datagrams find their connection by the id that this side chose (RFC 9000, section 5.1). A CONNECT
has none yet, so that one that comes again is known by its origin. What a peer seals or resets under
its own id is found by the peer's address and that id.

Connections that may have something to send take turns, each for about as much as one system call
sends; those that wait for a time stand in a queue of deadlines.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sphtp.core.channel.handshake import Origin, sibling
from sphtp.core.channel.protection import AesGcm, Peers
from sphtp.core.datagrams import MOST_BYTES, MOST_DATAGRAMS, Datagrams
from sphtp.core.entropy import Secrets
from sphtp.core.timers import TimerQueue

if TYPE_CHECKING:
    from sphtp.core.channel.connection import Connection

TURN: Final = MOST_DATAGRAMS
TURN_BYTES: Final = MOST_BYTES
"""Packets, and bytes in them, that one connection sends before the others have their turn: about
what leaves with one system call."""


class ConnectionTable:
    """Who takes part, whose turn it is, and who is due when.

    ``peers`` are the keys of sealed connections, by address and id of their peers.
    """

    def __init__(self) -> None:
        self.peers: Peers = {}
        self._connections: dict[int, Connection] = {}
        self._by_origin: dict[Origin, Connection] = {}
        self._timers = TimerQueue[int]()
        self._dirty: dict[int, Connection] = {}
        self._packets = self._bytes = 0
        self._active: dict[int, Connection] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> "Iterator[Connection]":
        return iter(tuple(self._connections.values()))

    # Who takes part

    def new_id(self, secrets: Secrets) -> int:
        """Draw an id that nobody here has, no more than its sibling, and that is not 0."""
        while True:
            connection_id = secrets.getrandbits(32)
            both = {connection_id, sibling(connection_id)}
            if 0 not in both and self._connections.keys().isdisjoint(both):
                return connection_id

    def get(self, connection_id: int) -> "Connection | None":
        """The connection with an id."""
        return self._connections.get(connection_id)

    def find(self, connection_id: int) -> "Connection | None":
        """The connection with an id, which then has a turn: it is being told something."""
        connection = self._connections.get(connection_id)
        if connection is not None:
            self._dirty[connection_id] = self._active[connection_id] = connection
        return connection

    def opened_from(self, origin: Origin) -> "Connection | None":
        """The connection that takes the CONNECTs of an address and a connection id there."""
        return self._by_origin.get(origin)

    def add(self, connection: "Connection") -> None:
        """Let a connection take part."""
        self._connections[connection.connection_id] = connection
        self.index(connection)
        self.touch(connection)

    def index(self, connection: "Connection") -> None:
        """Take note of where a connection's CONNECTs come from, and where its peer is."""
        origin, keys = connection.handshake.origin, connection.protection
        if origin is not None:
            self._by_origin.setdefault(origin, connection)
        if isinstance(keys, AesGcm) and keys.peer and connection.address is not None:
            self.peers[connection.address, keys.peer] = keys

    def remove(self, connection: "Connection") -> None:
        """Let it take part no longer; what is to be reported of it still is."""
        connection_id, origin = connection.connection_id, connection.handshake.origin
        self._connections.pop(connection_id, None)
        self._dirty.pop(connection_id, None)
        self._timers.set(connection_id, None)
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

    # Whose turn it is

    def touch(self, connection: "Connection") -> None:
        """Give a connection a turn, if it takes part."""
        connection_id = connection.connection_id
        if self._connections.get(connection_id) is connection:
            self._dirty[connection_id] = self._active[connection_id] = connection

    def next_turn(self, most: int) -> "tuple[Connection, int] | None":
        """Whose turn it is, and its share of the bytes that may leave meanwhile."""
        dirty = self._dirty
        if not dirty:
            return None
        return next(iter(dirty.values())), min(most // len(dirty), TURN_BYTES - self._bytes)

    def note_sent(self, connection: "Connection", transmit: Datagrams) -> None:
        """Take note of what it sent; after enough of that it is the next one's turn."""
        self._packets += transmit.number
        self._bytes += len(transmit.data)
        if self._packets >= TURN or self._bytes >= TURN_BYTES:
            self._packets = self._bytes = 0
            connection_id = connection.connection_id
            del self._dirty[connection_id]
            self._dirty[connection_id] = connection

    def end_turn(self, connection: "Connection") -> None:
        """Take note that it has nothing to send for now."""
        connection_id = connection.connection_id
        del self._dirty[connection_id]
        self._packets = self._bytes = 0
        self._timers.set(connection_id, connection.poll_timeout())
        self._active[connection_id] = connection

    def poll_active(self) -> "Connection | None":
        """A connection of which something may have changed."""
        return self._active.pop(next(iter(self._active))) if self._active else None

    # Who is due

    def take_due(self, now: float) -> "Iterator[Connection]":
        """Yield the connections that are due, and give each a turn."""
        for connection_id in self._timers.take_due(now):
            connection = self._connections[connection_id]
            yield connection
            self.touch(connection)

    def next_due(self) -> float | None:
        """When the next connection is due."""
        return self._timers.next_due()
