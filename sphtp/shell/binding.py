"""Binding UDP sockets, and asking the kernel for what makes them fast."""

import socket
from contextlib import suppress
from typing import Final

from sphtp.errors import SettingsError

BUFFER: Final = 4 * 1024 * 1024
"""Bytes asked of the kernel each way; it grants what its own limits allow."""

# From the kernel's headers. An IPv6 socket may have peers of either family.
_IP_MTU_DISCOVER: Final = (socket.IPPROTO_IP, 10)
_IPV6_MTU_DISCOVER: Final = (socket.IPPROTO_IPV6, 23)
MTU_DISCOVER: Final = {
    socket.AF_INET: (_IP_MTU_DISCOVER,),
    socket.AF_INET6: (_IPV6_MTU_DISCOVER, _IP_MTU_DISCOVER),
}
PMTUDISC_PROBE: Final = 3

UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104


class UdpAddressError(SettingsError):
    """An address that this machine cannot bind; the message names it."""


def bind(host: str, port: int, *, is_shared: bool) -> socket.socket:
    """Bind a socket that does not block; raises ``UdpAddressError``."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise UdpAddressError(f"cannot bind UDP {host}: {error.strerror}") from error
    except UnicodeError as error:
        raise UdpAddressError(f"cannot bind UDP {host!r}: no name that a host can have") from error
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, is_shared)
        _forbid_fragments(bound)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise UdpAddressError(f"cannot bind UDP {host}:{port}: {error.strerror}") from error
    return bound


def _forbid_fragments(bound: socket.socket) -> None:
    """Let no router and not the kernel cut datagrams: a lost part would lose the whole.

    What is too large is refused or vanishes, which is how the largest size is found (RFC 8899).
    """
    for level, option in MTU_DISCOVER[bound.family]:
        with suppress(OSError):  # a kernel that knows no such thing cuts them
            bound.setsockopt(level, option, PMTUDISC_PROBE)


def has_offload(bound: socket.socket) -> bool:
    """Turn receive offload on; false where the kernel knows neither way of it."""
    try:
        bound.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        bound.getsockopt(socket.SOL_UDP, UDP_SEGMENT)
    except OSError:
        return False
    return True
