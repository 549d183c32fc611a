"""Streams by IP multicast: one datagram in the network reaches all members of a group."""

import ipaddress
import socket
import struct
from dataclasses import dataclass
from typing import Final

from sphtp.core.datagrams import Address
from sphtp.errors import SettingsError, UdpAddressError
from sphtp.shell.udp import UdpSocket

_MEMBERSHIP: Final = struct.Struct("4s4s")


@dataclass(frozen=True, slots=True)
class MulticastGroup:
    """A multicast group, and the interface on which to reach it.

    ``host`` is an IPv4 address from 224.0.0.0 to 239.255.255.255, ``interface`` an address of this
    machine on the network to use. ``ttl`` is the number of routers that a datagram may pass, plus
    1. NAKs travel by unicast.

    Raises ``SettingsError``, naming the setting.
    """

    host: str
    port: int
    interface: str
    ttl: int = 1

    def __post_init__(self) -> None:
        if not is_ipv4(self.host, multicast=True):
            raise SettingsError(f"host is {self.host!r}; allowed are IPv4 multicast addresses")
        if not is_ipv4(self.interface, multicast=False):
            raise SettingsError(f"interface is {self.interface!r}; allowed is an IPv4 address")
        if not 1 <= self.port <= 65_535:
            raise SettingsError(f"port is {self.port}; allowed is 1 to 65535")
        if not 1 <= self.ttl <= 255:
            raise SettingsError(f"ttl is {self.ttl}; allowed is 1 to 255")

    @property
    def address(self) -> Address:
        """The address to which its datagrams are sent."""
        return self.host, self.port


def open_sender(group: MulticastGroup) -> UdpSocket:
    """Bind a socket for a source that sends to a group. Raises ``UdpAddressError``."""
    udp = UdpSocket(group.interface, 0)
    interface = socket.inet_aton(group.interface)
    udp.set_options(
        (socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface),
        (socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, group.ttl),
        (socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1),
    )
    return udp


def open_receiver(beside: UdpSocket, group: MulticastGroup) -> UdpSocket:
    """Bind a socket that gets what is sent to a group, and join it on its interface.

    It has the impairment of the node's own socket. Raises ``UdpAddressError``.
    """
    udp = beside.open_shared(*group.address)
    membership = _MEMBERSHIP.pack(socket.inet_aton(group.host), socket.inet_aton(group.interface))
    try:
        udp.set_options((socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership))
    except OSError as error:
        udp.close()
        where = f"{group.host} on the interface {group.interface}"
        raise UdpAddressError(f"cannot join the group {where}: {error.strerror}") from error
    return udp


def is_ipv4(text: str, *, multicast: bool) -> bool:
    """Return True for an IPv4 address: of a group with ``multicast``, else of one machine."""
    try:
        return ipaddress.IPv4Address(text).is_multicast == multicast
    except ValueError:
        return False
