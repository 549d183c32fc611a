"""How far a source may be ahead of a receiver: what both sides have to reckon alike."""

from typing import Final

SHARE: Final = 4
"""Reports in what a source may be ahead: it is never kept waiting for one that is on its way."""


def first_grant(reach: int) -> int:
    """How many datagrams a source may be ahead of one that has said nothing yet.

    ``reach`` is how many it may be ahead at most; 0 for no matter how many.
    """
    return max(reach // SHARE, 1) if reach else 0
