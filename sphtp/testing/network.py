"""A network that loses, delays, reorders, duplicates and corrupts, from a seed, in virtual time."""

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Generic, TypeVar

from sphtp.testing.faults import Faults
from sphtp.testing.link import Link, LinkStatistics

T = TypeVar("T")

Address = tuple[str, int]
Path = tuple[Address, Address]
"""Source and destination: one direction."""


@dataclass(frozen=True, slots=True)
class DeliveredDatagram:
    """A datagram that arrives."""

    source: Address
    destination: Address
    datagram: bytes


class SimulatedNetwork:
    """Carries datagrams between addresses; one seed gives one trace.

    Every path is a link of its own unless it shares one. A link draws from a generator of its own,
    so that traffic on one path changes nothing on another.
    """

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.seed = seed
        self._default = faults or Faults()
        self._links: dict[Path, Link] = {}
        # Those whose faults are not the default's.
        self._own: set[Path] = set()
        self._flight = Flight[DeliveredDatagram]()

    @property
    def carried(self) -> int:
        """Datagrams that arrived or will, on all paths; copies count."""
        return sum(link.carried for link in set(self._links.values()))

    @property
    def dropped(self) -> int:
        """Datagrams that never arrive, on all paths, for whatever reason; copies count."""
        return sum(link.dropped for link in set(self._links.values()))

    def set_faults(self, faults: Faults, source: Address, destination: Address) -> None:
        """Change one direction of one path, and all that share its link, from now on."""
        self._own.add((source, destination))
        self._link(source, destination).faults = faults

    def set_default(self, faults: Faults) -> None:
        """Change every path that has no faults of its own, from now on."""
        self._default = faults
        for path, link in self._links.items():
            if path not in self._own:
                link.faults = faults

    def share_link(self, faults: Faults, *paths: Path) -> Link:
        """Put paths, each ``(source, destination)``, on one new link: one rate, one queue.

        The link's ``faults`` may be replaced while it runs.
        """
        link = Link(faults, Random(f"{self.seed} {paths}"))
        self._own.update(paths)
        self._links.update(dict.fromkeys(paths, link))
        return link

    def statistics(self, now: float, source: Address, destination: Address) -> LinkStatistics:
        """Return the figures of the link on which a path is."""
        return self._link(source, destination).statistics(now)

    def send(self, now: float, source: Address, destination: Address, datagram: bytes) -> None:
        """Put a datagram on its way, perhaps twice, perhaps nowhere."""
        for when, arriving in self._link(source, destination).offer(now, datagram):
            self._flight.add(when, DeliveredDatagram(source, destination, arriving))

    def next_time(self) -> float | None:
        """The time at which the next datagram arrives."""
        return self._flight.next_time()

    def take_due(self, now: float) -> list[DeliveredDatagram]:
        """Take the datagrams that have arrived by now, in order of arrival."""
        return self._flight.take_due(now)

    def _link(self, source: Address, destination: Address) -> Link:
        path = source, destination
        link = self._links.get(path)
        if link is None:
            random = Random(f"{self.seed} {source} {destination}")
            link = self._links[path] = Link(self._default, random)
        return link


class Flight(Generic[T]):
    """Things under way, by time of arrival; those of one time in the order of their adding."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, item: T) -> None:
        """Let something arrive at a time."""
        heappush(self._heap, (when, next(self._order), item))

    def next_time(self) -> float | None:
        """The time at which the next one arrives."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[T]:
        """Take what has arrived by now, in order of arrival."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap)[2])
        return due
