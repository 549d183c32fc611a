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

# The number of messages read from a connection at once.
BATCH = 256

# The most bytes that a node sends in one poll.
TURN = 4 * 1024 * 1024


class Stage(Simulation):
    """Endpoints by address, for tests and scripts. Time is in seconds and starts at zero.

    Datagrams of one size that arrive together are delivered as a row, as a socket does. A datagram
    to an address without an endpoint vanishes. Some endpoints may be sealed.
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
        """Dial; return both sides of the channel, the dialling one first.

        ``key`` is the public key that the peer must have. Raises ``SettingsError`` for a key in the
        clear, where no peer proves one, and ``NeverIdleError`` if opening takes more than
        ``seconds``.
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
        """Queue a message, and send what may leave."""
        connection.port.send_many([payload])
        self.touch(connection)

    def touch(self, connection: Connection) -> None:
        """Send what a command to a connection has queued."""
        for endpoint in self.endpoints.values():
            endpoint.touch(connection)
        self._flush()

    def receive(self, connection: Connection) -> list[bytes]:
        """Return every message that can be read."""
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
        """Send all messages as room allows; return the received ones when there are as many."""
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
