"""A PUB socket that dials: what is sent goes to everyone connected."""

from collections.abc import Callable
from typing import Final

import pynng

from sphtp.errors import MessageTooLargeError
from sphtp.shell.bus.sockets import (
    DEFAULT_BUFFER,
    RECONNECT_MAX,
    RECONNECT_MIN,
    BusSocket,
    checked_buffer,
)
from sphtp.shell.tls import Tls

MAX_MESSAGE_SIZE: Final = 65536
"""Bytes that a publisher sends at most."""


class Publisher(BusSocket):
    """A PUB socket.

    Args:
        buffer: messages kept per subscriber that is slower than this publisher, 1 to 8192.
        on_connected: called in Trio's thread soon after a connection came up; once for several
            that came up together, and never after ``close``.
        tls: for addresses ``tls+tcp``, and then for no others.
    """

    def __init__(
        self,
        buffer: int = DEFAULT_BUFFER,
        *,
        on_connected: Callable[[], None] | None = None,
        tls: Tls | None = None,
    ) -> None:
        opened = pynng.Pub0(
            send_buffer_size=checked_buffer(buffer),
            reconnect_time_min=RECONNECT_MIN,
            reconnect_time_max=RECONNECT_MAX,
        )
        super().__init__(opened, on_connected=on_connected, tls=tls)

    def send(self, data: bytes) -> None:
        """Send to everyone connected, without ever blocking.

        Raises:
            MessageTooLargeError: receivers would drop it, together with this connection.
            trio.ClosedResourceError: this publisher was closed.
        """
        self._check_open()
        if len(data) > MAX_MESSAGE_SIZE:
            raise MessageTooLargeError(
                f"a message of {len(data)} bytes; the bus carries at most {MAX_MESSAGE_SIZE}"
            )
        self._socket.send(data)
