"""The channels that this side is opening, as long as they may cross the peer's own attempts."""

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.handshake import Connect
from sphtp.core.channel.lifecycle import State
from sphtp.core.row import Address

UNDECIDED = (State.CONNECTING, State.ANSWERING)


class Dials:
    """Attempts by connection id; the one that gives way keeps its place under its new id."""

    def __init__(self) -> None:
        self._dials: dict[int, Connection] = {}

    def __len__(self) -> int:
        return len(self._dials)

    def add(self, dial: Connection) -> None:
        """Note an attempt, or one under its new id."""
        self._dials[dial.connection_id] = dial

    def discard(self, connection_id: int) -> None:
        """Forget an attempt, if it is one."""
        self._dials.pop(connection_id, None)

    def settle(self, connection: Connection) -> None:
        """Forget an attempt that is decided."""
        if connection.state not in UNDECIDED:
            self.discard(connection.connection_id)

    def crossed_by(self, address: Address, connect: Connect) -> list[Connection]:
        """Attempts to reach the very peer that sent this CONNECT; it may be one of ours itself."""
        dials = [dial for dial in self._dials.values() if dial.state is State.CONNECTING]
        if any(dial.opening.token == connect.token for dial in dials):
            return []
        return [dial for dial in dials if dial.opening.is_from(address, connect)]
