"""The facts about a machine, and about a cluster as this machine reaches it; sizes in bytes."""

from dataclasses import dataclass
from typing import Final

UDP_OVERHEAD: Final = 28
"""Bytes of the IPv4 and UDP headers."""

ENVELOPE: Final = 29
"""Bytes that sealing adds to a packet."""


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface other than loopback."""

    name: str
    is_up: bool
    is_multicast: bool


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """The limits of this machine. Errors are texts, empty if there was no error."""

    buffer_wanted: int
    """The size of the receive buffer that each UDP socket requests."""
    buffer_granted: int
    descriptors_used: int
    descriptors_limit: int
    """The soft limit of a process."""
    descriptors_hard: int
    udp_error: str
    """The error when binding a UDP socket to any free port."""
    interfaces: tuple[Interface, ...]
    multicast_error: str
    """The error when joining multicast DNS on the interfaces with multicast."""
    has_zeroconf: bool
    memory_error: str
    """The error when making a segment of shared memory."""


@dataclass(frozen=True, kw_only=True)
class PortFacts:
    """A TCP port of this machine at which a server listens by default."""

    port: int
    is_taken: bool


@dataclass(frozen=True, kw_only=True)
class ServerFacts:
    """The facts about a server of the cluster."""

    address: str
    host: str
    port: int
    name_error: str = ""
    """The error when resolving its host name."""
    error: str = ""
    """The error of a request for its status."""
    mtu: int | None = None
    """The MTU of the route to it in this machine's kernel; None if there is no route."""
    wall_offset: float | None = None
    """Seconds by which the server's wall clock is ahead of this machine's; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class PeerFacts:
    """The facts about a peer of the cluster."""

    label: str
    host: str
    """The host of the first address that it announces; empty if it announces none."""
    port: int = 0
    error: str = ""
    """The error when opening a channel to it, or of the search for the largest datagram."""
    seconds: float = 0.0
    """The time to open a channel and to get the first reply."""
    mtu: int | None = None
    """The MTU of the route to ``host`` in this machine's kernel; None if there is no route."""
    datagram_size: int | None = None
    """The largest packet that arrived there, without ``ENVELOPE``; None without a search."""


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """The facts about a cluster that a client collects."""

    search_error: str = ""
    """The error of the search for servers."""
    ports: tuple[PortFacts, ...] = ()
    """The default ports, if no server was found."""
    servers: tuple[ServerFacts, ...] = ()
    registration_error: str = ""
    """The error of the registration, if a server replied to a status request."""
    clock_error: float | None = None
    """The bound of the error of the cluster's time here, in seconds; None if there is no time."""
    peers: tuple[PeerFacts, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts about this machine, its keys and the cluster."""

    machine: MachineFacts
    keys_error: str = ""
    """The error when reading the files with keys."""
    has_secret: bool = False
    cluster: ClusterFacts | None = None
    """None if the keys are wrong, or too few descriptors are left."""
