"""Many messages on their way into a lane, as it has room for them."""

from collections.abc import Sequence
from typing import Final

from sphtp.core.channel.port import MessagePort

OFFERED: Final = 4096
"""Messages for which room is looked for at a time: those behind them are not looked at again and
again while there is none."""


class Burst:
    """Reliable messages that are sent together, to leave in their order.

    Raises as ``MessagePort.room_for``, for any of them before one has left.
    """

    __slots__ = ("_lane", "_payloads", "_port", "_sent", "_sizes")

    def __init__(self, port: MessagePort, payloads: Sequence[bytes], lane: int = 0) -> None:
        self._port = port
        self._payloads = payloads
        self._sizes = list(map(len, payloads))
        self._lane = lane
        self._sent = 0
        if len(payloads) > OFFERED:
            port.room_for(self._sizes, lane)

    @property
    def left(self) -> int:
        """How many have not been queued."""
        return len(self._payloads) - self._sent

    def send(self) -> int:
        """Queue as many as have room by now; return how many that were."""
        offered = slice(self._sent, self._sent + OFFERED)
        count = self._port.send_some(self._payloads[offered], self._sizes[offered], self._lane)
        self._sent += count
        return count
