"""Simulations of channels: endpoints, a network between them, and a clock that jumps to each event.

A ``Stage`` has endpoints at given addresses, a ``Pair`` has two, and a ``Crowd`` many.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from random import Random

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.instrument import Instrument
from sphtp.core.channel.security import PeerPin, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.timers import earliest
from sphtp.errors import SettingsError
from sphtp.testing.network import Address, Faults, Simulation, rows

# The most messages read from a connection at once.
BATCH = 256

# The most bytes that an endpoint sends in one poll.
TURN = 4 * 1024 * 1024


class Stage(Simulation):
    """A simulation of endpoints at given addresses. Time is in seconds and starts at zero.

    Datagrams of one size that arrive together are delivered as a row, as by a socket. Datagrams to
    an address without an endpoint are dropped. Endpoints may be sealed or in the clear.
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
        """Open a channel; return its connections at both sides, the dialling side first.

        ``key`` is the public key that the peer must have. Raises ``SettingsError`` for a key if the
        dialling endpoint is in the clear, and ``NeverIdleError`` if opening takes more than
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
        """Send a message.

        Raises ``StateError`` if there is no room for it or the channel is not open, and
        ``MessageTooLargeError``.
        """
        connection.port.send_many([payload])
        self.touch(connection)

    def touch(self, connection: Connection) -> None:
        """Send the datagrams that a call on ``connection``, such as ``port.send_many``, has made.

        Call this after each such call.
        """
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
        """Send all messages as room allows; return the received ones when all have arrived.

        Raises ``NeverIdleError`` if that takes more than ``seconds`` of virtual time.
        """
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
            while not endpoint.poll_idle(now):
                if (transmit := endpoint.poll_transmit(now, TURN)) is None:
                    break
                for datagram in transmit.datagrams:
                    self.network.send(now, address, transmit.address, datagram)
            while endpoint.poll_active() is not None:
                pass


LEFT: Address = ("10.0.0.1", 1000)
RIGHT: Address = ("10.0.0.2", 2000)


class Pair(Stage):
    """A simulation of two endpoints, ``left`` and ``right``.

    ``settings`` are for both sides unless ``right_settings`` are given. ``instrument`` observes the
    left side, ``right_instrument`` the right side; an error of an instrument is raised by the call
    that caused the event. ``security`` seals both sides; ``right_security`` replaces it at the
    right side. Each sealed side draws an identity unless its security has one. Time is in seconds
    and starts at zero.
    """

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        settings: ChannelSettings | None = None,
        right_settings: ChannelSettings | None = None,
        *,
        instrument: Instrument | None = None,
        right_instrument: Instrument | None = None,
        security: Security | None = None,
        right_security: Security | None = None,
    ) -> None:
        settings = settings or ChannelSettings()
        self.left = Endpoint(
            Random(f"{seed} left"), settings, 1, security=security, observer=instrument
        )
        self.right = Endpoint(
            Random(f"{seed} right"),
            right_settings or settings,
            3,
            security=right_security or security,
            observer=right_instrument,
        )
        super().__init__(seed, {LEFT: self.left, RIGHT: self.right}, faults)

    def open(
        self, seconds: float = 60.0, *, key: bytes | None = None
    ) -> tuple[Connection, Connection]:
        """Open a channel from left to right; return both sides of it. Raises as ``connect``.

        ``key`` is the public key that a sealed right side must have.
        """
        return self.connect(LEFT, RIGHT, seconds, key=key)


MOST = 65_000


class Crowd(Stage):
    """A simulation of ``count`` endpoints, identified by their position: 0, 1, 2 ...

    Each step polls every endpoint, so that a crowd of thousands is slow. For a bottleneck that
    several paths share, use ``network.share_link``. With ``security`` all endpoints are sealed, and
    each draws an identity unless ``security`` has one. Raises ``SettingsError`` unless there are 1
    to 65,000 endpoints.
    """

    def __init__(
        self,
        seed: int,
        count: int,
        faults: Faults | None = None,
        settings: ChannelSettings | None = None,
        *,
        security: Security | None = None,
    ) -> None:
        if not 1 <= count <= MOST:
            raise SettingsError(f"count is {count}; allowed is 1 to {MOST}")
        settings = settings or ChannelSettings()
        self.addresses: list[Address] = [
            (f"10.1.{position >> 8}.{position & 255}", 1000) for position in range(count)
        ]
        endpoints = {
            address: Endpoint(
                Random(f"{seed} {address}"), settings, 2 * position + 1, security=security
            )
            for position, address in enumerate(self.addresses)
        }
        super().__init__(seed, endpoints, faults)

    def open(
        self, source: int, destination: int, seconds: float = 60.0
    ) -> tuple[Connection, Connection]:
        """Open a channel from one endpoint to another; return its connections at both sides.

        Raises ``NeverIdleError`` if that takes more than ``seconds`` of virtual time.
        """
        return self.connect(self.addresses[source], self.addresses[destination], seconds)
