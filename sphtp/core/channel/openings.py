"""Simultaneous open: this side's attempts, and the peers' attempts that cross them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sphtp.core.channel.handshake import Connect, answering_id
from sphtp.core.channel.lifecycle import State
from sphtp.core.datagrams import Address

if TYPE_CHECKING:
    from sphtp.core.channel.connection import Connection


class SimultaneousOpen:
    """Attempts by connection id, and answered connections by the answering id of that id.

    An attempt goes on until the peer is heard on the connection that crossed it: its CONNECT may
    have been forged or recorded.
    """

    def __init__(self) -> None:
        self._dials: dict[int, Connection] = {}
        self._crossings: dict[int, Connection] = {}

    def __len__(self) -> int:
        return len(self._dials) + len(self._crossings)

    def add(self, dial: "Connection") -> None:
        """Add an attempt of this side."""
        self._dials[dial.connection_id] = dial

    def cross(self, answered: "Connection") -> None:
        """Add a connection that answers a crossing CONNECT under an attempt's answering id."""
        self._crossings[answered.connection_id] = answered

    def discard(self, connection_id: int) -> None:
        """Remove an attempt, or an answered connection, with this id."""
        self._dials.pop(connection_id, None)
        self._crossings.pop(connection_id, None)

    def settle(self, connection: "Connection") -> "Connection | None":
        """Remove an attempt that is decided; return the connection that crossed it, if any.

        From then on that is a channel like others.
        """
        is_undecided = connection.state is State.CONNECTING
        if is_undecided or self._dials.pop(connection.connection_id, None) is None:
            return None
        return self._crossings.pop(answering_id(connection.connection_id), None)

    def is_crossing(self, connection_id: int) -> bool:
        """Return True if this is the id of an answered connection that crosses an attempt."""
        return connection_id in self._crossings

    def decide(self, answered: "Connection") -> "Connection | None":
        """Separate an answered connection from the attempt that it crossed.

        Return the attempt if it still goes on, else None.
        """
        del self._crossings[answered.connection_id]
        dial = self._dials.get(answering_id(answered.connection_id))
        return dial if dial is not None and dial.state is State.CONNECTING else None

    def crossed_by(self, address: Address, connect: Connect) -> "list[Connection]":
        """Return the attempts to reach the peer that sent this CONNECT; none if it is our own."""
        dials = [dial for dial in self._dials.values() if dial.state is State.CONNECTING]
        if any(dial.handshake.token == connect.token for dial in dials):
            return []
        return [dial for dial in dials if dial.handshake.is_from(address, connect)]

    def free_id(self, rivals: "Sequence[Connection]") -> int:
        """Return the answering id of the first attempt that nothing has crossed; else 0."""
        ids = (answering_id(rival.connection_id) for rival in rivals)
        return next((it for it in ids if not self.is_crossing(it)), 0)
