"""Which of this machine's addresses to bind, and which to tell peers."""

from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from sphtp.core.control.records import Candidate, ServerAddress
from sphtp.errors import SettingsError
from sphtp.shell.udp import Address, local_address_towards


async def where_to_bind(servers: Sequence[ServerAddress]) -> str:
    """Choose the address to bind: the one that faces the servers, or all when they differ.

    Binding no more than that keeps a cluster on loopback out of everybody else's reach.
    """
    facing = await _facing(servers)
    if len(facing) == 1:
        return facing[0]
    return "::" if all(":" in host for host in facing) else "0.0.0.0"  # noqa: S104


async def candidates_of(bound: Address, servers: Sequence[ServerAddress]) -> list[Candidate]:
    """List where peers may reach a socket bound there.

    Bound to every address, it is told by those that face the servers; loopback is then left out
    unless there is nothing else, for it means another machine to everybody else.
    """
    host, port = bound
    if not ip_address(host).is_unspecified:
        return [Candidate(host, port)]
    facing = await _facing(servers)
    outside = [address for address in facing if not ip_address(address).is_loopback]
    return [Candidate(address, port) for address in outside or facing]


async def _facing(servers: Sequence[ServerAddress]) -> list[str]:
    facing = [await local_address_towards(*_host_and_port(server.pub)) for server in servers]
    return list(dict.fromkeys(facing))


def _host_and_port(url: str) -> Address:
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise SettingsError(f"server address {url!r} names no host and port")
    return parts.hostname, parts.port
