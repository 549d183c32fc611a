"""The collection of facts: from the system, and from a cluster as its client.

Errors become texts in the facts. ``findings`` judges them.
"""

import errno
import fcntl
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from math import isfinite
from struct import Struct
from typing import Any, Final
from urllib.parse import urlsplit

import trio

import sphtp
from sphtp import Client, Peer, ServerAddress
from sphtp.core.channel.path_mtu import BASE
from sphtp.core.control.records import MAX_MEMBERS
from sphtp.core.printable import peer_label
from sphtp.errors import SettingsError, SphtpError
from sphtp.observe import Instrument, WatchedChannel, fetch_status
from sphtp.shell.discovery import find_servers
from sphtp.shell.udp import BUFFER
from sphtp_client.doctor.facts import (
    ENVELOPE,
    ClusterFacts,
    Facts,
    Interface,
    MachineFacts,
    PeerFacts,
    PortFacts,
    ServerFacts,
)
from sphtp_client.doctor.findings import FEW_DESCRIPTORS, is_large_enough
from sphtp_client.terminal.connection import LOST, TerminalOptions
from sphtp_client.terminal.peers import introduced
from sphtp_client.terminal.ping import answer_of

PORTS: Final = (8764, 8765)
"""The default TCP ports of a server."""

USUAL: Final = ServerAddress.parse(f"tcp://127.0.0.1:{PORTS[0]}")

MULTICAST_DNS: Final = "224.0.0.251"

GET_FLAGS: Final = 0x8913
"""The request for an interface's flags (SIOCGIFFLAGS), from the kernel's headers."""

_REQUEST: Final = Struct("16sH22x")

MTU: Final = {
    socket.AF_INET: (socket.IPPROTO_IP, 14),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 24),
}
"""The option with the MTU of a connected socket's route, from the kernel's headers."""

IS_UP: Final = 0x1
IS_LOOPBACK: Final = 0x8
IS_MULTICAST: Final = 0x1000

MOST_PEERS: Final = 32
"""The most peers that are checked at the same time."""

SEARCH: Final = 3.0
"""The longest search for the largest datagram of a path, in seconds."""

FILLING: Final = bytes(4000)
"""The value of a ping that is large enough to fill packets."""

PAUSE: Final = 0.02
"""Seconds between two large pings."""


async def collect(options: TerminalOptions) -> Facts:
    """Return all facts; those of the cluster only if keys are readable and descriptors are left."""
    machine = collect_machine()
    try:
        config = options.config()
    except SettingsError as error:
        return Facts(machine=machine, keys_error=str(error))
    has_secret = config.cluster.secret is not None
    facts = Facts(machine=machine, has_secret=has_secret)
    if machine.descriptors_limit - machine.descriptors_used < FEW_DESCRIPTORS:
        return facts
    return replace(facts, cluster=await collect_cluster(options, config))


# This machine


def collect_machine() -> MachineFacts:
    """Return the limits of this machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        granted, udp_error = 0, ""
        try:
            bound = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            # The kernel reports twice the granted size, to include its own overhead.
            granted = bound.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
            bound.bind(("127.0.0.1", 0))
        except OSError as error:
            udp_error = _text(error)
    interfaces = tuple(_interfaces())
    return MachineFacts(
        buffer_wanted=BUFFER,
        buffer_granted=granted,
        descriptors_used=len(os.listdir("/proc/self/fd")),
        descriptors_limit=soft,
        descriptors_hard=hard,
        udp_error=udp_error,
        interfaces=interfaces,
        multicast_error=_error_of(partial(_join_multicast, interfaces)),
        has_zeroconf=find_spec("zeroconf") is not None,
        memory_error=_error_of(_make_segment),
    )


def _text(error: OSError) -> str:
    return error.strerror or str(error)


def _error_of(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except OSError as error:
        return _text(error)
    return ""


def _interfaces() -> list[Interface]:
    found = list[Interface]()
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            # The files of /sys may be those of another network namespace.
            asked = _REQUEST.pack(name.encode(), 0)
            _, flags = _REQUEST.unpack(fcntl.ioctl(asking, GET_FLAGS, asked))
            if not flags & IS_LOOPBACK:
                is_up, is_multicast = bool(flags & IS_UP), bool(flags & IS_MULTICAST)
                found.append(Interface(name=name, is_up=is_up, is_multicast=is_multicast))
    return found


def _join_multicast(interfaces: Iterable[Interface]) -> None:
    """Join multicast DNS on an interface, as a search does. Raises ``OSError`` if all fail."""
    failure = None
    for interface in interfaces:
        if interface.is_up and interface.is_multicast:
            group, index = socket.inet_aton(MULTICAST_DNS), socket.if_nametoindex(interface.name)
            membership = group + bytes(4) + index.to_bytes(4, sys.byteorder)
            try:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
                    opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, membership)
                    opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
                    return
            except OSError as error:
                failure = error
    if failure is not None:
        raise failure


def _make_segment() -> None:
    descriptor = os.memfd_create("sphtp-doctor", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, 1 << 20)
    finally:
        os.close(descriptor)


def collect_ports() -> list[PortFacts]:
    """Return the default ports of a server, each free or taken."""
    return [PortFacts(port=port, is_taken=_is_taken(port)) for port in PORTS]


def _is_taken(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        try:
            bound.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def route_mtu(host: str, port: int) -> int | None:
    """Return the MTU of the route to an address in this machine's kernel.

    None without a route, and for an empty host.
    """
    if not host:
        return None  # the kernel would take it for this machine
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as opened:
            opened.connect((host, port or 9))
            return opened.getsockopt(*MTU[family])
    except OSError:
        return None


# The cluster


class PathSizes(Instrument):
    """An instrument that stores the path MTU of each channel, without the envelope of sealing."""

    def __init__(self) -> None:
        self._channels: dict[WatchedChannel, int] = {}

    def path_mtu_changed(self, now: float, channel: WatchedChannel, size: int) -> None:
        """Store the size."""
        self._channels[channel] = size

    def of(self, peer_id: int) -> int:
        """Return the largest size of the paths to a peer; the base size before any other."""
        found = [size for it, size in self._channels.items() if it.peer_id == peer_id]
        return max(found, default=BASE - ENVELOPE)


async def _search_size(client: Client, peer: Peer, paths: PathSizes, mtu: int) -> int:
    """Send large pings until the path MTU is as large as expected, or time is up; return it.

    A channel discovers its path MTU while it sends full packets.
    """
    with trio.move_on_after(SEARCH):
        while not is_large_enough(paths.of(peer.id), mtu):
            await answer_of(client, peer, SEARCH, FILLING)
            await trio.sleep(PAUSE)
    return paths.of(peer.id)


async def collect_cluster(options: TerminalOptions, config: sphtp.Config) -> ClusterFacts:
    """Return the facts of the cluster with the given servers, or of the cluster that is found.

    Raises ``SettingsError`` for a malformed address.
    """
    addresses = [ServerAddress.parse(each) for each in options.server]
    try:
        addresses = addresses or await find_servers(config)
    except SphtpError as error:
        # A server may belong to another user, or announce itself nowhere.
        servers = await _collect_servers([USUAL], config)
        answering = _answering(servers)
        if not answering:
            return ClusterFacts(search_error=str(error), ports=tuple(collect_ports()))
    else:
        servers = await _collect_servers(addresses, config)
        answering = _answering(servers)
    cluster = ClusterFacts(servers=tuple(servers.values()))
    if not answering:
        return cluster
    paths = PathSizes()
    config = replace(config, instruments=(paths,))
    try:
        async with sphtp.open_client(answering, config=config) as client:
            clock_error = await _clock_error(client, options.timeout)
            peers = await introduced(client, options)
            found = await _collect_peers(client, peers, paths, options.timeout)
    except LOST as error:
        return replace(cluster, registration_error=str(error))
    return replace(cluster, clock_error=clock_error, peers=tuple(found))


def _answering(servers: Mapping[ServerAddress, ServerFacts]) -> list[ServerAddress]:
    return [it for it, server in servers.items() if not (server.error or server.name_error)]


async def _collect_servers(
    addresses: Sequence[ServerAddress], config: sphtp.Config
) -> dict[ServerAddress, ServerFacts]:
    """Request the status of these servers, and of the servers in their views."""
    found: dict[ServerAddress, ServerFacts] = {}

    async def ask(address: ServerAddress, nursery: trio.Nursery) -> None:
        if address in found:
            return
        parts = urlsplit(address.pub)
        host, port = parts.hostname or "", parts.port or 0
        server = found[address] = ServerFacts(address=str(address), host=host, port=port)
        try:
            (*_, (numeric, *_)), *_ = await trio.socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
        except (socket.gaierror, UnicodeError) as error:
            text = error.strerror if isinstance(error, socket.gaierror) else "not a valid name"
            found[address] = replace(server, name_error=text or str(error))
            return
        found[address] = server = replace(server, mtu=route_mtu(str(numeric), port))
        try:
            status = await fetch_status(address, config=config)
        except LOST as error:
            found[address] = replace(server, error=str(error))
            return
        found[address] = replace(server, wall_offset=wall_offset_untrusted(status.get("wall_time")))
        for other in members_untrusted(status):
            nursery.start_soon(ask, other, nursery)

    async with trio.open_nursery() as nursery:
        for address in addresses:
            nursery.start_soon(ask, address, nursery)
    return found


def members_untrusted(status: Mapping[str, Any]) -> list[ServerAddress]:
    """Return the addresses in a server's view that can be dialled, ``MAX_MEMBERS`` at most."""
    view = status.get("view")
    rows = view.get("members") if isinstance(view, dict) else None
    found = list[ServerAddress]()
    for row in rows if isinstance(rows, list) else ():
        address = row.get("address") if isinstance(row, dict) else None
        if isinstance(address, str):
            with suppress(SettingsError):
                found.append(ServerAddress.parse(address))
    return [address for address in found if address.is_dialable][:MAX_MEMBERS]


def wall_offset_untrusted(seconds: object) -> float | None:
    """Return the seconds by which a server's wall clock is ahead of this machine's.

    None if the server sent no finite number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        ahead = seconds - time.time()
    except OverflowError:  # a whole number beyond every float
        return None
    return ahead if isfinite(ahead) else None


async def _clock_error(client: Client, patience: float) -> float | None:
    with trio.move_on_after(patience):
        await client.clock.wait_synchronized()
        return client.clock.error
    return None


async def _collect_peers(
    client: Client, peers: Sequence[Peer], paths: PathSizes, patience: float
) -> list[PeerFacts]:
    found: dict[int, PeerFacts] = {}
    limit = trio.CapacityLimiter(MOST_PEERS)

    async def look(peer: Peer) -> None:
        async with limit:
            found[peer.id] = await _collect_peer(client, peer, paths, patience)

    async with trio.open_nursery() as nursery:
        for peer in peers:
            nursery.start_soon(look, peer)
    return [found[peer.id] for peer in peers]


async def _collect_peer(client: Client, peer: Peer, paths: PathSizes, patience: float) -> PeerFacts:
    host, port = next(iter(peer.addresses), ("", 0))
    facts = PeerFacts(
        label=peer_label(peer.name, peer.id), host=host, port=port, mtu=route_mtu(host, port)
    )
    try:
        seconds = await answer_of(client, peer, patience)
    except LOST as error:
        return replace(facts, error=str(error) or type(error).__name__)
    size = None
    if facts.mtu is not None:
        try:
            size = await _search_size(client, peer, paths, facts.mtu)
        except LOST as error:
            return replace(facts, error=f"large messages get no reply: {error}")
    return replace(facts, seconds=seconds, datagram_size=size)
