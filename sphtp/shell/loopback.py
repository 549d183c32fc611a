"""What datagrams may be like that never leave this machine."""

import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

from sphtp.core.datagrams import Address

# From the kernel's headers: what a route takes; and how much of that the headers are.
_MTU: Final = {
    4: (socket.AF_INET, socket.IPPROTO_IP, 14, 28),
    6: (socket.AF_INET6, socket.IPPROTO_IPV6, 24, 48),
}


def largest_datagram(address: Address) -> int:
    """Return how many bytes a datagram may have between sockets that are bound as this one is.

    0 if others than those on this machine may be reached, and where the kernel does not tell.
    """
    bound = ip_address(address[0])
    if not bound.is_loopback:
        return 0
    family, level, option, headers = _MTU[bound.version]
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return max(probe.getsockopt(level, option) - headers, 0)
    return 0
