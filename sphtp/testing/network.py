"""A network that loses, delays, reorders, duplicates and corrupts, from a seed, in virtual time."""

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from random import Random

Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What happens to datagrams on one direction of a path.

    ``loss``, ``duplicate`` and ``corrupt`` are shares between 0 and 1; ``delay`` and ``jitter``
    seconds. Jitter is uniform and independent for each datagram, so it reorders. ``mtu`` is the
    largest datagram carried, in bytes. A path that is ``blocked`` carries nothing.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    delay: float = 0.01
    jitter: float = 0.0
    mtu: int = 65_507
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """A datagram that arrives."""

    source: Address
    destination: Address
    datagram: bytes


class SimulatedNetwork:
    """Carries datagrams between addresses; one seed gives one trace."""

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.seed = seed
        self.carried = 0
        self.dropped = 0
        self._default = faults or Faults()
        self._paths: dict[tuple[Address, Address], Faults] = {}
        self._random = Random(seed)
        self._order = count()
        self._flying: list[tuple[float, int, Delivery]] = []

    def set_faults(self, faults: Faults, source: Address, destination: Address) -> None:
        """Change one direction of one path, for datagrams sent from now on."""
        self._paths[source, destination] = faults

    def set_default(self, faults: Faults) -> None:
        """Change every path that has no faults of its own."""
        self._default = faults

    def send(self, now: float, source: Address, destination: Address, datagram: bytes) -> None:
        """Put a datagram on its way, perhaps twice, perhaps nowhere."""
        faults = self._paths.get((source, destination), self._default)
        copies = 2 if self._happens(faults.duplicate) else 1
        for _ in range(copies):
            if faults.blocked or len(datagram) > faults.mtu or self._happens(faults.loss):
                self.dropped += 1
                continue
            carried = self._corrupt(datagram) if self._happens(faults.corrupt) else datagram
            when = now + faults.delay + self._random.uniform(0, faults.jitter)
            delivery = Delivery(source, destination, carried)
            heappush(self._flying, (when, next(self._order), delivery))
            self.carried += 1

    def next_time(self) -> float | None:
        """When the next datagram arrives."""
        return self._flying[0][0] if self._flying else None

    def take_due(self, now: float) -> list[Delivery]:
        """Take the datagrams that have arrived by now, in order of arrival."""
        due = []
        while self._flying and self._flying[0][0] <= now:
            due.append(heappop(self._flying)[2])
        return due

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share

    def _corrupt(self, datagram: bytes) -> bytes:
        """Flip one bit, if there is one."""
        if not datagram:
            return datagram
        position = self._random.randrange(len(datagram) * 8)
        flipped = bytearray(datagram)
        flipped[position // 8] ^= 1 << position % 8
        return bytes(flipped)
