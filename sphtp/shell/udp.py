"""UDP sockets that move many datagrams per system call.

A system call costs more than everything else that is done for a packet. With segmentation offload
(UDP_SEGMENT, Linux 4.18) one call sends up to 64 KiB of datagrams of equal size, and with receive
offload (UDP_GRO, Linux 5.0) one call fetches as many that came in a row. Where the kernel or the
path refuses, datagrams go one by one.
"""

import errno
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import trio

from sphtp.errors import SettingsError, UnreachableError

Address = tuple[str, int]

LARGEST_DATAGRAM: Final = 65_535
BUFFER: Final = 4 * 1024 * 1024
"""Bytes asked of the kernel each way; it grants what its own limits allow."""

UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
# A segment size is 16 bits on the way out, and an int on the way in.
_SEGMENT: Final = struct.Struct("=H")
_GRO: Final = struct.Struct("=i")
MOST_SEGMENTS: Final = 64
MOST_BYTES: Final = 65_000

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
        errno.EIO,
    }
)

# What a call gets for many datagrams where the kernel or the device cannot cut them; anything else
# is about the datagrams themselves, or about an earlier one.
_NO_OFFLOAD: Final = frozenset({errno.EIO, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOPROTOOPT})


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
    send_calls: int = 0
    receive_calls: int = 0


class UdpSocket:
    """A bound socket that never blocks.

    ``drop`` is asked about each datagram received and says whether to throw it away: a bad network
    for trying things out.
    """

    def __init__(self, host: str, port: int, drop: Callable[[], bool] | None = None) -> None:
        self.counters = UdpCounters()
        self._drop = drop
        self._socket = _bind(host, port)
        self._buffer = memoryview(bytearray(LARGEST_DATAGRAM))
        self._segments = _has_offload(self._socket)
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

    def send_many(self, address: Address, datagrams: Sequence[bytes]) -> int:
        """Send datagrams to one address; return how many of them went, in order.

        Fewer than all means that there is no room, and the rest has to be offered again. What the
        network refuses counts as sent and lost.
        """
        sent = 0
        while sent < len(datagrams):
            count = self._run_length(datagrams, sent) if self._segments else 1
            went = self._send_run(address, datagrams[sent : sent + count])
            sent += went
            if went < count:
                break
        self.counters.sent += sent
        return sent

    def receive_batch(self, limit: int) -> Iterator[tuple[Address, bytes]]:
        """Yield what is there, at most ``limit`` datagrams or a few more."""
        buffer, fetched = self._buffer, 0
        while fetched < limit:
            try:
                length, ancillary, _, address = self._socket.recvmsg_into([buffer], 64)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                self.counters.receive_errors += 1
                fetched += 1
                continue
            self.counters.receive_calls += 1
            size = _segment_size(ancillary) or length or 1
            for start in range(0, length or 1, size):
                fetched += 1
                if self._drop is not None and self._drop():
                    self.counters.dropped_on_purpose += 1
                    continue
                self.counters.received += 1
                yield address[:2], bytes(buffer[start : min(start + size, length)])

    def _run_length(self, datagrams: Sequence[bytes], start: int) -> int:
        """How many datagrams may go in one call: equal sizes, and one smaller one at the end."""
        size = len(datagrams[start])
        most = min(MOST_SEGMENTS, MOST_BYTES // max(1, size), len(datagrams) - start)
        for count in range(1, most):
            if len(datagrams[start + count]) != size:
                return count + (len(datagrams[start + count]) < size)
        return max(1, most)

    def _send_run(self, address: Address, run: Sequence[bytes]) -> int:
        """Send datagrams in one call if that can be; return how many went."""
        ancillary = []
        if len(run) > 1:
            ancillary.append((socket.SOL_UDP, UDP_SEGMENT, _SEGMENT.pack(len(run[0]))))
        try:
            self._socket.sendmsg(run, ancillary, 0, address)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            return self._refused(address, run, error)
        self.counters.send_calls += 1
        return len(run)

    def _refused(self, address: Address, run: Sequence[bytes], error: OSError) -> int:
        if len(run) == 1:
            self.counters.send_errors += 1
            return 1
        if error.errno in _NO_OFFLOAD:
            # The device on this path cannot cut them; from now on the kernel is not asked to.
            self._segments = False
        went = 0
        while went < len(run) and self._send_run(address, run[went : went + 1]):
            went += 1
        return went

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


def _has_offload(bound: socket.socket) -> bool:
    """Turn receive offload on; false where the kernel knows neither way of it."""
    try:
        bound.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        bound.getsockopt(socket.SOL_UDP, UDP_SEGMENT)
    except OSError:
        return False
    return True


def _segment_size(ancillary: Sequence[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if level == socket.SOL_UDP and kind == UDP_GRO:
            size: int = _GRO.unpack(data)[0]
            return size
    return None


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
