"""Datagrams that come before the answer that tells what they are: a source does not wait for it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sphtp.core.datagrams import Address, Datagrams

MOST: Final = 4 << 20
"""Bytes that are kept, for all sources that are being joined together; others are repaired."""
OVERHEAD: Final = 512
"""Bytes that a row takes beside its data, about: small ones must not be for nothing."""


class EarlyRows:
    """Keeps rows by session while this node joins a source where they come from."""

    def __init__(self) -> None:
        self._expected = Counter[Address]()
        # Whether a source is being joined.
        self.is_expecting = False
        self._size = 0
        self._kept: dict[int, list[Datagrams]] = {}

    @contextmanager
    def expecting(self, address: Address) -> Iterator[None]:
        """Keep rows from there for the length of the block, in which to call ``take``."""
        self._expected[address] += 1
        self.is_expecting = True
        try:
            yield
        finally:
            self._expected -= Counter([address])
            if not self._expected:
                self.is_expecting = False
                self._kept.clear()
                self._size = 0

    def keep(self, session: int, row: Datagrams) -> bool:
        """Keep a row; false when none is expected from there, or there are too many."""
        size = self._size + _size(row)
        if row.address not in self._expected or size > MOST:
            return False
        self._size = size
        self._kept.setdefault(session, []).append(row)
        return True

    def take(self, session: int) -> list[Datagrams]:
        """Return what came of a session, in order."""
        rows = self._kept.pop(session, [])
        self._size -= sum(map(_size, rows))
        return rows


def _size(row: Datagrams) -> int:
    return OVERHEAD + len(row.data)
