"""Facts: the description of a machine, and of a cluster as seen from it. Sizes are in bytes."""

from dataclasses import dataclass
from typing import Final

UDP_OVERHEAD: Final = 28
"""Bytes of the IPv4 and UDP headers."""

ENVELOPE: Final = 29
"""Bytes that sealing adds to a packet."""


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface besides loopback."""

    name: str
    is_up: bool
    is_multicast: bool


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """The limits of this machine. An error is a text, empty for none."""

    buffer_wanted: int
    """The receive buffer that each UDP socket asks for."""
    buffer_granted: int
    descriptors_used: int
    descriptors_limit: int
    """The soft limit of a process."""
    descriptors_hard: int
    udp_error: str
    """The error of binding a UDP socket to any free port."""
    interfaces: tuple[Interface, ...]
    multicast_error: str
    """The error of joining multicast DNS on an interface that has multicast."""
    has_zeroconf: bool
    memory_error: str
    """The error of making a segment of shared memory."""


@dataclass(frozen=True, kw_only=True)
class PortFacts:
    """A TCP port of this machine at which a server listens by default."""

    port: int
    is_taken: bool


@dataclass(frozen=True, kw_only=True)
class ServerFacts:
    """A server of the cluster."""

    address: str
    host: str
    port: int
    name_error: str = ""
    """The error of looking up its host's name."""
    error: str = ""
    """The error of asking it for its status."""
    mtu: int | None = None
    """The MTU of the route to it, as this machine knows it."""
    wall_offset: float | None = None
    """Seconds by which the server's wall clock is ahead of this machine's, if it says the time."""


@dataclass(frozen=True, kw_only=True)
class PeerFacts:
    """A peer of the cluster."""

    label: str
    host: str
    """The first address that it announces; empty for none."""
    port: int = 0
    error: str = ""
    """The error of opening a channel to it."""
    seconds: float = 0.0
    """The time until it answered."""
    mtu: int | None = None
    """The MTU of the route to it, as this machine knows it."""
    datagram_size: int | None = None
    """The largest packet that arrived there, without ``ENVELOPE``; None if none was searched."""


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """A cluster as a client sees it."""

    search_error: str = ""
    """The error of searching for servers."""
    ports: tuple[PortFacts, ...] = ()
    """The default ports, if no server was found."""
    servers: tuple[ServerFacts, ...] = ()
    registration_error: str = ""
    """The error of registering, if a server answered."""
    clock_error: float | None = None
    """The most seconds by which the cluster's time is wrong here; None if it is not known."""
    peers: tuple[PeerFacts, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All facts: those that could not be collected are None."""

    machine: MachineFacts
    keys_error: str = ""
    """The error of reading the files with keys."""
    has_secret: bool = False
    cluster: ClusterFacts | None = None
