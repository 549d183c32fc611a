"""What leaves a node: datagrams on their way from the endpoint to the socket."""

from collections import deque
from typing import Final

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.datagrams import MOST_DATAGRAMS, Address, Datagrams
from sphtp.shell.udp import UdpSocket

SMALL: Final = 1024
"""Bytes of a row that leaves, and is told of, before anything else is seen to."""


class Departures:
    """Sends what an endpoint has to say, and tells it what was too large for the host."""

    def __init__(self, udp: UdpSocket, endpoint: Endpoint) -> None:
        self._udp = udp
        self._endpoint = endpoint
        # Datagrams to one address, and the first one to another.
        self._unsent: deque[Datagrams] = deque()
        self._ahead: Datagrams | None = None

    @property
    def is_blocked(self) -> bool:
        """Whether the socket had no room for what should leave next."""
        return bool(self._unsent)

    def send(self, now: float, most: int) -> bool:
        """Send all there is, or about ``most`` bytes of it; false when something is left."""
        while self._unsent or most > 0:
            if not self._unsent:
                most -= self._gather(now, most)
                if not self._unsent:
                    return True
            has_room = self._udp.send(self._unsent)
            while self._udp.too_large:
                (address, size), _ = self._udp.too_large.popitem()
                self._endpoint.handle_too_large(now, address, size)
            if not has_room:
                return False
        return False

    def send_first(self, now: float, address: Address | None) -> bool:
        """Send what comes first, if that is small and for an address; false when it is not."""
        if self._unsent or self._ahead is not None:
            return False
        row = self._endpoint.poll_transmit(now)
        if row is None or row.address != address or len(row.data) > SMALL:
            self._ahead = row
            return False
        self._unsent.append(row)
        return self._udp.send(self._unsent)

    def _gather(self, now: float, most: int) -> int:
        """Collect the datagrams that leave for one address next; return how many bytes."""
        transmit = self._ahead or self._endpoint.poll_transmit(now, most)
        self._ahead = None
        if transmit is None:
            return 0
        destination, datagrams, size = transmit.address, 0, 0
        while transmit is not None and transmit.address == destination:
            self._unsent.append(transmit)
            datagrams += transmit.number
            size += len(transmit.data)
            if datagrams >= MOST_DATAGRAMS or size >= most:
                return size
            transmit = self._endpoint.poll_transmit(now, most - size)
        self._ahead = transmit
        return size
