"""The network of a play: what parties say on it is seen, and lies may be slipped in (13)."""

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from sphtp.testing import Faults
from sphtp.testing.network import Address, SimulatedNetwork
from tests.core.stream.invariants.schedule import Lie

Datagram = tuple[Address, Address, bytes]


class Wire(SimulatedNetwork):
    """A network with a ``tap``; it remembers what was said on it of late."""

    def __init__(self, seed: int, faults: Faults, tap: Callable[[float, Datagram], None]) -> None:
        super().__init__(seed, faults)
        self.said = deque[Datagram](maxlen=256)
        self._tap = tap

    def send(self, now: float, source: Address, destination: Address, datagram: bytes) -> None:
        """Carry what a party says."""
        self.said.append((source, destination, datagram))
        self._tap(now, (source, destination, datagram))
        super().send(now, source, destination, datagram)

    def slip(self, now: float, datagram: Datagram) -> None:
        """Carry what no party says now."""
        super().send(now, *datagram)


def _noise(random: Random, _: bytes) -> bytes:
    return random.randbytes(random.randrange(60))


def _foreign(random: Random, datagram: bytes) -> bytes:
    return datagram[:1] + random.randbytes(4) + datagram[5:]


def _truncated(random: Random, datagram: bytes) -> bytes:
    return datagram[: random.choice((-1, random.randrange(12)))]


def _replayed(_: Random, datagram: bytes) -> bytes:
    return datagram


LIES: Final[Mapping[Lie, Callable[[Random, bytes], bytes]]] = {
    Lie.NOISE: _noise,
    Lie.FOREIGN: _foreign,
    Lie.TRUNCATED: _truncated,
    Lie.REPLAYED: _replayed,
}
