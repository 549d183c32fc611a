"""A simulated network with loss, delay, reordering, duplicates and corruption, from a seed.

Datagrams that arrive together are joined to rows, as a receiver's kernel does (UDP_GRO).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, groupby
from operator import attrgetter
from random import Random
from typing import Final, Generic, TypeVar

from sphtp.core.datagrams import Datagrams
from sphtp.testing.link import Faults, Link, LinkStatistics

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


MOST_DATAGRAMS: Final = 64
MOST_BYTES: Final = 65_535


def rows(deliveries: Sequence[DeliveredDatagram]) -> Iterator[tuple[Address, Datagrams]]:
    """Yield rows of datagrams with their destinations, in order of arrival.

    A row has consecutive datagrams of one path and one size; the last one may be shorter.
    """
    for (source, destination), group in groupby(deliveries, attrgetter("source", "destination")):
        joined: list[bytes] = []
        for delivery in group:
            if joined and not _fits(joined, delivery.datagram):
                yield destination, _row(source, joined)
                joined = []
            joined.append(delivery.datagram)
        yield destination, _row(source, joined)


def _fits(joined: Sequence[bytes], datagram: bytes) -> bool:
    size = len(joined[0])
    is_open = len(joined) < MOST_DATAGRAMS and len(joined[-1]) == size
    has_room = len(joined) * size + len(datagram) <= MOST_BYTES
    return is_open and has_room and 0 < len(datagram) <= size


def _row(source: Address, joined: Sequence[bytes]) -> Datagrams:
    return Datagrams(source, b"".join(joined), len(joined[0]) or 1)
