"""Datagrams that go through a socket together, as one piece of memory."""

from collections.abc import Iterator
from typing import Final, NamedTuple

Address = tuple[str, int]

MOST_DATAGRAMS: Final = 64
MOST_BYTES: Final = 65_000
"""What one system call sends at most."""

MOST_PLAIN: Final = MOST_BYTES - 32 * MOST_DATAGRAMS
"""The same in bytes, as long as a seal may still be put around each."""


class Datagrams(NamedTuple):
    """Datagrams from one address or to one, of ``size`` bytes each; the last one may be shorter.

    What leaves together and comes together is so many times cheaper to hand over.
    """

    address: Address
    data: bytes
    size: int

    @property
    def number(self) -> int:
        """How many they are; an empty one is one, too."""
        return -(-len(self.data) // self.size) if self.data else 1

    @property
    def is_whole(self) -> bool:
        """Whether the last one is as large as the others."""
        return len(self.data) % self.size == 0

    @property
    def datagrams(self) -> list[bytes]:
        """Each for itself."""
        cuts = range(0, len(self.data) or 1, self.size)
        return [self.data[cut : cut + self.size] for cut in cuts]

    @classmethod
    def of(cls, address: Address, datagram: bytes) -> "Datagrams":
        """A row of one."""
        return cls(address, datagram, len(datagram) or 1)


def divide(row: Datagrams, width: int) -> Iterator[Datagrams]:
    """Divide a row into such as begin alike: with the same ``width`` bytes."""
    address, data, size = row
    front, first = data[:width], 0
    for start in range(size, len(data), size):
        if data[start : start + width] != front:
            yield Datagrams(address, data[first:start], size)
            front, first = data[start : start + width], start
    yield row if first == 0 else Datagrams(address, data[first:], size)
