"""A simulated network with loss, delay, reordering, duplicates and corruption, from a seed."""

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
    """A datagram that arrives, with its source and destination."""

    source: Address
    destination: Address
    datagram: bytes


class SimulatedNetwork:
    """Carries datagrams between addresses in virtual time; one seed gives one trace.

    Each path is a link of its own unless it shares one. Each link has its own random generator, so
    that traffic on one path changes nothing on another.
    """

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.seed = seed
        self._default = faults or Faults()
        self._links: dict[Path, Link] = {}
        # The paths with faults of their own.
        self._own: set[Path] = set()
        self._flight = Flight[DeliveredDatagram]()

    @property
    def carried(self) -> int:
        """The number of datagrams that arrived or will arrive, on all paths; copies count."""
        return sum(link.carried for link in set(self._links.values()))

    @property
    def dropped(self) -> int:
        """The number of datagrams that never arrive, on all paths; copies count."""
        return sum(link.dropped for link in set(self._links.values()))

    def set_faults(self, faults: Faults, source: Address, destination: Address) -> None:
        """Change the faults of one path in one direction, and of the paths that share its link."""
        self._own.add((source, destination))
        self._link(source, destination).faults = faults

    def set_default(self, faults: Faults) -> None:
        """Change the faults of every path that has none of its own."""
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
        """Return the statistics of a path's link."""
        return self._link(source, destination).statistics(now)

    def send(self, now: float, source: Address, destination: Address, datagram: bytes) -> None:
        """Send a datagram. It may arrive once, twice or never."""
        for when, arriving in self._link(source, destination).offer(now, datagram):
            self._flight.add(when, DeliveredDatagram(source, destination, arriving))

    def next_time(self) -> float | None:
        """Return when the next datagram arrives; None if none is under way."""
        return self._flight.next_time()

    def take_due(self, now: float) -> list[DeliveredDatagram]:
        """Return the datagrams that have arrived by now, in order of arrival."""
        return self._flight.take_due(now)

    def _link(self, source: Address, destination: Address) -> Link:
        path = source, destination
        link = self._links.get(path)
        if link is None:
            random = Random(f"{self.seed} {source} {destination}")
            link = self._links[path] = Link(self._default, random)
        return link


class Flight(Generic[T]):
    """Items under way, by time of arrival; items of one time keep the order of their adding."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, item: T) -> None:
        """Add an item that arrives at a time."""
        heappush(self._heap, (when, next(self._order), item))

    def next_time(self) -> float | None:
        """Return when the next item arrives; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[T]:
        """Return the items that have arrived by now, in order of arrival."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap)[2])
        return due
