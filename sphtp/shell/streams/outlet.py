"""Sending to many: what is sealed once leaves for each receiver as it is."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from sphtp.core.datagrams import Address, Datagrams
from sphtp.shell.loopback import largest_datagram
from sphtp.shell.streams.group import Group, open_sender
from sphtp.shell.udp import UdpSocket


@contextmanager
def open_outlet(udp: UdpSocket, group: Group | None) -> Iterator["Outlet"]:
    """Make the outlet of a source; raises ``UdpAddressError`` for an interface that is not here."""
    if group is None:
        yield Outlet(udp)
        return
    with open_sender(group) as own:
        yield Outlet(own, group)


class Outlet:
    """A socket for a stream; with a group everything goes there, and to no receiver by itself."""

    def __init__(self, udp: UdpSocket, group: Group | None = None) -> None:
        self._udp = udp
        self._group = group
        # Batches, each to one address, in the order of their coming.
        self._unsent: deque[deque[Datagrams]] = deque()

    @property
    def group(self) -> Address:
        """The group's address; empty and 0 without."""
        return self._group.address if self._group else ("", 0)

    @property
    def loopback_datagram(self) -> int:
        """Bytes of the largest datagram if only this machine is reached, else 0."""
        return largest_datagram(self._udp.address)

    def put(self, rows: Sequence[tuple[bytes, int]], addresses: Iterable[Address]) -> None:
        """Let rows, each with the size of its datagrams, leave for each of these addresses."""
        if self._group is not None:
            addresses = [self._group.address]
        for address in addresses:
            self._unsent.append(deque(Datagrams(address, data, size) for data, size in rows))

    def send(self) -> bool:
        """Send what waits; false when the socket has no room for all of it."""
        while self._unsent:
            if not self._udp.send(self._unsent[0]):
                return False
            # A size that the host refuses is the settings' doing; it counts as lost.
            self._udp.too_large.clear()
            self._unsent.popleft()
        return True
