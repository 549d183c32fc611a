"""Joins datagrams that arrive together, as a receiver's kernel does (UDP_GRO)."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from sphtp.core.datagrams import Datagrams
from sphtp.testing.network import Address, DeliveredDatagram

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
