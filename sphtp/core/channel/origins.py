"""Channels by who began them on the other side."""

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.handshake import Origin


class Origins(dict[Origin, Connection]):
    """Which connection takes the CONNECTs of an address and a connection id there."""

    def note(self, connection: Connection) -> None:
        """Take note of where a connection's come from, if anybody has sent one or may."""
        if connection.handshake.origin is not None:
            self.setdefault(connection.handshake.origin, connection)

    def forget(self, connection: Connection) -> None:
        """Keep nothing of a connection."""
        origin = connection.handshake.origin
        if origin is not None and self.get(origin) is connection:
            del self[origin]
