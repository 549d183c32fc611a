"""What channels are for: each schema that a side knows is a service, and has a backlog of its own.

The first is that of the application's messages; the node may have others for its own purposes.
"""

from sphtp.core.channel.accept_queue import AcceptQueue
from sphtp.core.channel.connection import Connection
from sphtp.core.channel.handshake import Connect, Refusal
from sphtp.core.schema import Schema


class Services:
    """The schemas that a channel may have, and the channels of each that nobody has taken yet."""

    def __init__(self, schema: Schema, limit: int, patience: float) -> None:
        self.main = schema
        self.is_closed = False
        self._limit, self._patience = limit, patience
        self._schemas: dict[int, Schema] = {}
        self._backlogs: dict[int, AcceptQueue] = {}
        self.add(schema)

    def add(self, schema: Schema) -> None:
        """Let channels of this schema in, too."""
        self._schemas[schema.schema_hash] = schema
        self._backlogs[schema.schema_hash] = AcceptQueue(self._limit, self._patience)

    def find(self, schema_hash: int) -> Schema | None:
        """The schema with this hash; None if there is no such service."""
        return self._schemas.get(schema_hash)

    def objection_to(self, connect: Connect, peer_id: int) -> Refusal | None:
        """Why a CONNECT to the side with this id is refused; None if it is not."""
        if self.is_closed:
            return Refusal.GONE
        if connect.wanted not in (0, peer_id):
            return Refusal.WRONG_PEER
        return None if self.find(connect.offer.schema_hash) else Refusal.SCHEMA

    def backlog(self, schema: Schema) -> AcceptQueue:
        """The channels of a service that nobody has taken yet."""
        return self._backlogs[schema.schema_hash]

    def expect(self, connection: Connection) -> None:
        """Take note of one that was answered and has to confirm it."""
        self.backlog(connection.handshake.schema).expect(connection)

    def settle(self, connection: Connection) -> None:
        """Note whether a channel opened or ended meanwhile."""
        self.backlog(connection.handshake.schema).settle(connection)
