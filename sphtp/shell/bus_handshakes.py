"""Connections that are not authenticated yet, and their deadlines.

A connection authenticates itself in steps: by TLS, if the address is for TLS; by the greeting of
SP, eight bytes each way; and, if the cluster has a secret, by a message with a valid MAC. All steps
together have one deadline. The number of unauthenticated connections is limited. If there is one
more, or if a socket has ``max_connections`` or the process no descriptor left, the oldest
unauthenticated connection of the site that has most of them is closed (see ``site_of``). So
strangers displace each other, and an honest newcomer authenticates itself long before its
connection would be closed.

A connection that is authenticated has such a deadline again while only a part of a message has
arrived. As long as it has one, it counts as one of those above.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol

OUT_OF_DESCRIPTORS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
"""The errors of ``accept`` for want of descriptors or memory."""

_IPV6_SITE: Final = 64
"""The leading bits of an IPv6 address that identify a site; one machine may use all others."""


@dataclass(frozen=True, slots=True)
class AcceptLimits:
    """Limits of the sockets that a server listens on."""

    max_connections: int = 8256
    """The most connections of each socket."""
    max_handshakes: int = 1024
    """The most connections of all sockets together that have a deadline."""
    handshake_timeout: float = 10.0
    """Seconds that a connection has to authenticate itself, and for each message that it begins."""


@dataclass(slots=True)
class AcceptCounters:
    """The numbers of connections that ended early, by cause."""

    refused: int = 0
    """Connections refused because there were ``max_connections``, all of them without a deadline.
    """
    evicted: int = 0
    """Connections closed before their deadline, because their place was needed."""
    timed_out: int = 0
    """Connections closed because they did not authenticate themselves, or end a message, in time.
    """
    failed: int = 0
    """Connections closed because TLS failed, or because their greeting was not that of SP, or of a
    wrong socket type.
    """
    out_of_descriptors: int = 0
    """The number of times that the process had no descriptor or memory left for a connection."""


class UnauthenticatedConnection(Protocol):
    """A connection that has a deadline."""

    @property
    def owner(self) -> object:
        """The socket that accepted it."""
        ...

    @property
    def site(self) -> str:
        """The site from which the connection comes, see ``site_of``."""
        ...

    def end(self) -> None:
        """Close the connection."""
        ...


class Handshakes:
    """The connections of one server that have a deadline, the oldest first."""

    def __init__(self, limits: AcceptLimits, *, secret: bool = False) -> None:
        self.limits = limits
        self.counters = AcceptCounters()
        self.asks_for_proof = secret
        """True if the greeting is not enough: a message has to carry a valid MAC."""
        self._due: dict[UnauthenticatedConnection, float] = {}
        self._by_site: dict[str, dict[UnauthenticatedConnection, Callable[[], bool]]] = {}
        self._proven: Counter[str] = Counter()

    def begin(
        self,
        now: float,
        connection: UnauthenticatedConnection,
        excused: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start the deadline of a connection, unless it has one.

        The connection stays open if ``excused`` returns true at the deadline.
        """
        if connection in self._due:
            return
        while len(self._due) >= self.limits.max_handshakes:
            self.evict()
        self._due[connection] = now + self.limits.handshake_timeout
        self._by_site.setdefault(connection.site, {})[connection] = excused

    def end(self, connection: UnauthenticatedConnection) -> None:
        """End the deadline of a connection, if it has one."""
        if self._due.pop(connection, None) is not None:
            of_site = self._by_site[connection.site]
            del of_site[connection]
            if not of_site:
                del self._by_site[connection.site]

    def evict(self, owner: object = None) -> bool:
        """Close the oldest connection of the site that has the most. Return True if there was one.

        With ``owner``, only connections that this socket accepted count.
        """
        crowds = (
            [each for each in crowd if owner in (None, each.owner)]
            for crowd in self._by_site.values()
        )
        crowd = max(crowds, key=len, default=[])
        if not crowd:
            return False
        oldest = crowd[0]
        self.counters.evicted += 1
        self.end(oldest)
        oldest.end()
        return True

    def handle_timeout(self, now: float) -> None:
        """Close the connections that are overdue and not excused."""
        while (due := self.next_due()) is not None and due <= now:
            connection = next(iter(self._due))
            excused = self._by_site[connection.site][connection]
            self.end(connection)
            if not excused():
                self.counters.timed_out += 1
                connection.end()

    def next_due(self) -> float | None:
        """Return the time of the next deadline; None if there is none."""
        return next(iter(self._due.values()), None)

    def trust(self, site: str) -> None:
        """Note that a connection from this site has proved that it has the secret.

        End the deadlines of the connections that are excused because of it.
        """
        self._proven[site] += 1
        if self._proven[site] == 1:
            of_site = self._by_site.get(site, {}).items()
            for connection in [each for each, excused in of_site if excused()]:
                self.end(connection)

    def distrust(self, site: str) -> None:
        """Undo one ``trust``: that connection has ended."""
        self._proven[site] -= 1
        if not self._proven[site]:
            del self._proven[site]

    def trusts(self, site: str) -> bool:
        """Return True if an open connection from this site has proved that it has the secret.

        A connection that only receives cannot prove it. It is accepted because of another one from
        the same site, which sends.
        """
        return site in self._proven


class SpareDescriptor:
    """A spare descriptor, to accept a connection when the process has no other descriptor left.

    A connection that cannot be accepted stays in the queue, and keeps the socket readable. So the
    server accepts it with the spare descriptor, and closes it at once. The peer then tries again.
    """

    def __init__(self) -> None:
        self._descriptor = -1
        self.refill()

    def spend(self) -> bool:
        """Close the spare descriptor. Return True if there was one."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        return descriptor >= 0

    def refill(self) -> None:
        """Open a spare descriptor again if it was spent, and if possible."""
        if self._descriptor < 0:
            with suppress(OSError):
                self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def site_of(host: str) -> str:
    """Return the site of a host: an IPv4 address, or the upper half of an IPv6 address."""
    address = ip_address(host.partition("%")[0])
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> _IPV6_SITE << _IPV6_SITE))
