"""A simulated network with loss, delay, reordering, duplicates and corruption, from a seed.

A network has a link for each direction of a path. All parts of a simulation share a virtual time,
which jumps from event to event. ``rows`` joins datagrams that arrive together, as a receiver's
kernel does (UDP_GRO).
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from itertools import count, groupby
from math import inf
from operator import attrgetter
from random import Random
from typing import Final, Generic, TypeVar

from sphtp.core.datagrams import Datagrams
from sphtp.errors import SettingsError

# A link: one direction of a path. It draws the loss, delay and corruption of each datagram.


LARGEST_DATAGRAM = 65_507
"""The largest UDP payload over IPv4, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults, the rate and the delays of one direction of a path.

    Raises ``SettingsError``, naming the field, when a value is out of range.

    Attributes:
        blocked: True drops all datagrams: a partition.
        mtu: bytes of the largest datagram that passes; larger ones are dropped silently.
        duplicate: the share of datagrams that travel twice; all other faults apply to each copy
            separately.
        loss: the share of datagrams that are lost, each independently of the others.
        burst: the share of datagrams outside of bursts that begin one; in a burst, all are lost.
        burst_length: datagrams lost in a burst, on average; lengths are geometric
            (Gilbert's model).
        corrupt: the share of datagrams in which one bit is flipped.
        rate: bits of payload per second that the link transmits, one datagram after the other.
        queue: bytes that may wait for the link or be in transmission; a datagram for which there is
            no room is dropped (tail drop). An idle link takes any datagram.
        delay: seconds from the end of the transmission of a datagram to its arrival.
        jitter: the largest additional delay in seconds. Additional delays are uniform and
            independent for each datagram, so that jitter reorders datagrams.
        reorder: the share of datagrams that are held back, so that later ones overtake them.
        reorder_delay: seconds for which these datagrams are held back.
    """

    blocked: bool = False
    mtu: int = LARGEST_DATAGRAM
    duplicate: float = 0.0
    loss: float = 0.0
    burst: float = 0.0
    burst_length: float = 5.0
    corrupt: float = 0.0
    rate: float = inf
    queue: int = 65_536
    delay: float = 0.01
    jitter: float = 0.0
    reorder: float = 0.0
    reorder_delay: float = 0.01

    def __post_init__(self) -> None:
        for field in fields(self):
            low, high = RANGES[field.name]
            value = getattr(self, field.name)
            if not low <= value <= high:
                raise SettingsError(f"{field.name} is {value}; allowed is {low} to {high}")


_SHARE = (0.0, 1.0)
_SECONDS = (0.0, 3600.0)

RANGES: dict[str, tuple[float, float]] = {
    "blocked": (False, True),
    "mtu": (0, 65_535),
    "duplicate": _SHARE,
    "loss": _SHARE,
    "burst": _SHARE,
    "burst_length": (1.0, 1e9),
    "corrupt": _SHARE,
    "rate": (1.0, inf),
    "queue": (0, 2**40),
    "delay": _SECONDS,
    "jitter": _SECONDS,
    "reorder": _SHARE,
    "reorder_delay": _SECONDS,
}
"""The smallest and the largest allowed value of each field of ``Faults``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatistics:
    """The statistics of a link since its start.

    ``offered + duplicated`` is ``blocked + too_large + lost + queue_dropped + carried``.

    Attributes:
        offered: datagrams that were sent to the link.
        duplicated: additional copies of datagrams.
        blocked: datagrams dropped because of ``Faults.blocked``.
        too_large: datagrams dropped because of ``Faults.mtu``.
        lost: datagrams lost singly or in a burst.
        bursts: bursts that have begun.
        corrupted: datagrams with a flipped bit.
        held_back: datagrams held back by ``Faults.reorder``.
        queue_dropped: datagrams dropped because the queue was full.
        carried: datagrams that have arrived or will arrive.
        carried_bytes: bytes of these datagrams.
        queue_bytes: bytes in the queue now.
        queue_bytes_max: the most bytes that were in the queue.
        queue_delay: seconds that a datagram sent now would wait in the queue.
        queue_delay_mean: the mean of these seconds over all carried datagrams.
        queue_delay_max: the largest of these seconds over all carried datagrams.
    """

    offered: int
    duplicated: int
    blocked: int
    too_large: int
    lost: int
    bursts: int
    corrupted: int
    held_back: int
    queue_dropped: int
    carried: int
    carried_bytes: int
    queue_bytes: int
    queue_bytes_max: int
    queue_delay: float
    queue_delay_mean: float
    queue_delay_max: float


class Link:
    """One direction of a path with ``Faults``, in virtual or real time: the caller passes ``now``.

    ``faults`` may be replaced at any time. The new faults apply to datagrams sent from then on.
    """

    def __init__(self, faults: Faults, random: Random) -> None:
        self.faults = faults
        self._random = random
        self._in_burst = False
        self._queue = _Queue()
        self._offered = 0
        self._duplicated = 0
        self._blocked = 0
        self._too_large = 0
        self._lost = 0
        self._bursts = 0
        self._corrupted = 0
        self._held_back = 0
        self._carried = 0
        self._carried_bytes = 0

    @property
    def carried(self) -> int:
        """The number of datagrams that have arrived or will arrive, duplicates included."""
        return self._carried

    @property
    def dropped(self) -> int:
        """The number of datagrams that never arrive, for any reason, duplicates included."""
        return self._blocked + self._too_large + self._lost + self._queue.dropped

    def offer(self, now: float, datagram: bytes) -> list[tuple[float, bytes]]:
        """Send a datagram; return the time and the content of each of its zero to two arrivals."""
        self._offered += 1
        if not self._happens(self.faults.duplicate):
            return self._carry(now, datagram)
        self._duplicated += 1
        return self._carry(now, datagram) + self._carry(now, datagram)

    def statistics(self, now: float) -> LinkStatistics:
        """Return the statistics since the start, with the present state of the queue."""
        queue = self._queue
        queue.settle(now)
        return LinkStatistics(
            offered=self._offered,
            duplicated=self._duplicated,
            blocked=self._blocked,
            too_large=self._too_large,
            lost=self._lost,
            bursts=self._bursts,
            corrupted=self._corrupted,
            held_back=self._held_back,
            queue_dropped=queue.dropped,
            carried=self._carried,
            carried_bytes=self._carried_bytes,
            queue_bytes=queue.bytes,
            queue_bytes_max=queue.bytes_max,
            queue_delay=queue.delay(now),
            queue_delay_mean=queue.delay_sum / max(1, self._carried),
            queue_delay_max=queue.delay_max,
        )

    def _carry(self, now: float, datagram: bytes) -> list[tuple[float, bytes]]:
        # A lost datagram uses no rate, and no room in the queue.
        if self._is_lost(datagram):
            return []
        faults = self.faults
        if self._happens(faults.corrupt):
            datagram = self._corrupt(datagram)
        leaves = self._queue.put(now, len(datagram), faults.rate, faults.queue)
        if leaves is None:
            return []
        self._carried += 1
        self._carried_bytes += len(datagram)
        return [(leaves + self._travel(), datagram)]

    def _is_lost(self, datagram: bytes) -> bool:
        faults = self.faults
        if faults.blocked:
            self._blocked += 1
            return True
        if len(datagram) > faults.mtu:
            self._too_large += 1
            return True
        # First, so that a burst advances even if ``loss`` would drop the datagram anyway.
        in_burst = faults.burst > 0 and self._is_in_burst()
        if in_burst or self._happens(faults.loss):
            self._lost += 1
            return True
        return False

    def _is_in_burst(self) -> bool:
        if not self._in_burst:
            if not self._happens(self.faults.burst):
                return False
            self._bursts += 1
        self._in_burst = not self._happens(1 / self.faults.burst_length)
        return True

    def _travel(self) -> float:
        faults = self.faults
        seconds = faults.delay
        if faults.jitter:
            seconds += self._random.uniform(0, faults.jitter)
        if self._happens(faults.reorder):
            self._held_back += 1
            seconds += faults.reorder_delay
        return seconds

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share

    def _corrupt(self, datagram: bytes) -> bytes:
        """Flip one bit, unless the datagram is empty."""
        if not datagram:
            return datagram
        self._corrupted += 1
        position = self._random.randrange(len(datagram) * 8)
        flipped = bytearray(datagram)
        flipped[position // 8] ^= 1 << position % 8
        return bytes(flipped)


class _Queue:
    """A queue with a rate, first in, first out. A datagram's departure is fixed on its arrival."""

    __slots__ = ("_leaving", "bytes", "bytes_max", "delay_max", "delay_sum", "dropped", "free_at")

    def __init__(self) -> None:
        self.bytes = 0
        self.bytes_max = 0
        self.delay_sum = 0.0
        self.delay_max = 0.0
        self.dropped = 0
        self.free_at = float("-inf")
        self._leaving: deque[tuple[float, int]] = deque()

    def put(self, now: float, size: int, rate: float, limit: int) -> float | None:
        """Add a datagram; return the time at which it will have left, or None without room."""
        self.settle(now)
        if self.bytes and self.bytes + size > limit:
            self.dropped += 1
            return None
        delay = self.delay(now)
        self.delay_sum += delay
        self.delay_max = max(self.delay_max, delay)
        self.free_at = now + delay + size * 8 / rate
        if self.free_at > now:
            self.bytes += size
            self.bytes_max = max(self.bytes_max, self.bytes)
            self._leaving.append((self.free_at, size))
        return self.free_at

    def delay(self, now: float) -> float:
        """Return the seconds that a datagram arriving now would wait for the link."""
        return max(0.0, self.free_at - now)

    def settle(self, now: float) -> None:
        """Remove the datagrams that have left by now."""
        while self._leaving and self._leaving[0][0] <= now:
            self.bytes -= self._leaving.popleft()[1]


# The network: links between addresses.


T = TypeVar("T")

Address = tuple[str, int]
Path = tuple[Address, Address]
"""Source and destination: one direction."""


@dataclass(frozen=True, slots=True)
class DeliveredDatagram:
    """An arriving datagram, with its source and destination."""

    source: Address
    destination: Address
    datagram: bytes


class SimulatedNetwork:
    """A network that carries datagrams between addresses in virtual time; one seed gives one trace.

    Each path, which is one direction between two addresses, has a link of its own, unless
    ``share_link`` gives it a shared one. Each link has its own random generator, so that traffic on
    one path does not affect the faults of another.
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
        """The number of datagrams that have arrived or will arrive, on all paths."""
        return sum(link.carried for link in set(self._links.values()))

    @property
    def dropped(self) -> int:
        """The number of datagrams that never arrive, on all paths."""
        return sum(link.dropped for link in set(self._links.values()))

    def set_faults(self, faults: Faults, source: Address, destination: Address) -> None:
        """Change the faults of one path in one direction, and of the paths that share its link."""
        self._own.add((source, destination))
        self._link(source, destination).faults = faults

    def set_default(self, faults: Faults) -> None:
        """Change the faults of all paths except those of ``set_faults`` and ``share_link``."""
        self._default = faults
        for path, link in self._links.items():
            if path not in self._own:
                link.faults = faults

    def share_link(self, faults: Faults, *paths: Path) -> Link:
        """Put paths, each ``(source, destination)``, on one new link with one rate and one queue.

        Return the link, whose ``faults`` may be replaced at any time.
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
        """Return the time at which the next datagram arrives; None if none is under way."""
        return self._flight.next_time()

    def take_due(self, now: float) -> list[DeliveredDatagram]:
        """Remove and return the datagrams that have arrived by now, in order of arrival."""
        return self._flight.take_due(now)

    def _link(self, source: Address, destination: Address) -> Link:
        path = source, destination
        link = self._links.get(path)
        if link is None:
            random = Random(f"{self.seed} {source} {destination}")
            link = self._links[path] = Link(self._default, random)
        return link


class Flight(Generic[T]):
    """Items under way, ordered by time of arrival, and for equal times by the order of adding."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, item: T) -> None:
        """Add an item that arrives at the time ``when``."""
        heappush(self._heap, (when, next(self._order), item))

    def next_time(self) -> float | None:
        """Return the time at which the next item arrives; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[T]:
        """Remove and return the items that have arrived by now, in order of arrival."""
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


# Virtual time that jumps from event to event, for all parts of a simulation.


class VirtualClock:
    """A clock that stands still until it is advanced; usable in place of ``time.monotonic``.

    It starts at ``now``, by default 0 seconds. For programs on Trio, use
    ``trio.testing.MockClock``.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def __call__(self) -> float:
        """Return the present time, in seconds."""
        return self._now

    @property
    def now(self) -> float:
        """The present time, in seconds."""
        return self._now

    def advance_to(self, when: float) -> None:
        """Advance the clock to a time; raise ``ValueError`` if it is past."""
        if not when >= self._now:
            raise ValueError(f"time cannot go back from {self._now} s to {when} s")
        self._now = when

    def advance(self, seconds: float) -> None:
        """Advance the clock by ``seconds``; raise ``ValueError`` if they are negative."""
        self.advance_to(self._now + seconds)


STANDSTILL: Final = 10_000
"""The most steps at one time; with more, a simulation counts as stuck."""


class NeverIdleError(AssertionError):
    """The error of a simulation that did not reach its condition, or whose time stood still.

    The message has the seed that repeats the run.
    """


class Simulation(ABC):
    """The base of simulations: a network, a clock, and the parties that use them.

    Time is in seconds and starts at zero. Methods that advance it raise ``NeverIdleError`` if it
    stands still.
    """

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.seed = seed
        self.clock = VirtualClock()
        self.network = SimulatedNetwork(seed, faults)
        self._steps = 0

    @property
    def now(self) -> float:
        """The present time, in seconds."""
        return self.clock.now

    def step(self) -> bool:
        """Advance the clock to the next event and handle it; return False if there is none."""
        self._flush()
        due = self._next_time()
        if due is None:
            return False
        self._tick(max(self.now, due))
        self._happen()
        self._flush()
        return True

    def drive(self, until: Callable[[], bool], seconds: float = 60.0) -> None:
        """Step until a condition holds.

        Raises ``NeverIdleError`` if that takes more than ``seconds`` of virtual time, or no event
        is left.
        """
        deadline = self.now + seconds
        while not until():
            if not self.step() or self.now > deadline:
                raise NeverIdleError(f"not reached after {self.now:.3f} s; seed {self.seed}")

    def run(self, seconds: float, watch: Callable[[], None] | None = None) -> None:
        """Handle the events of the next ``seconds`` of virtual time; call ``watch`` after each."""
        end = self.now + seconds
        self._flush()
        while (due := self._next_time()) is not None and due <= end:
            self.step()
            if watch is not None:
                watch()
        self.clock.advance_to(end)

    @abstractmethod
    def _next_time(self) -> float | None:
        """Return the time of the next event; None if there is none."""

    @abstractmethod
    def _happen(self) -> None:
        """Handle the events that are due now."""

    @abstractmethod
    def _flush(self) -> None:
        """Send the waiting datagrams of all parties."""

    def _tick(self, when: float) -> None:
        self._steps = self._steps + 1 if when == self.now else 0
        self.clock.advance_to(when)
        if self._steps > STANDSTILL:
            raise NeverIdleError(f"time stands still at {self.now:.3f} s; seed {self.seed}")
