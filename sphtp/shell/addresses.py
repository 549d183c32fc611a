"""Network addresses: the lookup of names, and the local address towards them."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

import trio

from sphtp.core.datagrams import Address
from sphtp.errors import SettingsError, UnreachableError

MOST_PORT: Final = 65535


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a host; False for names except ``localhost``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_http_address(text: str) -> Address:
    """Return host and port of ``[HOST:]PORT``; without a host it is 127.0.0.1.

    Raises ``SettingsError``.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise SettingsError(f"{text!r}: an IPv6 address stands in brackets, [::1]:9464")
    if not (port.isascii() and port.isdigit() and int(port) <= MOST_PORT) or (colon and not host):
        raise SettingsError(f"{text!r} is not [HOST:]PORT, with a port of 0 to {MOST_PORT}")
    return host or "127.0.0.1", int(port)


async def local_address_towards(host: str, port: int) -> str:
    """Return the address of this machine from which datagrams to ``host`` leave; none is sent.

    Raises ``UnreachableError`` when the name is unknown or there is no way to it.
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
    """Look up the addresses that a socket of a family can send to.

    An address that fails is left out. Raises ``UnreachableError`` if none is left.
    """
    found: dict[Address, None] = {}
    for host, port in addresses:
        with suppress(OSError, UnicodeError):
            answers = await trio.socket.getaddrinfo(
                host, port, family=family, type=trio.socket.SOCK_DGRAM
            )
            found |= {(str(answer[4][0]), int(answer[4][1])): None for answer in answers}
    if not found:
        hosts = ", ".join(host for host, _ in addresses)
        raise UnreachableError(f"no address of {hosts} is one that this node can send to")
    return list(found)
