"""UDP sockets, drained in batches. The only module that knows the socket's own errors."""

import errno
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import trio

from sphtp.errors import SettingsError, UnreachableError

Address = tuple[str, int]

LARGEST_DATAGRAM: Final = 65_535
BUFFER: Final = 4 * 1024 * 1024
"""Bytes asked of the kernel each way; it grants what its own limits allow."""

# What the network says about an earlier datagram, or about a way that does not exist just now. A
# datagram lost to it is a datagram lost, and the protocol recovers it.
_PASSING: Final = frozenset(
    {
        errno.ECONNREFUSED,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.ENOBUFS,
        errno.EPERM,
        errno.EMSGSIZE,
        errno.EINVAL,
        errno.EADDRNOTAVAIL,
        errno.EAFNOSUPPORT,
    }
)


class UdpAddressError(SettingsError):
    """An address that this machine cannot bind; the message names it."""


@dataclass(slots=True)
class UdpCounters:
    """What happened to datagrams at the socket itself."""

    sent: int = 0
    received: int = 0
    send_errors: int = 0
    receive_errors: int = 0
    dropped_on_purpose: int = 0


class UdpSocket:
    """A bound socket that never blocks.

    ``drop`` is asked about each datagram received and says whether to throw it away: a bad network
    for trying things out.
    """

    def __init__(self, host: str, port: int, drop: Callable[[], bool] | None = None) -> None:
        self.counters = UdpCounters()
        self._drop = drop
        self._socket = _bind(host, port)
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

    @property
    def address(self) -> Address:
        """Where it is bound, with the real port; it can still be asked after closing."""
        return self._address

    @property
    def family(self) -> socket.AddressFamily:
        """IPv4 or IPv6."""
        return self._socket.family

    def send(self, address: Address, datagram: bytes) -> bool:
        """Send a datagram; false when there is no room and it has to be offered again.

        One that the network refuses counts as sent and lost.
        """
        try:
            self._socket.sendto(datagram, address)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            self.counters.send_errors += 1
        else:
            self.counters.sent += 1
        return True

    def receive_batch(self, limit: int) -> Iterator[tuple[Address, bytes]]:
        """Yield what is there, at most ``limit`` datagrams."""
        for _ in range(limit):
            try:
                datagram, address = self._socket.recvfrom(LARGEST_DATAGRAM)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                self.counters.receive_errors += 1
                continue
            if self._drop is not None and self._drop():
                self.counters.dropped_on_purpose += 1
                continue
            self.counters.received += 1
            yield address[:2], datagram

    async def wait_readable(self) -> None:
        """Wait until there is something to receive."""
        await trio.lowlevel.wait_readable(self._socket)

    async def wait_writable(self) -> None:
        """Wait until there is room to send."""
        await trio.lowlevel.wait_writable(self._socket)

    def close(self) -> None:
        """Close; a task that waits gets ``trio.ClosedResourceError``."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


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


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise UdpAddressError(f"cannot bind UDP {host}: {error.strerror}") from error
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise UdpAddressError(f"cannot bind UDP {host}:{port}: {error.strerror}") from error
    return bound
