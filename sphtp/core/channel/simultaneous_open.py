"""The channels that this side is opening, and the peers' own attempts that cross them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sphtp.core.channel.handshake import Connect, answering_id
from sphtp.core.channel.lifecycle import State
from sphtp.core.datagrams import Address

if TYPE_CHECKING:
    from sphtp.core.channel.connection import Connection


class SimultaneousOpen:
    """Attempts by connection id, and what is answered meanwhile, under the answering id of that id.

    An attempt goes on until the one that crossed it is heard: who sent that may be nobody.
    """

    def __init__(self) -> None:
        self._dials: dict[int, Connection] = {}
        self._crossings: dict[int, Connection] = {}

    def __len__(self) -> int:
        return len(self._dials) + len(self._crossings)

    def add(self, dial: "Connection") -> None:
        """Note an attempt."""
        self._dials[dial.connection_id] = dial

    def cross(self, answered: "Connection") -> None:
        """Note what is answered under the answering id of an attempt's id."""
        self._crossings[answered.connection_id] = answered

    def discard(self, connection_id: int) -> None:
        """Forget an attempt, of either side, if it is one."""
        self._dials.pop(connection_id, None)
        self._crossings.pop(connection_id, None)

    def settle(self, connection: "Connection") -> "Connection | None":
        """Forget an attempt that is decided; return what crossed it, now a channel like others."""
        is_undecided = connection.state is State.CONNECTING
        if is_undecided or self._dials.pop(connection.connection_id, None) is None:
            return None
        return self._crossings.pop(answering_id(connection.connection_id), None)

    def is_crossing(self, connection_id: int) -> bool:
        """True if this is the id of what is answered while an attempt goes on."""
        return connection_id in self._crossings

    def decide(self, answered: "Connection") -> "Connection | None":
        """Part what is heard from the attempt that it crossed; return that if it still goes on."""
        del self._crossings[answered.connection_id]
        dial = self._dials.get(answering_id(answered.connection_id))
        return dial if dial is not None and dial.state is State.CONNECTING else None

    def crossed_by(self, address: Address, connect: Connect) -> "list[Connection]":
        """Attempts to reach the very peer that sent this CONNECT; it may be one of ours itself."""
        dials = [dial for dial in self._dials.values() if dial.state is State.CONNECTING]
        if any(dial.handshake.token == connect.token for dial in dials):
            return []
        return [dial for dial in dials if dial.handshake.is_from(address, connect)]

    def free_id(self, rivals: "Sequence[Connection]") -> int:
        """The answering id of the first of these that nothing has crossed yet; 0 if all are."""
        ids = (answering_id(rival.connection_id) for rival in rivals)
        return next((it for it in ids if not self.is_crossing(it)), 0)
