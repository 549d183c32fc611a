"""A SUB socket that dials: hears what begins with its topics, and through which connection."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pynng
import trio
from pynng import ffi
from pynng import lib as nng

from sphtp.shell.bus.publisher import MAX_MESSAGE_SIZE
from sphtp.shell.bus.sockets import (
    DEFAULT_BUFFER,
    RECONNECT_MAX,
    RECONNECT_MIN,
    BusError,
    BusSocket,
    checked_buffer,
)
from sphtp.shell.tls import Tls

RECEIVE_SIZE: Final = 2 * MAX_MESSAGE_SIZE
"""Bytes. NNG drops a larger message, and its connection; below, readers count what is too large."""


class Arrival(NamedTuple):
    """A message, and the connection that it came through: by its number."""

    data: bytes
    pipe: int


class Subscriber(BusSocket):
    """A SUB socket. Subscribe before dialling, or the first messages are missed.

    Args:
        buffer: messages kept while nobody receives, 1 to 8192; when full, the oldest goes.
        max_size: bytes; a larger message is dropped, with the connection it came through.
        on_connected, tls: as for `Publisher`.
    """

    def __init__(
        self,
        buffer: int = DEFAULT_BUFFER,
        max_size: int = RECEIVE_SIZE,
        *,
        on_connected: Callable[[], None] | None = None,
        tls: Tls | None = None,
    ) -> None:
        opened = pynng.Sub0(
            recv_buffer_size=checked_buffer(buffer),
            recv_max_size=max_size,
            reconnect_time_min=RECONNECT_MIN,
            reconnect_time_max=RECONNECT_MAX,
        )
        super().__init__(opened, on_connected=on_connected, tls=tls)
        self._descriptor: int = opened.recv_fd

    def subscribe(self, topic: bytes) -> None:
        """Receive what begins with ``topic`` from now on; ``b""`` is everything."""
        self._check_open()
        self._socket.subscribe(topic)

    def unsubscribe(self, topic: bytes) -> None:
        """Receive ``topic`` no more, not even what waits in the buffer.

        Raises:
            BusError: it was not subscribed to.
        """
        self._check_open()
        try:
            self._socket.unsubscribe(topic)
        except pynng.NNGException as error:
            raise BusError(f"not subscribed to {topic!r}") from error

    def prove(self, _: int) -> None:
        """Note that a connection brought a message that the cluster's secret vouches for.

        Here that changes nothing: this side chose whom to dial.
        """

    def excuse(self, _: int) -> None:
        """Note that a connection brought such a message that had come before: as ``prove``."""

    async def receive_batch(self, limit: int = 256) -> list[bytes]:
        """As ``receive_arrivals``, without where they came from."""
        return [arrival.data for arrival in await self.receive_arrivals(limit)]

    async def receive_arrivals(self, limit: int = 256) -> list[Arrival]:
        """Wait until there is a message, then return what is there, at most ``limit``, in order.

        Cancelling loses nothing.

        Raises:
            trio.ClosedResourceError: closed, before or during the wait.
            trio.BusyResourceError: another task already waits here.
        """
        self._check_open()
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            batch = self._drain(limit)
            if batch:
                return batch

    def close(self) -> None:
        """Close at once; a task that waits gets ``trio.ClosedResourceError``."""
        if not self._closed:
            # Without this a waiting task would wait for ever. Outside Trio there is none.
            with suppress(RuntimeError):
                trio.lowlevel.notify_closing(self._descriptor)
        super().close()

    def _drain(self, limit: int) -> list[Arrival]:
        batch: list[Arrival] = []
        slot = ffi.new("nng_msg **")
        while len(batch) < limit:
            error = nng.nng_recvmsg(self._socket.socket, slot, nng.NNG_FLAG_NONBLOCK)
            if error == nng.NNG_EAGAIN:
                break
            pynng.check_err(error)
            batch.append(_take(slot[0]))
        return batch


def _take(message: Any) -> Arrival:
    # pynng's own way looks the pipe up in a table under a lock, for an object that nobody needs.
    try:
        pipe = nng.nng_pipe_id(nng.nng_msg_get_pipe(message))
        size = nng.nng_msg_len(message)
        # An empty message has no bytes to point at.
        data = ffi.buffer(nng.nng_msg_body(message), size)[:] if size else b""
        return Arrival(data, pipe)
    finally:
        nng.nng_msg_free(message)
