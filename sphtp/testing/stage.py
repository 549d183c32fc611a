"""Endpoints, a network between them, and a clock that jumps from event to event."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.gate.endpoint import SealedEndpoint
from sphtp.testing.clock import VirtualClock
from sphtp.testing.faults import Faults
from sphtp.testing.network import Address, SimulatedNetwork
from sphtp.testing.rows import rows

# Steps without a tick of the clock that no honest exchange needs.
STANDSTILL = 10_000

# Messages taken off a connection at once.
BATCH = 256


class NeverIdleError(AssertionError):
    """A stage did not get where it was driven, or time stood still.

    The message holds the seed that replays it.
    """


class Stage:
    """Endpoints by address, as scripts drive them. Time is in seconds and starts at zero.

    Some may be sealed.

    Datagrams of one size that arrive together are handed over as a row, as a socket does it.

    What is sent to an address where nobody is vanishes.
    """

    def __init__(
        self,
        seed: int,
        endpoints: Mapping[Address, Endpoint | SealedEndpoint],
        faults: Faults | None = None,
    ) -> None:
        self.seed = seed
        self.clock = VirtualClock()
        self.network = SimulatedNetwork(seed, faults)
        self.endpoints = dict(endpoints)
        self._steps = 0

    @property
    def now(self) -> float:
        """The present, in seconds."""
        return self.clock.now

    def connect(
        self, source: Address, destination: Address, seconds: float = 60.0
    ) -> tuple[Connection, Connection]:
        """Dial, and return the dialler's side and the other, open within ``seconds``."""
        dialled = self.endpoints[source].dial(self.now, [destination])
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
            while waiting and sender.port.room_for([len(waiting[0])]):
                sender.port.send_many([waiting.popleft()])
            self.touch(sender)
            received.extend(self.receive(receiver))
            return len(received) >= len(payloads)

        self.drive(is_over, seconds)
        return received

    def step(self) -> bool:
        """Jump to the next event and handle it; false when there is none."""
        self._flush()
        due = self._next_time()
        if due is None:
            return False
        self._tick(max(self.now, due))
        for destination, row in rows(self.network.take_due(self.now)):
            endpoint = self.endpoints.get(destination)
            if endpoint is not None:
                endpoint.handle_row_untrusted(self.now, row)
        for endpoint in self.endpoints.values():
            endpoint.handle_timeout(self.now)
        self._flush()
        return True

    def drive(self, until: Callable[[], bool], seconds: float = 60.0) -> None:
        """Step until a condition holds; raises ``NeverIdleError`` after ``seconds`` of its time."""
        deadline = self.now + seconds
        while not until():
            if not self.step() or self.now > deadline:
                raise NeverIdleError(f"not reached after {self.now:.3f} s; seed {self.seed}")

    def run(self, seconds: float, watch: Callable[[], None] | None = None) -> None:
        """Let time pass; ``watch`` is called after each event."""
        end = self.now + seconds
        self._flush()
        while (due := self._next_time()) is not None and due <= end:
            self.step()
            if watch is not None:
                watch()
        self.clock.advance_to(end)

    def _next_time(self) -> float | None:
        times = [self.network.next_time()]
        times += [endpoint.poll_timeout() for endpoint in self.endpoints.values()]
        return min((time for time in times if time is not None), default=None)

    def _tick(self, when: float) -> None:
        self._steps = self._steps + 1 if when == self.now else 0
        self.clock.advance_to(when)
        if self._steps > STANDSTILL:
            raise NeverIdleError(f"time stands still at {self.now:.3f} s; seed {self.seed}")

    def _flush(self) -> None:
        for address, endpoint in self.endpoints.items():
            while (transmit := endpoint.poll_transmit(self.now)) is not None:
                for datagram in transmit.datagrams:
                    self.network.send(self.now, address, transmit.address, datagram)
            while endpoint.poll_active() is not None:
                pass
