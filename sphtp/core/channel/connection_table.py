"""Whose turn it is: which connections may have something to send, and which are due when."""

from collections.abc import Callable, Iterator
from typing import Final

from sphtp.core.channel.agenda import Agenda
from sphtp.core.channel.connection import Connection
from sphtp.core.channel.opening import sibling
from sphtp.core.datagrams import MOST_BYTES, MOST_DATAGRAMS, Datagrams
from sphtp.core.entropy import Secrets

TURN: Final = MOST_DATAGRAMS
TURN_BYTES: Final = MOST_BYTES
"""Packets, and bytes in them, that one connection sends before the others have their turn: about
what leaves with one system call."""


class ConnectionTable:
    """The connections of an endpoint. ``settle`` is called with each that has nothing to send."""

    def __init__(self, settle: Callable[[Connection], None]) -> None:
        self._settle = settle
        self._connections: dict[int, Connection] = {}
        self._agenda = Agenda()
        self._dirty: dict[int, None] = {}
        self._packets = self._bytes = 0
        self._active: dict[int, Connection] = {}

    def __contains__(self, connection_id: int) -> bool:
        return connection_id in self._connections

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._connections.values()))

    def new_id(self, secrets: Secrets) -> int:
        """Draw an id that nobody here has, no more than its sibling, and that is not 0."""
        while True:
            connection_id = secrets.getrandbits(32)
            both = {connection_id, sibling(connection_id)}
            if 0 not in both and self._connections.keys().isdisjoint(both):
                return connection_id

    def find(self, connection_id: int) -> Connection | None:
        """Return a connection, which then has a turn: it is being told something."""
        connection = self._connections.get(connection_id)
        if connection is not None:
            self._dirty[connection_id] = None
            self._active[connection_id] = connection
        return connection

    def add(self, connection: Connection) -> Connection:
        """Let a connection take part."""
        self._connections[connection.connection_id] = connection
        self.touch(connection)
        return connection

    def remove(self, connection: Connection) -> None:
        """Let it take part no longer; what is to be reported of it still is."""
        connection_id = connection.connection_id
        for table in (self._connections, self._dirty):
            table.pop(connection_id, None)
        self._agenda.set(connection_id, None)

    def touch(self, connection: Connection) -> None:
        """Give a connection a turn, if it takes part."""
        connection_id = connection.connection_id
        if self._connections.get(connection_id) is connection:
            self._dirty[connection_id] = None
            self._active[connection_id] = connection

    def take_due(self, now: float) -> Iterator[Connection]:
        """Yield the connections that are due, and give each a turn."""
        for connection_id in self._agenda.take_due(now):
            connection = self._connections[connection_id]
            yield connection
            self.touch(connection)

    def poll_transmit(self, now: float, most: int) -> Datagrams | None:
        """The next datagrams to send; connections take turns, and share what leaves meanwhile."""
        while self._dirty:
            connection_id = next(iter(self._dirty))
            connection = self._connections[connection_id]
            share = min(most // len(self._dirty), TURN_BYTES - self._bytes)
            transmit = connection.poll_transmit(now, share)
            if transmit is not None:
                self._take_turn(connection_id, transmit)
                return transmit
            del self._dirty[connection_id]
            self._packets = self._bytes = 0
            self._agenda.set(connection_id, connection.poll_timeout())
            self._active[connection_id] = connection
            self._settle(connection)
        return None

    def poll_active(self) -> Connection | None:
        """A connection of which something may have changed."""
        return self._active.pop(next(iter(self._active))) if self._active else None

    def next_due(self) -> float | None:
        """When the next connection is due."""
        return self._agenda.next()

    def _take_turn(self, connection_id: int, transmit: Datagrams) -> None:
        self._packets += transmit.number
        self._bytes += len(transmit.data)
        if self._packets >= TURN or self._bytes >= TURN_BYTES:
            self._packets = self._bytes = 0
            del self._dirty[connection_id]
            self._dirty[connection_id] = None
