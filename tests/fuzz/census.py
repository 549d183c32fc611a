"""How much something holds: what lies in its tables, queues and buffers, whoever made them."""

import gc
from collections import deque
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import NamedTuple

TABLES = (dict, list, set, deque)
BUFFERS = (bytes, bytearray)


class Census(NamedTuple):
    """Entries of all tables and queues, and bytes in all buffers."""

    entries: int
    size: int


def census(*roots: object) -> Census:
    """Count everything that something holds, directly or not, but for code."""
    entries = size = 0
    for it in _reachable(*roots):
        if isinstance(it, TABLES):
            entries += len(it)
        elif isinstance(it, BUFFERS):
            size += len(it)
    return Census(entries, size)


def _reachable(*roots: object) -> Iterator[object]:
    seen, waiting = set(map(id, roots)), list(roots)
    while waiting:
        it = waiting.pop()
        yield it
        for held in gc.get_referents(it):
            if id(held) not in seen and not isinstance(held, type | ModuleType | FunctionType):
                seen.add(id(held))
                waiting.append(held)
