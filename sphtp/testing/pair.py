"""Two endpoints, a network between them, and a clock that jumps from event to event."""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing.network import Address, Faults, SimulatedNetwork

LEFT: Address = ("10.0.0.1", 1000)
RIGHT: Address = ("10.0.0.2", 2000)

# Steps without a tick of the clock that no honest exchange needs.
STANDSTILL = 10_000


class NeverIdleError(AssertionError):
    """A pair did not get where it was driven, or time stood still.

    The message holds the seed that replays it.
    """


class Pair:
    """Left and right, as scripts drive them.

    ``settings`` serve both sides unless ``right_settings`` are given. Time is in seconds and starts
    at zero.
    """

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        settings: ChannelSettings | None = None,
        right_settings: ChannelSettings | None = None,
    ) -> None:
        settings = settings or ChannelSettings()
        self.seed = seed
        self.now = 0.0
        self._steps = 0
        self.network = SimulatedNetwork(seed, faults)
        self.left = Endpoint(Random(f"{seed} left"), settings, peer_id=1)
        self.right = Endpoint(Random(f"{seed} right"), right_settings or settings, peer_id=3)
        self.endpoints = {LEFT: self.left, RIGHT: self.right}

    def open(self, seconds: float = 60.0) -> tuple[Connection, Connection]:
        """Dial from left to right and return both sides, open within ``seconds``."""
        dialled = self.left.dial(self.now, [RIGHT])
        answered: list[Connection] = []

        def is_open() -> bool:
            incoming = self.right.poll_incoming()
            if incoming is not None:
                answered.append(incoming)
            return bool(answered)

        self.drive(is_open, seconds)
        return dialled, answered[0]

    def send(self, connection: Connection, payload: bytes) -> None:
        """Queue a message and let it leave."""
        connection.send(payload)
        self.touch(connection)

    def touch(self, connection: Connection) -> None:
        """Let leave what a command to a connection gave rise to."""
        for endpoint in self.endpoints.values():
            endpoint.touch(connection)
        self._flush()

    def receive(self, connection: Connection) -> list[bytes]:
        """Take every message that is there."""
        received = []
        while (payload := connection.receive()) is not None:
            received.append(payload)
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
            while waiting and sender.has_room(len(waiting[0])):
                sender.send(waiting.popleft())
            self.touch(sender)
            received.extend(self.receive(receiver))
            return len(received) >= len(payloads)

        self.drive(is_over, seconds)
        return received

    def step(self) -> bool:
        """Jump to the next event and handle it; false when there is none."""
        self._flush()
        times = [self.network.next_time(), self.left.poll_timeout(), self.right.poll_timeout()]
        due = [time for time in times if time is not None]
        if not due:
            return False
        self._tick(max(self.now, min(due)))
        for delivery in self.network.take_due(self.now):
            endpoint = self.endpoints[delivery.destination]
            endpoint.handle_datagram_untrusted(self.now, delivery.source, delivery.datagram)
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

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            self._flush()
            times = [self.network.next_time(), self.left.poll_timeout(), self.right.poll_timeout()]
            if not any(time is not None and time <= end for time in times):
                break
            self.step()
        self.now = end

    def _tick(self, when: float) -> None:
        self._steps = self._steps + 1 if when == self.now else 0
        self.now = when
        if self._steps > STANDSTILL:
            raise NeverIdleError(f"time stands still at {self.now:.3f} s; seed {self.seed}")

    def _flush(self) -> None:
        for address, endpoint in self.endpoints.items():
            while (transmit := endpoint.poll_transmit(self.now)) is not None:
                self.network.send(self.now, address, transmit.address, transmit.datagram)
            while endpoint.poll_active() is not None:
                pass
