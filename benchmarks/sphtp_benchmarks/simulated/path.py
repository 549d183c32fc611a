"""A bottleneck that bulk senders share: a line with a queue in front of it."""

from collections import deque
from statistics import fmean
from typing import Final

from sphtp.core.channel.connection import Connection
from sphtp.testing import Crowd, Faults, Link

RATE: Final = 20e6
ROUND_TRIP: Final = 0.050
PRODUCT: Final = round(RATE / 8 * ROUND_TRIP)
"""Bytes that the path holds, and that its queue holds besides."""

ETHERNET: Final = 1472
CHUNKS: Final = [bytes(20_000)] * 10
CHUNK_SIZES: Final = list(map(len, CHUNKS))
WAITING: Final = 1_000_000
"""Bytes that wait in a bulk sender, so that it always has something to send."""

SAMPLE: Final = 0.010


def bottleneck(loss: float = 0.0) -> Faults:
    """Return the faults of one direction of the path, with this share of random loss."""
    return Faults(delay=ROUND_TRIP / 2, rate=RATE, queue=PRODUCT, loss=loss, mtu=ETHERNET)


class Flow:
    """A bulk sender and its receiver."""

    def __init__(self, crowd: Crowd, ends: tuple[Connection, Connection]) -> None:
        self.received = 0
        self._crowd = crowd
        self._sender, self._receiver = ends
        self._began = False

    def begin(self) -> None:
        """Send from now on."""
        self._began = True
        self.work()

    def work(self) -> None:
        """Read the arrived messages; after ``begin``, queue more if there is room for them."""
        crowd = self._crowd
        self.received += sum(map(len, crowd.receive(self._receiver)))
        if self._receiver.port.is_credit_due:
            crowd.touch(self._receiver)
        if self._began and self._sender.port.room_for(CHUNK_SIZES) == len(CHUNKS):
            self._sender.port.send_many(CHUNKS)
            crowd.touch(self._sender)


class Queue:
    """The lengths of a link's queue, in bandwidth-delay products."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._samples: deque[float] = deque()
        self._next = 0.0

    def look(self, now: float) -> None:
        """Take a sample, if it is time."""
        if now >= self._next:
            self._next = now + SAMPLE
            self._samples.append(self._link.statistics(now).queue_bytes / PRODUCT)

    def clear(self) -> None:
        """Forget the samples."""
        self._samples.clear()

    @property
    def mean(self) -> float:
        """The mean of the samples."""
        return fmean(self._samples)

    @property
    def growth(self) -> float:
        """The growth of the mean from the first half of the lengths to the second."""
        samples = list(self._samples)
        half = len(samples) // 2
        return fmean(samples[half:]) - fmean(samples[:half])
