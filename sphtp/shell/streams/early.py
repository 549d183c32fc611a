"""Datagrams that come before the answer that tells what they are: a source does not wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sphtp.core.row import Row

MOST: Final = 4 << 20
"""Bytes that are kept, for all sources that are being joined together."""


class EarlyRows:
    """Keeps rows by session while this node joins any source."""

    def __init__(self) -> None:
        self._joins = 0
        self._size = 0
        self._kept: dict[int, list[Row]] = {}

    @property
    def is_expecting(self) -> bool:
        """Whether a source is being joined."""
        return self._joins > 0

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """Keep rows for the length of the block, in which ``take`` has to be called."""
        self._joins += 1
        try:
            yield
        finally:
            self._joins -= 1
            if not self._joins:
                self._kept.clear()
                self._size = 0

    def keep(self, session: int, row: Row) -> bool:
        """Keep a row; false when nobody expects any, or there are too many."""
        if not self._joins or self._size + len(row.data) > MOST:
            return False
        self._size += len(row.data)
        self._kept.setdefault(session, []).append(row)
        return True

    def take(self, session: int) -> list[Row]:
        """Return what came of a session, in order."""
        rows = self._kept.pop(session, [])
        self._size -= sum(len(row.data) for row in rows)
        return rows
