"""Channels that others opened and nobody here has taken yet.

What a channel is for is told by its schema: that of the application's messages, or one that the
node serves for its own purposes. Each has an accept queue of its own.
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
    """Those half open, and those that wait to be taken; ``limit`` of them at most.

    Who they are from is told by the key that was proven, or by the host of those in the clear. When
    there are no places left, whoever has most of them gives one up for somebody who has at least
    two fewer; and what has waited for ``patience`` seconds gives its place to anybody. So no peer
    shuts the others out, and none does for good.
    """

    def __init__(self, limit: int, patience: float) -> None:
        self._limit = limit
        self._patience = patience
        self._half_open: dict[int, Connection] = {}
        # In the order in which they opened.
        self._waiting: dict[int, Connection] = {}

    def __len__(self) -> int:
        return len(self._half_open) + len(self._waiting)

    @property
    def is_full(self) -> bool:
        """True if one more would be too many."""
        return len(self) >= self._limit

    @property
    def has_any(self) -> bool:
        """True if one waits to be taken."""
        return bool(self._waiting)

    def make_room(self, now: float, opener: bytes) -> "Connection | None":
        """Take a place away for somebody else; return the channel that is to end for it, if any."""
        places = [*self._waiting.values(), *self._half_open.values()]
        counts = Counter(map(_opener_of, places))
        if not counts:
            return None
        most, number = counts.most_common(1)[0]
        if number >= counts[opener] + 2:
            # The newest: the program is further from taking it than the others.
            loser = next(it for it in reversed(places) if _opener_of(it) == most)
        else:
            loser = min(places, key=lambda it: it.began_at)
            if now < loser.began_at + self._patience:
                return None
        self._half_open.pop(loser.connection_id, None)
        self._waiting.pop(loser.connection_id, None)
        return loser

    def expect(self, connection: "Connection") -> None:
        """Take note of one that was answered and has to confirm it."""
        self._half_open[connection.connection_id] = connection

    def settle(self, connection: "Connection") -> None:
        """Note whether it opened or ended meanwhile."""
        connection_id = connection.connection_id
        if connection_id in self._half_open and connection.state is not State.ANSWERING:
            del self._half_open[connection_id]
            # What closed without having opened was never a channel.
            if connection.state is not State.CLOSED:
                self._waiting[connection_id] = connection
        is_over = connection.state is State.CLOSED and not connection.port.readable
        if is_over and self._waiting.get(connection_id) is connection:
            del self._waiting[connection_id]

    def take(self) -> "Connection | None":
        """The one that waits for longest."""
        return self._waiting.pop(next(iter(self._waiting))) if self._waiting else None


class AcceptQueues:
    """The schemas that a channel may have, and the channels of each that nobody has taken yet."""

    def __init__(self, schema: Schema, limit: int, patience: float) -> None:
        self.main = schema
        self.is_closed = False
        self._limit, self._patience = limit, patience
        self._schemas: dict[int, Schema] = {}
        self._queues: dict[int, AcceptQueue] = {}
        self.add(schema)

    def add(self, schema: Schema) -> None:
        """Let channels of this schema in, too."""
        self._schemas[schema.schema_hash] = schema
        self._queues.setdefault(schema.schema_hash, AcceptQueue(self._limit, self._patience))

    def find(self, schema_hash: int) -> Schema | None:
        """The schema with this hash; None if there is no such service."""
        return self._schemas.get(schema_hash)

    def objection_to(self, connect: Connect, peer_id: int) -> Refusal | None:
        """The reason to refuse a CONNECT to the side with this id; None if there is none."""
        if self.is_closed:
            return Refusal.GONE
        if connect.wanted not in (0, peer_id):
            return Refusal.WRONG_PEER
        return None if self.find(connect.offer.schema_hash) else Refusal.SCHEMA

    def queue(self, schema: Schema) -> AcceptQueue:
        """The channels of a service that nobody has taken yet."""
        return self._queues[schema.schema_hash]

    def expect(self, connection: "Connection") -> None:
        """Take note of one that was answered and has to confirm it."""
        self.queue(connection.handshake.schema).expect(connection)

    def settle(self, connection: "Connection") -> None:
        """Note whether a channel opened or ended meanwhile."""
        self.queue(connection.handshake.schema).settle(connection)


def opener_of(key: bytes, address: Address | None) -> bytes:
    """The owner of a channel's place: a key, or a host as far as nobody proved one."""
    return key or (address[0].encode() if address is not None else b"")


def _opener_of(connection: "Connection") -> bytes:
    return opener_of(connection.peer_key, connection.address)
