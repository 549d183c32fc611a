"""How far a source may be ahead of a receiver: what both sides have to reckon alike.

It is counted in bytes, each datagram with what a kernel takes for it beside its data: so neither
small datagrams nor large ones use up more of a socket's buffer than they are charged for.
"""

from typing import Final

SHARE: Final = 4
"""Reports in what a source may be ahead: it is never kept waiting for one that is on its way."""

OVERHEAD: Final = 768
"""Bytes charged for a datagram beside its body: Linux takes as many for the smallest one."""


def first_grant(reach: int) -> int:
    """How many bytes a source may be ahead of one that has said nothing yet.

    ``reach`` is how many it may be ahead at most; 0 for no matter how many.
    """
    return max(reach // SHARE, 1) if reach else 0
