"""Channels that peers have opened and the application has not accepted yet.

The schema of a channel determines its purpose: the application's messages, or a service of the node
itself. Each schema has an accept queue of its own.
"""

from collections import Counter
from typing import TYPE_CHECKING

from sphtp.core.channel.handshake import Connect, Refusal
from sphtp.core.channel.lifecycle import State
from sphtp.core.datagrams import Address
from sphtp.core.schema import Schema

if TYPE_CHECKING:
    from sphtp.core.channel.connection import Connection


class AcceptQueue:
    """The half-open channels and the channels that wait to be accepted, ``limit`` in all.

    Places are counted per opener, which is identified by its proven key, or by its host in the
    clear. When all places are taken, a new opener takes a place from the opener with the most of
    them if that has at least two more. It also takes the place of a channel that is older than
    ``patience`` seconds. So no peer can shut out the others for long.
    """

    def __init__(self, limit: int, patience: float) -> None:
        self._limit = limit
        self._patience = patience
        self._half_open: dict[int, Connection] = {}
        # The oldest first.
        self._waiting: dict[int, Connection] = {}

    def __len__(self) -> int:
        return len(self._half_open) + len(self._waiting)

    @property
    def is_full(self) -> bool:
        """True if no place is free."""
        return len(self) >= self._limit

    @property
    def has_any(self) -> bool:
        """True if a channel waits to be accepted."""
        return bool(self._waiting)

    def make_room(self, now: float, opener: bytes) -> "Connection | None":
        """Free a place for ``opener``.

        Return the channel whose place was freed, which the caller must end; None if there is none.
        """
        places = [*self._waiting.values(), *self._half_open.values()]
        counts = Counter(map(_opener_of, places))
        if not counts:
            return None
        most, number = counts.most_common(1)[0]
        if number >= counts[opener] + 2:
            # The newest channel, which the application would accept last.
            loser = next(it for it in reversed(places) if _opener_of(it) == most)
        else:
            loser = min(places, key=lambda it: it.began_at)
            if now < loser.began_at + self._patience:
                return None
        self._half_open.pop(loser.connection_id, None)
        self._waiting.pop(loser.connection_id, None)
        return loser

    def expect(self, connection: "Connection") -> None:
        """Add a half-open channel, which the peer has yet to confirm."""
        self._half_open[connection.connection_id] = connection

    def settle(self, connection: "Connection") -> None:
        """Update the queue after a channel has opened or ended."""
        connection_id = connection.connection_id
        if connection_id in self._half_open and connection.state is not State.ANSWERING:
            del self._half_open[connection_id]
            # A connection that closed before it opened was never a channel.
            if connection.state is not State.CLOSED:
                self._waiting[connection_id] = connection
        is_over = connection.state is State.CLOSED and not connection.port.readable
        if is_over and self._waiting.get(connection_id) is connection:
            del self._waiting[connection_id]

    def take(self) -> "Connection | None":
        """Remove and return the channel that has waited longest; None if none waits."""
        return self._waiting.pop(next(iter(self._waiting))) if self._waiting else None


class AcceptQueues:
    """The schemas that channels may have, with an accept queue for each."""

    def __init__(self, schema: Schema, limit: int, patience: float) -> None:
        self.main = schema
        self.is_closed = False
        self._limit, self._patience = limit, patience
        self._schemas: dict[int, Schema] = {}
        self._queues: dict[int, AcceptQueue] = {}
        self.add(schema)

    def add(self, schema: Schema) -> None:
        """Accept channels of this schema as well."""
        self._schemas[schema.schema_hash] = schema
        self._queues.setdefault(schema.schema_hash, AcceptQueue(self._limit, self._patience))

    def remove(self, schema: Schema) -> bool:
        """Stop accepting channels of this schema. Return False while some are in the queue."""
        if self._queues[schema.schema_hash]:
            return False
        del self._queues[schema.schema_hash], self._schemas[schema.schema_hash]
        return True

    def find(self, schema_hash: int) -> Schema | None:
        """Return the schema with this hash; None if this side does not serve it."""
        return self._schemas.get(schema_hash)

    def objection_to(self, connect: Connect, peer_id: int) -> Refusal | None:
        """Return the reason to refuse a CONNECT; None if there is none.

        ``peer_id`` is the id of this side.
        """
        if self.is_closed:
            return Refusal.GONE
        if connect.wanted not in (0, peer_id):
            return Refusal.WRONG_PEER
        return None if self.find(connect.offer.schema_hash) else Refusal.SCHEMA

    def queue(self, schema: Schema) -> AcceptQueue:
        """Return the accept queue of a schema."""
        return self._queues[schema.schema_hash]

    def expect(self, connection: "Connection") -> None:
        """Add a half-open channel, which the peer has yet to confirm."""
        self.queue(connection.handshake.schema).expect(connection)

    def settle(self, connection: "Connection") -> None:
        """Update the queue of a channel that has opened or ended."""
        # A channel whose schema was removed has left its queue before.
        queue = self._queues.get(connection.handshake.schema.schema_hash)
        if queue is not None:
            queue.settle(connection)


def opener_of(key: bytes, address: Address | None) -> bytes:
    """Return the identity of an opener: its proven key, or its host if there is none."""
    return key or (address[0].encode() if address is not None else b"")


def _opener_of(connection: "Connection") -> bytes:
    return opener_of(connection.peer_key, connection.address)
