"""UDP sockets that move many datagrams per system call.

A system call costs more than all other work for a packet. With segmentation offload (UDP_SEGMENT,
Linux 4.18) one call sends up to 64 KiB of datagrams of equal size. With receive offload (UDP_GRO,
Linux 5.0) one call receives up to 64 KiB of such datagrams. If the kernel or the path refuses an
offload, each call sends or receives one datagram.

The network copies a datagram for a multicast group to all members of the group.
"""

import errno
import ipaddress
import select
import socket
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from sys import maxsize
from types import TracebackType
from typing import Final, Protocol, Self

import trio

from sphtp.core.datagrams import MOST_BYTES, MOST_DATAGRAMS, RELAYED, Address, Datagrams
from sphtp.errors import SettingsError, UdpAddressError

LARGEST_DATAGRAM: Final = 65_535
# A segment size is 16 bits on the way out, and an int on the way in.
_SEGMENT: Final = struct.Struct("=H")
_GRO: Final = struct.Struct("=i")

# Errors about an earlier datagram, about a path that does not exist at present, or about the size
# of the datagram. It counts as lost, and the protocol recovers it.
_PASSING: Final = frozenset(
    {
        errno.ECONNREFUSED,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.ENOBUFS,
        errno.EPERM,
        errno.EACCES,
        errno.EMSGSIZE,
        errno.EINVAL,
        errno.EADDRNOTAVAIL,
        errno.EAFNOSUPPORT,
        errno.EIO,
    }
)

# Errors of a call for many datagrams if the kernel or the device cannot cut them. Any other error
# is about the datagrams themselves, or about an earlier one.
_NO_OFFLOAD: Final = frozenset({errno.EIO, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOPROTOOPT})


@dataclass(slots=True)
class UdpCounters:
    """Counts of datagrams, system calls, errors and impairments of a socket."""

    sent: int = 0
    received: int = 0
    send_errors: int = 0
    receive_errors: int = 0
    send_calls: int = 0
    receive_calls: int = 0
    dropped_on_purpose: int = 0
    duplicated_on_purpose: int = 0
    held_back_on_purpose: int = 0


class Relaying(Protocol):
    """A TURN relay: a server that forwards wrapped datagrams to peers."""

    address: Address
    """The address of the relay."""

    def wrap(self, peer: Address, datagram: bytes) -> bytes:
        """Return the datagram for the relay that contains this one for a peer."""
        ...


class UdpSocket:
    """A bound socket that never blocks. ``relay`` forwards to hosts that end in ``RELAYED``.

    ``too_large`` holds the address and the size in bytes of datagrams that the host refused for
    their size. ``is_drained`` is true if the last ``receive_batch`` left nothing behind. Raises
    ``UdpAddressError`` if the address cannot be bound.
    """

    def __init__(self, host: str, port: int, *, is_shared: bool = False) -> None:
        self.counters = UdpCounters()
        self.too_large: dict[tuple[Address, int], None] = {}
        self.is_drained = True
        self.relay: Relaying | None = None
        self._socket = bind(host, port, is_shared=is_shared)
        self._segments = has_offload(self._socket)
        # A poll costs a third of a read that raises ``BlockingIOError``.
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._address: Address = self._socket.getsockname()[:2]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def open_shared(self, host: str, port: int) -> "UdpSocket":
        """Bind another socket of the same kind, to an address that other sockets may bind, too.

        Raises ``UdpAddressError``.
        """
        return UdpSocket(host, port, is_shared=True)

    @property
    def address(self) -> Address:
        """The address to which the socket is bound, with the real port; also after closing."""
        return self._address

    @property
    def family(self) -> socket.AddressFamily:
        """The address family: IPv4 or IPv6."""
        return self._socket.family

    @property
    def receive_buffer(self) -> int:
        """The approximate bytes of datagrams that the kernel keeps for this socket."""
        # The kernel grants twice the requested size, and uses a part of it for bookkeeping.
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2

    def set_options(self, *options: tuple[int, int, int | bytes]) -> None:
        """Set options of the socket, each as level, name and value."""
        for option in options:
            self._socket.setsockopt(*option)

    def send(self, rows: deque[Datagrams]) -> bool:
        """Send rows, all to one address, and remove those that left.

        Return False if the socket has no room for the rest, which stays in ``rows``. Datagrams that
        the network refuses count as sent, and as ``send_errors``.
        """
        if self.relay is not None and rows and rows[0].address[0].endswith(RELAYED):
            return self._send_relayed(rows, self.relay)
        while rows:
            number = self._fitting(rows) if len(rows) > 1 else 1
            first = rows[0]
            is_one = number == 1 and len(first.data) <= first.size
            if not is_one and number == 1 and self._is_too_much(first):
                if not self._send_each(rows):
                    return False
            elif not self._send_call(rows, number, is_one=is_one):
                return False
        return True

    def _send_relayed(self, rows: deque[Datagrams], relay: Relaying) -> bool:
        """Send rows through the relay. A datagram for which there is no room is lost."""
        has_room = True
        while rows and has_room:
            row = rows.popleft()
            peer = row.address[0].removesuffix(RELAYED), row.address[1]
            wrapped = [relay.wrap(peer, datagram) for datagram in row.datagrams]
            has_room = self.send(deque([Datagrams.of(relay.address, data) for data in wrapped]))
        return has_room

    def send_to_all(self, data: bytes, size: int, addresses: list[Address]) -> None:
        """Send one row to each of some addresses, last first, and remove those to which it left.

        It stops at an address for which the call fails. It sends nothing if the socket has a relay,
        or cannot send the row in one call. The caller then sends the row by ``send`` to the last
        address that is left.
        """
        pieces, number = (data,), -(-len(data) // size)
        cut = ((socket.SOL_UDP, UDP_SEGMENT, _SEGMENT.pack(size)),) if number > 1 else ()
        if (cut and not self._segments) or self.relay is not None:
            return
        sendmsg, counters = self._socket.sendmsg, self.counters
        with suppress(OSError):
            while addresses:
                sendmsg(pieces, cut, 0, addresses[-1])
                addresses.pop()
                counters.send_calls += 1
                counters.sent += number

    def receive_batch(self, limit: int, size: int = maxsize) -> Sequence[Datagrams]:
        """Return datagrams that have arrived, up to about ``limit`` of them or ``size`` bytes."""
        rows: list[Datagrams] = []
        counters = self.counters
        self.is_drained = False
        while limit > 0 and size > 0:
            try:
                data, ancillary, _, address = self._socket.recvmsg(LARGEST_DATAGRAM, 64)
            except BlockingIOError:
                self.is_drained = True
                break
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                counters.receive_errors += 1
                limit -= 1
                continue
            counters.receive_calls += 1
            segment = _segment_size(ancillary) if ancillary else None
            row = Datagrams(address[:2], data, segment or len(data) or 1)
            number = row.number if segment else 1
            limit -= number
            size -= len(data)
            counters.received += number
            rows.append(row)
            if not self._poll.poll(0):
                self.is_drained = True
                break
        return rows

    def _is_too_much(self, row: Datagrams) -> bool:
        """Return True if one call cannot send a row."""
        most = MOST_DATAGRAMS if self._segments else 1
        return row.number > most or len(row.data) > MOST_BYTES

    def _fitting(self, rows: Sequence[Datagrams]) -> int:
        """Return the number of rows that one call can send.

        Their datagrams have equal sizes, except a smaller one at the end.
        """
        first = rows[0]
        if not self._segments or len(rows) == 1:
            return 1
        fitting, datagrams, held = 1, first.number, len(first.data)
        is_whole = first.is_whole
        while fitting < len(rows) and is_whole:
            row = rows[fitting]
            datagrams += row.number
            held += len(row.data)
            is_smaller = row.number == 1 and row.size < first.size
            if datagrams > MOST_DATAGRAMS or held > MOST_BYTES:
                break
            if row.size != first.size and not is_smaller:
                break
            is_whole = row.size == first.size and row.is_whole
            fitting += 1
        return fitting

    def _send_call(self, rows: deque[Datagrams], number: int, *, is_one: bool) -> bool:
        """Send rows in one call, and remove them. Return False if there is no room.

        With ``is_one`` they are a single datagram, which the kernel need not cut.
        """
        address, data, size = rows[0]
        try:
            if is_one:
                self._socket.sendmsg((data,), (), 0, address)
            else:
                batch = [rows[place].data for place in range(number)]
                cut = (socket.SOL_UDP, UDP_SEGMENT, _SEGMENT.pack(size))
                self._socket.sendmsg(batch, (cut,), 0, address)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            return self._refused(rows, number, error)
        self.counters.send_calls += 1
        if is_one:
            rows.popleft()
            self.counters.sent += 1
            return True
        for _ in range(number):
            self.counters.sent += rows.popleft().number
        return True

    def _send_each(self, rows: deque[Datagrams]) -> bool:
        """Send the datagrams of the first row in a call each. Return False if there is no room."""
        address, data, size = rows[0]
        view, counters = memoryview(data), self.counters
        for start in range(0, len(data), size):
            try:
                self._socket.sendmsg((view[start : start + size],), (), 0, address)
            except OSError as error:
                rows[0] = Datagrams(address, data[start:], size)
                if isinstance(error, BlockingIOError):
                    return False
                if error.errno not in _PASSING:
                    raise
                # Sending them one by one shows which datagram the error is about.
                self._split(rows, 1)
                return True
            counters.send_calls += 1
            counters.sent += 1
        rows.popleft()
        return True

    def _refused(self, rows: deque[Datagrams], number: int, error: OSError) -> bool:
        if number == 1 and rows[0].number == 1:
            row = rows.popleft()
            if error.errno == errno.EMSGSIZE:
                self.too_large[row.address, len(row.data)] = None
            self.counters.sent += 1
            self.counters.send_errors += 1
            return True
        if error.errno in _NO_OFFLOAD:
            # The device on this path cannot cut datagrams. Stop using segmentation offload.
            self._segments = False
        # Sending them one by one shows which datagram the error is about, if any.
        singles = self._split(rows, number)
        return all(self._send_call(rows, 1, is_one=True) for _ in range(singles))

    def _split(self, rows: deque[Datagrams], number: int) -> int:
        """Replace the first rows by single datagrams. Return their number."""
        address = rows[0].address
        split = [datagram for _ in range(number) for datagram in rows.popleft().datagrams]
        rows.extendleft(Datagrams.of(address, datagram) for datagram in reversed(split))
        return len(split)

    def is_readable(self) -> bool:
        """Return True if a datagram, or an error about an earlier one, has arrived."""
        return bool(self._poll.poll(0))

    async def wait_readable(self) -> None:
        """Wait until a datagram, or an error about an earlier one, has arrived."""
        await trio.lowlevel.wait_readable(self._socket)

    async def wait_writable(self) -> None:
        """Wait until there is room to send."""
        await trio.lowlevel.wait_writable(self._socket)

    def close(self) -> None:
        """Close; a task that waits gets ``trio.ClosedResourceError``."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


def _segment_size(ancillary: Sequence[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if level == socket.SOL_UDP and kind == UDP_GRO:
            size: int = _GRO.unpack(data)[0]
            return size
    return None


BUFFER: Final = 4 * 1024 * 1024
"""The size in bytes that is requested for each buffer of a socket; the kernel may grant less."""

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


def bind(host: str, port: int, *, is_shared: bool) -> socket.socket:
    """Bind a non-blocking socket. Raises ``UdpAddressError``."""
    if not 0 <= port <= 65_535:  # the C library would take it modulo 2^16
        raise UdpAddressError(f"cannot bind UDP {host}:{port}: allowed are ports 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise UdpAddressError(f"cannot bind UDP {host}: {error.strerror}") from error
    except UnicodeError as error:
        raise UdpAddressError(f"cannot bind UDP {host!r}: not a valid host name") from error
    try:
        with ExitStack() as unless_bound:
            bound = unless_bound.enter_context(socket.socket(family, kind, protocol))
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, is_shared)
            _forbid_fragments(bound)
            bound.bind(address)
            unless_bound.pop_all()
    except OSError as error:
        raise UdpAddressError(f"cannot bind UDP {host}:{port}: {error.strerror}") from error
    return bound


def _forbid_fragments(bound: socket.socket) -> None:
    """Forbid routers and the kernel to fragment datagrams: a lost part would lose the whole.

    The kernel refuses a datagram that is too large, or a router drops it. Path MTU discovery uses
    that (RFC 8899).
    """
    for level, option in MTU_DISCOVER[bound.family]:
        with suppress(OSError):  # a kernel without the option fragments datagrams
            bound.setsockopt(level, option, PMTUDISC_PROBE)


def has_offload(bound: socket.socket) -> bool:
    """Turn receive offload on. Return False if the kernel lacks it, or segmentation offload."""
    try:
        bound.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        bound.getsockopt(socket.SOL_UDP, UDP_SEGMENT)
    except OSError:
        return False
    return True


# From the kernel's headers: the option with a route's MTU, and the bytes of IP and UDP headers.
_MTU: Final = {
    4: (socket.AF_INET, socket.IPPROTO_IP, 14, 28),
    6: (socket.AF_INET6, socket.IPPROTO_IPV6, 24, 48),
}


def largest_datagram(address: Address) -> int:
    """Return the largest datagram, in bytes, between sockets that are bound to ``address``.

    Return 0 if other machines can be reached from it, or the kernel does not report the size.
    """
    bound = ip_address(address[0])
    if not bound.is_loopback:
        return 0
    family, level, option, headers = _MTU[bound.version]
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return max(probe.getsockopt(level, option) - headers, 0)
    return 0


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
    """Bind a socket that receives the datagrams of a group, and join the group on its interface.

    The socket has the impairment of the node's own one, ``beside``. Raises ``UdpAddressError``.
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
    """Return True for an IPv4 address: with ``multicast`` of a group, else any other one."""
    try:
        return ipaddress.IPv4Address(text).is_multicast == multicast
    except ValueError:
        return False
