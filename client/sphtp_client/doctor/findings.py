"""The judgement of facts: findings, with a remedy for each fault. It performs no I/O.

A fault keeps programs from working, or may do so. A warning is a cause of slowness, or a missing
feature that some programs do not need.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from typing import Final

from sphtp_client.doctor.facts import (
    ENVELOPE,
    UDP_OVERHEAD,
    ClusterFacts,
    Facts,
    MachineFacts,
    PeerFacts,
    ServerFacts,
)

FEW_DESCRIPTORS: Final = 64
"""The descriptors that a client with a few peers needs in addition to those of its program."""

USUAL_DESCRIPTORS: Final = 1024

ETHERNET: Final = 1500
"""The MTU of an Ethernet, in bytes; larger MTUs are not expected."""

WORTHWHILE: Final = 15 / 16
"""The smallest share of the expected packet size that counts as large enough."""

SMALLEST_MTU: Final = 1280
"""The smallest MTU that a link may have for IPv6 (RFC 8200, section 5)."""

WALL_CLOCK: Final = 60.0
"""The largest difference of wall clocks that is no fault, in seconds.

SphTP itself uses no wall clock, but logs and certificates do.
"""


class Level(Enum):
    """The levels of a finding."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    ``remedy`` is a command against a fault or warning, or a call for a peer's program; else empty.
    """

    check: str
    level: Level
    text: str
    remedy: str = ""


def judge(facts: Facts) -> list[Finding]:
    """Return the findings, causes before effects.

    The order is: machine, keys, servers, registration, clock, peers.
    """
    found = [*judge_machine(facts.machine), _judge_keys(facts)]
    if facts.cluster is not None:
        found += judge_cluster(facts.cluster)
    return found


def _ok(check: str, text: str) -> Finding:
    return Finding(check, Level.OK, text)


def _warning(check: str, text: str, remedy: str) -> Finding:
    return Finding(check, Level.WARNING, text, remedy)


def _fault(check: str, text: str, remedy: str) -> Finding:
    return Finding(check, Level.FAULT, text, remedy)


# This machine


def judge_machine(machine: MachineFacts) -> Iterator[Finding]:
    """Yield the findings on this machine's limits."""
    yield _judge_buffer(machine)
    yield _judge_descriptors(machine)
    if machine.udp_error:
        range_of_ports = "sudo sysctl -w net.ipv4.ip_local_port_range='32768 60999'"
        yield _fault("UDP ports", f"no free port: {machine.udp_error}", range_of_ports)
    else:
        yield _ok("UDP ports", "a port is free")
    yield _judge_multicast(machine)
    if machine.memory_error:
        text = f"peers on this machine use UDP: {machine.memory_error}"
        yield _warning("shared memory", text, "python3 -c 'import os; os.memfd_create(\"x\")'")
    else:
        yield _ok("shared memory", "available")


def _judge_buffer(machine: MachineFacts) -> Finding:
    wanted, granted = machine.buffer_wanted, machine.buffer_granted
    if granted >= wanted:
        return _ok("receive buffer", f"{granted} bytes")
    text = f"{granted} bytes of {wanted}: bursts are lost and sent again"
    return _warning("receive buffer", text, f"sudo sysctl -w net.core.rmem_max={wanted}")


def _judge_descriptors(machine: MachineFacts) -> Finding:
    limit, left = machine.descriptors_limit, machine.descriptors_limit - machine.descriptors_used
    enough = min(USUAL_DESCRIPTORS, machine.descriptors_hard)
    remedy = f"ulimit -n {enough}"
    if enough <= limit:
        remedy = f"sudo prlimit --pid $$ --nofile={USUAL_DESCRIPTORS}:{USUAL_DESCRIPTORS}"
    if left < FEW_DESCRIPTORS:
        return _fault("descriptors", f"{left} of {limit} are left for connections", remedy)
    if limit < USUAL_DESCRIPTORS:
        return _warning("descriptors", f"{limit} allowed; a large cluster needs more", remedy)
    return _ok("descriptors", f"{limit} allowed")


def _judge_multicast(machine: MachineFacts) -> Finding:
    check = "multicast"
    up = [it for it in machine.interfaces if it.is_up]
    able = [it.name for it in up if it.is_multicast]
    if not up:
        text = "no network interface but loopback is up: only programs on this machine are reached"
        return _warning(check, text, "ip link show")
    if not able:
        text = f"{up[0].name} is up and has no multicast: servers on the network are not found"
        return _warning(check, text, f"sudo ip link set dev {up[0].name} multicast on")
    if machine.multicast_error:
        text = f"{able[0]} cannot join 224.0.0.251: {machine.multicast_error}"
        return _warning(check, text, "sudo sysctl -w net.ipv4.igmp_max_memberships=100")
    if not machine.has_zeroconf:
        text = "zeroconf is missing: servers on the network are not found"
        return _warning(check, text, "pip install 'sphtp[discovery]'")
    return _ok(check, f"on {', '.join(able)}")


def _judge_keys(facts: Facts) -> Finding:
    if facts.keys_error:
        remedy = "sphtp keygen --help"
        file = re.search(r"/\S+?(?=[:,;\s]|$)", facts.keys_error)
        if file is not None:
            remedy = f"ls -l {file.group()}"
            if "others" in facts.keys_error:
                remedy = f"chmod 600 {file.group()}"
        return _fault("keys", facts.keys_error, remedy)
    return _ok("keys", "a secret is given" if facts.has_secret else "no secret is given")


# The cluster

_SERVER_REMEDIES: Final = (
    (r"no secret: the servers have one", "sphtp doctor {address} --secret-file=cluster.secret"),
    (r"wrong secret", "scp {host}:cluster.secret cluster.secret"),
    (r"the servers have no secret", "sphtp doctor {address}"),
    (r"do not sign|wrong server key", "sphtp doctor {address} --server-key=KEY"),
    (r"certificate|TLS", "openssl s_client -connect {host}:{port} </dev/null"),
    (r"second port", "ss -ltn 'sport = :{port}'"),
    (r"is no SphTP server|sends nothing", "sudo ss -ltnp 'sport = :{port}'"),
    (r"closes them", "sphtp server --max-connections 2000"),
    (r"connection refused", "sphtp server --new --host={host} --pub-port={port}"),
    (r"no way to", "ip route get {host}"),
    (
        r"no answer from \S+:(?P<port>\d+)$",
        "sudo iptables -I INPUT -p tcp --dport {port} -j ACCEPT",
    ),
    (r"", "nc -vz {host} {port}"),
)
"""The remedy for each error of a status request, by a regular expression for its text."""


_SEARCH_REMEDIES: Final = (
    (
        r"at (?P<address>\S+) that has (a|another) secret",
        "sphtp doctor {address} --secret-file=cluster.secret",
    ),
    (r"at (?P<address>\S+) that has no secret", "sphtp doctor {address}"),
    (r"at (?P<address>\S+) that wants TLS", "sphtp doctor {address} --tls-ca=authority.pem"),
    (r"clusters: (?P<address>\S+?)[,;]?\s", "sphtp doctor {address}"),
    (r"", "sphtp server --new"),
)
"""The same for each error of a search for servers, which may name a server that it found."""


def judge_cluster(cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield the findings on the servers, the clock and the peers."""
    if cluster.search_error:
        error = cluster.search_error
        yield _fault("servers", error, _remedy_of(error, _SEARCH_REMEDIES))
    for port in cluster.ports:
        if port.is_taken:
            text = f"TCP port {port.port}, a server's default, is in use, but not by your server"
            yield _fault("TCP ports", text, f"sudo ss -ltnp 'sport = :{port.port}'")
    for server in cluster.servers:
        yield from _judge_server(server)
    if cluster.registration_error:
        text = f"not registered, though a server answers: {cluster.registration_error}"
        yield _fault("registration", text, "sphtp status")
    if cluster.clock_error is not None:
        yield _ok("cluster's time", f"known within {1000 * cluster.clock_error:.3f} ms")
    for peer in cluster.peers:
        yield from _judge_peer(peer)


def _judge_server(server: ServerFacts) -> Iterator[Finding]:
    check = f"server {server.address}"
    if server.name_error:
        text = f"the name {server.host!r} is unknown: {server.name_error}"
        yield _fault(f"DNS of {server.host}", text, f"getent hosts {server.host}")
        return
    if server.error:
        values = {"host": server.host, "port": str(server.port), "address": server.address}
        yield _fault(check, server.error, _remedy_of(server.error, _SERVER_REMEDIES, **values))
        return
    yield _ok(check, "answers")
    if server.mtu is not None and server.mtu < SMALLEST_MTU:
        text = f"the route to {server.host} has an MTU of {server.mtu}"
        yield _warning(f"MTU to {server.host}", text, f"ip route get {server.host}")
    if server.wall_offset is not None and abs(server.wall_offset) > WALL_CLOCK:
        text = (
            f"this machine's is {abs(server.wall_offset):.0f} s "
            f"{'behind' if server.wall_offset > 0 else 'ahead of'} that of {server.host}: logs do "
            "not match, and certificates may be refused"
        )
        yield _fault("clock", text, "sudo timedatectl set-ntp true")


def _remedy_of(error: str, remedies: Iterable[tuple[str, str]], **values: str) -> str:
    """Return the remedy of the first pattern that the error matches.

    A remedy contains ``values`` and the groups of its pattern, which take precedence.
    """
    matches = ((re.search(pattern, error), remedy) for pattern, remedy in remedies)
    return next(it.format(**values | found.groupdict()) for found, it in matches if found)


def _judge_peer(peer: PeerFacts) -> Iterator[Finding]:
    check = f"peer {peer.label}"
    if not peer.error:
        yield _ok(check, f"a channel opened in {1000 * peer.seconds:.1f} ms")
        yield from _judge_path(peer)
    elif not peer.host:
        text = "announces no address, so that no peer can reach it"
        yield _fault(check, text, "sphtp peers")
    elif ip_address(peer.host).is_loopback:
        text = f"announces {peer.host} alone, which is its own loopback: {peer.error}"
        yield _fault(check, text, "open_client(..., host='0.0.0.0') in the peer's program")
    else:
        text = f"{peer.error}: UDP to {peer.host}:{peer.port}, or back, is dropped"
        yield _fault(check, text, f"sudo iptables -I INPUT -p udp -s {peer.host} -j ACCEPT")


def is_large_enough(size: int, mtu: int) -> bool:
    """Return True if ``size`` is near the size of the largest packet that the MTU allows.

    An MTU above that of an Ethernet counts as that of an Ethernet.
    """
    expected = min(mtu, ETHERNET) - UDP_OVERHEAD - ENVELOPE
    return size >= WORTHWHILE * expected


def _judge_path(peer: PeerFacts) -> Iterator[Finding]:
    if peer.datagram_size is None or peer.mtu is None:
        return
    check, size = f"MTU to {peer.label}", peer.datagram_size + ENVELOPE
    if is_large_enough(peer.datagram_size, peer.mtu):
        yield _ok(check, f"datagrams of {size} bytes arrive")
        return
    text = f"datagrams over {size} bytes vanish, though the route here has an MTU of {peer.mtu}"
    remedy = f"sudo ip route replace {peer.host} mtu {size + UDP_OVERHEAD} dev DEVICE"
    yield _warning(check, text, remedy)
