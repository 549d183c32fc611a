"""Connections that have still to prove themselves, and what happens when they do not.

A connection proves itself in steps: in TLS, where that is asked for; in the greeting of SP, eight
bytes each way; and, where the cluster has a secret, by a message that the secret vouches for. All
of them together have one deadline. So many may be on their way at a time: one more, or the last
descriptor of the process, costs the network address that holds the most of them its oldest one.
Strangers push out each other, and a newcomer that does answer is through long before its turn.
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
"""The errors of ``accept`` that say so: of this process, of the machine, or of its memory."""

_IPV6_SITE: Final = 64
"""Bits of an IPv6 address that tell sites apart; one machine may use all addresses below them."""


@dataclass(frozen=True, slots=True)
class AcceptLimits:
    """Bounds of the sockets that a server listens on."""

    max_connections: int = 8256
    """Connections of each socket."""
    max_handshakes: int = 1024
    """Connections of all sockets together that have not proved themselves yet."""
    handshake_timeout: float = 10.0
    """Seconds that a connection has for that, and for each message that it begins."""


@dataclass(slots=True)
class AcceptCounters:
    """Connections that were ended early, counted by cause."""

    refused: int = 0
    """There were ``max_connections``, and all had proved themselves."""
    evicted: int = 0
    """They had not proved themselves, and their place was needed."""
    timed_out: int = 0
    """They did not prove themselves in time, or did not end a message that they had begun."""
    failed: int = 0
    """Their first bytes were no TLS, no SP, or those of the wrong sort of socket."""
    out_of_descriptors: int = 0
    """Times that the process had no descriptor left for a connection."""


class UnauthenticatedConnection(Protocol):
    """A connection, as far as it matters here."""

    @property
    def owner(self) -> object:
        """The socket that accepted it."""
        ...

    @property
    def site(self) -> str:
        """The network that it comes from, see ``site_of``."""
        ...

    def end(self) -> None:
        """Close it."""
        ...


class Handshakes:
    """The connections of one server that owe it something, the one that does so longest first."""

    def __init__(self, limits: AcceptLimits, *, secret: bool = False) -> None:
        self.limits = limits
        self.counters = AcceptCounters()
        self.asks_for_proof = secret
        """True if the greeting is not enough: a message has to be vouched for."""
        self._due: dict[UnauthenticatedConnection, float] = {}
        self._by_site: dict[str, dict[UnauthenticatedConnection, Callable[[], bool]]] = {}
        self._proven: Counter[str] = Counter()

    def begin(
        self,
        now: float,
        connection: UnauthenticatedConnection,
        excused: Callable[[], bool] = lambda: False,
    ) -> None:
        """Give a connection its deadline. ``excused`` is asked then, and may have it stay."""
        if connection in self._due:
            return
        while len(self._due) >= self.limits.max_handshakes:
            self.evict()
        self._due[connection] = now + self.limits.handshake_timeout
        self._by_site.setdefault(connection.site, {})[connection] = excused

    def end(self, connection: UnauthenticatedConnection) -> None:
        """Let go of a connection that owes nothing any more, or is closed."""
        if self._due.pop(connection, None) is not None:
            of_site = self._by_site[connection.site]
            del of_site[connection]
            if not of_site:
                del self._by_site[connection.site]

    def evict(self, owner: object = None) -> bool:
        """Close the oldest connection of whoever has the most here; tell whether there was one.

        Only those that one socket accepted are looked at, if it is given.
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
        """Close what is overdue."""
        while (due := self.next_due()) is not None and due <= now:
            connection = next(iter(self._due))
            excused = self._by_site[connection.site][connection]
            self.end(connection)
            if not excused():
                self.counters.timed_out += 1
                connection.end()

    def next_due(self) -> float | None:
        """Return the time at which the next one is overdue."""
        return next(iter(self._due.values()), None)

    def trust(self, site: str) -> None:
        """Note that a connection from there has proved that it knows the secret."""
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
        """Return whether a connection from this site has proved to know the secret.

        A connection that only listens cannot prove it; it is believed for the sake of the one that
        comes from the same place and speaks.
        """
        return site in self._proven


class SpareDescriptor:
    """A descriptor kept back, so that a connection can be taken when there is none left.

    What cannot be accepted stays in the queue and is reported as waiting for ever; accepted with
    the last descriptor and closed, it is told, and tries again.
    """

    def __init__(self) -> None:
        self._descriptor = -1
        self.refill()

    def spend(self) -> bool:
        """Give the descriptor up, if there is one; tell whether there was."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        return descriptor >= 0

    def refill(self) -> None:
        """Take one again, if there is one."""
        if self._descriptor < 0:
            with suppress(OSError):
                self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def site_of(host: str) -> str:
    """Return what stands for everybody at one place: an IPv4 address, or half an IPv6 address."""
    address = ip_address(host.partition("%")[0])
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> _IPV6_SITE << _IPV6_SITE))
