"""How much something holds: what lies in its tables, queues and buffers, whoever made them."""

from collections import deque
from typing import NamedTuple

from tests.reach import reach

TABLES = (dict, list, set, deque)
BUFFERS = (bytes, bytearray)


class Census(NamedTuple):
    """Entries of all tables and queues, and bytes in all buffers."""

    entries: int
    size: int


def census(*roots: object) -> Census:
    """Count everything that something holds, directly or not, but for code."""
    entries = size = 0
    for it in reach(*roots):
        if isinstance(it, TABLES):
            entries += len(it)
        elif isinstance(it, BUFFERS):
            size += len(it)
    return Census(entries, size)
