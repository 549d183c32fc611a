"""Raise the process's limit of descriptors as far as allowed, and warn if that is too low."""

import resource
from typing import Final

from sphtp_server.logs import Log

SPARE: Final = 64
"""Descriptors of the process besides the connections of clients and servers."""


def raise_limit(log: Log, connections: int) -> None:
    """Raise the limit to what the system allows, and warn when that is less than is needed.

    The soft limit is 1,024 almost everywhere for the sake of programs that call ``select``, which
    this one does not; a connection needs a descriptor. ``connections`` are those of each socket.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * connections + SPARE
    limit = next((number for number in (hard, needed) if _raise(soft, number, hard)), soft)
    if limit != hard:
        log.info(
            "the system allows fewer descriptors than its hard limit", limit=limit, refused=hard
        )
    if limit != resource.RLIM_INFINITY and limit < needed:
        log.warning(
            "few descriptors: connections beyond them are closed; raise the limit "
            "(ulimit -Hn), or lower --max-connections",
            limit=limit,
            needed=needed,
        )


def _raise(soft: int, number: int, hard: int) -> bool:
    """Set the soft limit; return whether it holds. macOS refuses more than its kernel's maximum."""
    if number == soft:
        return True
    if number != hard and number < soft:
        return False
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    except (OSError, ValueError):
        return False
    return True
