"""Endpoints, a network between them, and a clock that jumps from event to event."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.security import PeerPin
from sphtp.core.timers import earliest
from sphtp.testing.faults import Faults
from sphtp.testing.network import Address
from sphtp.testing.rows import rows
from sphtp.testing.simulation import Simulation

# Messages taken off a connection at once.
BATCH = 256

# Bytes that a node lets out at a stretch.
TURN = 4 * 1024 * 1024


class Stage(Simulation):
    """Endpoints by address, as scripts drive them. Time is in seconds and starts at zero.

    Some may be sealed.

    Datagrams of one size that arrive together are handed over as a row, as a socket does it.

    What is sent to an address where nobody is vanishes.
    """

    def __init__(
        self,
        seed: int,
        endpoints: Mapping[Address, Endpoint],
        faults: Faults | None = None,
    ) -> None:
        super().__init__(seed, faults)
        self.endpoints = dict(endpoints)

    def connect(
        self,
        source: Address,
        destination: Address,
        seconds: float = 60.0,
        *,
        key: bytes | None = None,
    ) -> tuple[Connection, Connection]:
        """Dial, and return the dialler's side and the other, open within ``seconds``.

        ``key`` is the public key that the other must have; raises ``SettingsError`` for one in the
        clear, to which nobody proves a key.
        """
        dialled = self._dial(self.endpoints[source], destination, key)
        answered: list[Connection] = []

        def is_open() -> bool:
            incoming = self.endpoints[destination].poll_incoming()
            if incoming is not None:
                answered.append(incoming)
            return bool(answered)

        self.drive(is_open, seconds)
        return dialled, answered[0]

    def send(self, connection: Connection, payload: bytes) -> None:
        """Queue a message and let it leave."""
        connection.port.send_many([payload])
        self.touch(connection)

    def touch(self, connection: Connection) -> None:
        """Let leave what a command to a connection gave rise to."""
        for endpoint in self.endpoints.values():
            endpoint.touch(connection)
        self._flush()

    def receive(self, connection: Connection) -> list[bytes]:
        """Take every message that is there."""
        received = list[bytes]()
        while batch := connection.port.receive_many(BATCH):
            received += batch
        return received

    def transfer(
        self,
        sender: Connection,
        receiver: Connection,
        payloads: Sequence[bytes],
        seconds: float = 60.0,
    ) -> list[bytes]:
        """Send messages as room allows, read as they come, and return as many as were sent."""
        waiting, received = deque(payloads), list[bytes]()

        def is_over() -> bool:
            before = len(waiting)
            while waiting and sender.port.room_for([len(waiting[0])]):
                sender.port.send_many([waiting.popleft()])
            if len(waiting) < before:
                self.touch(sender)
            received.extend(self.receive(receiver))
            return len(received) >= len(payloads)

        self.drive(is_over, seconds)
        return received

    def _dial(self, endpoint: Endpoint, destination: Address, key: bytes | None) -> Connection:
        if key is None:
            return endpoint.dial(self.now, [destination])
        return endpoint.dial(self.now, [destination], 0, PeerPin(key))

    def _next_time(self) -> float | None:
        endpoints = self.endpoints.values()
        return earliest(self.network.next_time(), *[each.poll_timeout() for each in endpoints])

    def _happen(self) -> None:
        due = rows(self.network.take_due(self.now))
        for destination, group in groupby(due, itemgetter(0)):
            endpoint = self.endpoints.get(destination)
            if endpoint is not None:
                endpoint.handle_rows_untrusted(self.now, [row for _, row in group])
        for endpoint in self.endpoints.values():
            endpoint.handle_timeout(self.now)

    def _flush(self) -> None:
        now = self.now
        for address, endpoint in self.endpoints.items():
            while (transmit := endpoint.poll_transmit(now, TURN)) is not None:
                for datagram in transmit.datagrams:
                    self.network.send(now, address, transmit.address, datagram)
            while endpoint.poll_active() is not None:
                pass
