"""Accept queues: channels that peers open and that the application has not accepted yet.

A channel carries the application's messages or those of a service of the node, such as its streams.
Each of these has a schema of its own, and so each schema has its own accept queue.
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
    """The half-open channels and the channels that wait to be accepted, with ``limit`` places.

    A channel that crossed an attempt of this side is added even if no place is free.

    An opener is identified by its proven key, or by its host in the clear. If all places are taken,
    a new channel replaces one of the opener with the most places, if its own opener has at least
    two fewer. If not, it replaces the oldest channel, if that began at least ``patience`` seconds
    ago. So no peer can exclude the others for long.
    """

    def __init__(self, limit: int, patience: float) -> None:
        self._limit = limit
        self._patience = patience
        self._half_open: dict[int, Connection] = {}
        # Open channels, the one that opened first at the front.
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
        """Remove a channel to make room for one of ``opener``, as ``opener_of`` returns it.

        Return the removed channel, which the caller has to end; None if no channel may be replaced.
        """
        places = [*self._waiting.values(), *self._half_open.values()]
        counts = Counter(map(_opener_of, places))
        if not counts:
            return None
        most, number = counts.most_common(1)[0]
        if number >= counts[opener] + 2:
            # The newest channel of that opener is replaced: the application would accept it last.
            loser = next(it for it in reversed(places) if _opener_of(it) == most)
        else:
            loser = min(places, key=lambda it: it.began_at)
            if now < loser.began_at + self._patience:
                return None
        self._half_open.pop(loser.connection_id, None)
        self._waiting.pop(loser.connection_id, None)
        return loser

    def expect(self, connection: "Connection") -> None:
        """Add a half-open channel, for which no data has arrived yet."""
        self._half_open[connection.connection_id] = connection

    def settle(self, connection: "Connection") -> None:
        """Update the queue after a channel has opened or ended."""
        connection_id = connection.connection_id
        if connection_id in self._half_open and connection.state is not State.ANSWERING:
            del self._half_open[connection_id]
            # A half-open channel that closed was never open, so that nobody accepts it.
            if connection.state is not State.CLOSED:
                self._waiting[connection_id] = connection
        is_over = connection.state is State.CLOSED and not connection.port.readable
        if is_over and self._waiting.get(connection_id) is connection:
            del self._waiting[connection_id]

    def take(self) -> "Connection | None":
        """Remove and return the channel that has waited longest; None if none waits."""
        return self._waiting.pop(next(iter(self._waiting))) if self._waiting else None


class AcceptQueues:
    """The schemas of the channels that this side accepts, each with an accept queue.

    ``schema`` is that of the application's messages. While ``is_closed`` is true, this side refuses
    all new channels.
    """

    def __init__(self, schema: Schema, limit: int, patience: float) -> None:
        self.main = schema
        self.is_closed = False
        self._limit, self._patience = limit, patience
        self._schemas: dict[int, Schema] = {}
        self._queues: dict[int, AcceptQueue] = {}
        self.add(schema)

    def add(self, schema: Schema) -> None:
        """Accept channels of this schema from now on."""
        self._schemas[schema.schema_hash] = schema
        self._queues.setdefault(schema.schema_hash, AcceptQueue(self._limit, self._patience))

    def remove(self, schema: Schema) -> bool:
        """Refuse channels of this schema from now on.

        Return False, and change nothing, if its accept queue is not empty.
        """
        if self._queues[schema.schema_hash]:
            return False
        del self._queues[schema.schema_hash], self._schemas[schema.schema_hash]
        return True

    def find(self, schema_hash: int) -> Schema | None:
        """Return the schema with this hash; None if this side accepts no such channels."""
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
        """Return the accept queue of a schema that this side accepts."""
        return self._queues[schema.schema_hash]

    def expect(self, connection: "Connection") -> None:
        """Add a half-open channel, for which no data has arrived yet."""
        self.queue(connection.handshake.schema).expect(connection)

    def settle(self, connection: "Connection") -> None:
        """Update the queue of a channel that has opened or ended."""
        # A schema has no queue after ``remove``; its channels had left the queue before.
        queue = self._queues.get(connection.handshake.schema.schema_hash)
        if queue is not None:
            queue.settle(connection)


def opener_of(key: bytes, address: Address | None) -> bytes:
    """Return the opener that a place is counted for: its key, or its host if it has no key."""
    return key or (address[0].encode() if address is not None else b"")


def _opener_of(connection: "Connection") -> bytes:
    return opener_of(connection.peer_key, connection.address)
