"""Network addresses: their parsing, the lookup of names, and the addresses of this machine."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import trio

from sphtp.core.control.records import Candidate, ServerAddress
from sphtp.core.datagrams import Address
from sphtp.errors import SettingsError, UnreachableError
from sphtp.shell.lifetime import running
from sphtp.shell.probe import GRACE, FaultKind, ServerFault, ServerWait
from sphtp.shell.tls import Tls, require_tls

MOST_PORT: Final = 65535


def is_loopback(host: str) -> bool:
    """Return True for a loopback address and for ``localhost``; False for any other name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_http_address(text: str) -> Address:
    """Return the host and the port of ``[HOST:]PORT``; the host is by default 127.0.0.1.

    Raises ``SettingsError`` for any other text.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise SettingsError(f"{text!r}: an IPv6 address stands in brackets, [::1]:9464")
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(MOST_PORT))
    if not (is_number and int(port) <= MOST_PORT) or (colon and not host):
        raise SettingsError(f"{text!r} is not [HOST:]PORT, with a port of 0 to {MOST_PORT}")
    return host or "127.0.0.1", int(port)


async def local_address_towards(host: str, port: int) -> str:
    """Return the address of this machine from which datagrams to ``host`` leave, without sending.

    Raises ``UnreachableError`` if the name is unknown or there is no route to it.
    """
    try:
        answers = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, _, _, _, address = answers[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            here: str = probe.getsockname()[0]
            return here
    except OSError as error:
        raise UnreachableError(f"no way to {host}: {error.strerror}") from error
    except UnicodeError as error:
        raise UnreachableError(f"{host!r} is not a valid host name") from error


async def resolve(addresses: Sequence[Address], family: int) -> list[Address]:
    """Return the numeric addresses to which a socket of a family can send.

    Unknown names, and addresses of another family, are left out. Raises ``UnreachableError`` if no
    address is left, and ``SettingsError`` for a port that does not exist.
    """
    found: dict[Address, None] = {}
    for host, port in addresses:
        # The C library would take such a port modulo 2^16.
        if not 0 <= port <= MOST_PORT:
            raise SettingsError(f"port is {port}; allowed is 0 to {MOST_PORT}")
        with suppress(OSError, UnicodeError):
            answers = await trio.socket.getaddrinfo(
                host, port, family=family, type=trio.socket.SOCK_DGRAM
            )
            found |= {(str(answer[4][0]), int(answer[4][1])): None for answer in answers}
    if not found:
        hosts = ", ".join(host for host, _ in addresses)
        raise UnreachableError(f"no address of {hosts} is one that this node can send to")
    return list(found)


# The addresses of a client: those of the servers, its own, and those that it announces to peers

Servers = str | ServerAddress | Sequence[str | ServerAddress | Address]


def parse_servers(servers: Servers, tls: Tls | None) -> list[ServerAddress]:
    """Return the addresses of servers that a program gives.

    Raises ``SettingsError`` if there is none, one is malformed, or the TLS files do not fit it.
    """
    if not servers:
        raise SettingsError("servers is empty; allowed is one address or more")
    if isinstance(servers, str | ServerAddress):
        servers = [servers]
    parsed = [_parse_one(server) for server in servers]
    require_tls(parsed, tls)
    return parsed


def _parse_one(server: object) -> ServerAddress:
    match server:
        case ServerAddress():
            return server
        case str():
            return ServerAddress.parse(server)
        case (str(host), int(port)):
            bare = host.removeprefix("[").removesuffix("]")
            return ServerAddress.parse(f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}")
        case _:
            raise SettingsError(
                f"server address {server!r}: allowed is text such as 'tcp://host:8764', a "
                "ServerAddress, or a pair of host and port"
            )


class AddressDiscovery:
    """The search for the addresses of this machine that face the servers.

    Programs start in any order, so the name of a server may become known late. One server with a
    route to it is enough. The methods raise ``UnreachableError`` if there is none for longer than
    ``server_wait`` allows.
    """

    def __init__(self, servers: Sequence[ServerAddress], server_wait: ServerWait) -> None:
        self._servers = [_host_and_port(server.pub) for server in servers]
        self._server_wait = server_wait

    async def where_to_bind(self) -> str:
        """Return the address to bind: the one that faces all servers, or the wildcard address.

        If all servers are on loopback, the result is loopback, so that no other machine can
        connect.
        """
        facing = await self._facing()
        if len(facing) == 1 or all(map(is_loopback, facing)):
            return facing[0]
        return "::" if all(":" in host for host in facing) else "0.0.0.0"  # noqa: S104

    async def candidates_of(
        self, bound: Address, advertise: Sequence[Address] = ()
    ) -> list[Candidate]:
        """Return the addresses at which peers may reach a socket that is bound to ``bound``.

        These are ``advertise``, if given, or else ``bound``. If that is the wildcard address, they
        are the addresses of its family that face the servers. Loopback addresses are left out
        unless there are no others, because they are useless to other machines. Raises
        ``SettingsError`` if no address of that family faces a server.
        """
        if advertise:
            return [Candidate(*address) for address in advertise]
        host, port = bound
        here = ip_address(host)
        if not here.is_unspecified:
            return [Candidate(host, port)]
        facing = map(ip_address, await self._facing())
        own = [address for address in facing if address.version == here.version]
        if not own:
            raise SettingsError(
                f"host is {host}, and no IPv{here.version} address faces the servers; "
                "give another host, or name an address in advertise"
            )
        outside = [address for address in own if not address.is_loopback]
        return [Candidate(str(address), port) for address in outside or own]

    async def _facing(self) -> list[str]:
        server_wait = self._server_wait
        slow = ServerFault(
            FaultKind.SILENT, f"{', '.join(h for h, _ in self._servers)} still being looked up"
        )
        fault = slow
        with trio.CancelScope(deadline=server_wait.deadline):
            while True:
                async with running(partial(_warn_later, server_wait, slow)):
                    facing, complaints = await self._look()
                if facing:
                    return facing
                fault = ServerFault(FaultKind.ABSENT, "; ".join(complaints))
                server_wait.note(fault)
                await trio.sleep(server_wait.pause)
        raise server_wait.give_up(fault.text)

    async def _look(self) -> tuple[list[str], list[str]]:
        """Return the addresses that face servers, and the errors of servers without any."""
        facing: dict[str, None] = {}
        complaints: dict[str, None] = {}
        for host, port in self._servers:
            try:
                facing[await local_address_towards(host, port)] = None
            except UnreachableError as error:
                complaints[str(error)] = None
        return list(facing), list(complaints)


async def _warn_later(server_wait: ServerWait, fault: ServerFault) -> None:
    await trio.sleep(GRACE)
    server_wait.warn(fault)


def _host_and_port(url: str) -> Address:
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise SettingsError(f"server address {url!r} names no host and port")
    return parts.hostname, parts.port
