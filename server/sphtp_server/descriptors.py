"""The limit of the process's descriptors, raised as far as the system allows."""

import resource
from typing import Final

from sphtp_server.logs import Log

SPARE: Final = 64
"""Descriptors of the process in addition to those of connections."""


def raise_limit(log: Log, connections: int) -> None:
    """Raise the soft limit of descriptors to the hard limit; log a warning if that is too low.

    ``connections`` is the highest number of connections of each of the two sockets, each of which
    needs a descriptor. The soft limit is 1,024 on most systems for programs that pass higher
    descriptors to ``select``, which this program does not.
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
    """Set the soft limit, and return True if it is in force.

    macOS refuses a number over its kernel's maximum.
    """
    if number == soft:
        return True
    if number != hard and number < soft:
        return False
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    except (OSError, ValueError):
        return False
    return True
