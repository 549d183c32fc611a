"""What leaves a node: datagrams on their way from the endpoint to the socket."""

from collections import deque

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.gate.endpoint import SealedEndpoint
from sphtp.core.row import MOST_DATAGRAMS, Row
from sphtp.shell.udp import UdpSocket


class Departures:
    """Sends what an endpoint has to say, and tells it what was too large for the host."""

    def __init__(self, udp: UdpSocket, endpoint: Endpoint | SealedEndpoint) -> None:
        self._udp = udp
        self._endpoint = endpoint
        # Datagrams to one address, and the first one to another.
        self._unsent: deque[Row] = deque()
        self._ahead: Row | None = None

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

    def _gather(self, now: float, most: int) -> int:
        """Collect the datagrams that leave for one address next; return how many bytes."""
        transmit = self._ahead or self._endpoint.poll_transmit(now)
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
            transmit = self._endpoint.poll_transmit(now)
        self._ahead = transmit
        return size
