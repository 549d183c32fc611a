"""One direction of a path, which decides the loss, delay and damage of each datagram."""

from collections import deque
from dataclasses import dataclass, fields
from math import inf
from random import Random

from sphtp.errors import SettingsError

LARGEST_DATAGRAM = 65_507
"""The largest UDP payload over IPv4, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults of one direction of a path, in the order in which they happen to a datagram.

    Raises ``SettingsError``, naming the field, when a value is out of range.

    Attributes:
        blocked: nothing is carried: a partition.
        mtu: bytes of the largest datagram carried; larger ones vanish silently.
        duplicate: the share of datagrams that travel twice; later faults hit each copy separately.
        loss: the share lost, each independently of all others.
        burst: the share of datagrams that begin a burst, in which all datagrams are lost.
        burst_length: datagrams lost in a burst, on average; lengths are geometric
            (Gilbert's model).
        corrupt: the share in which one bit is flipped.
        rate: bits of payload per second that the link lets through, one datagram after the other.
        queue: bytes that may wait for the link or be on it; what finds no room is dropped (tail
            drop). An idle link takes any datagram.
        delay: seconds that every datagram travels after it has left the link.
        jitter: seconds; the largest of the extra delays, which are uniform and independent for
            each datagram, so that jitter reorders.
        reorder: the share held back, so that later ones overtake them.
        reorder_delay: seconds for which they are held back.
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
"""The smallest and the largest value allowed of each field of ``Faults``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatistics:
    """The counts of a link so far; datagrams, bytes of payload, seconds.

    ``offered + duplicated`` is ``blocked + too_large + lost + queue_dropped + carried``.
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

    ``faults`` may be replaced at any time; that changes nothing for datagrams that are already
    under way or in the queue.
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
        """The number of datagrams that arrived or will arrive; copies count."""
        return self._carried

    @property
    def dropped(self) -> int:
        """The number of datagrams that never arrive, for any reason; copies count."""
        return self._blocked + self._too_large + self._lost + self._queue.dropped

    def offer(self, now: float, datagram: bytes) -> list[tuple[float, bytes]]:
        """Send a datagram; return the time and content of each arrival: none, one or two."""
        self._offered += 1
        if not self._happens(self.faults.duplicate):
            return self._carry(now, datagram)
        self._duplicated += 1
        return self._carry(now, datagram) + self._carry(now, datagram)

    def statistics(self, now: float) -> LinkStatistics:
        """Return the counts so far, and the present state of the queue."""
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
        # A burst goes on whether or not one of its datagrams would have been lost anyway.
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
        """Add a datagram; return when it will have left, or None if there is no room."""
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
