"""The message bus: PUB and SUB sockets on Trio. The only module that knows pynng.

Sending never blocks: a publisher copies each message to every subscriber, and where a subscriber's
queue is full its oldest message is discarded. Receiving waits for the socket's descriptor and then
drains a bounded batch, which is several times faster than one wait per message. A process that has
opened one of these must never fork: spawn a fresh interpreter instead.
"""

import socket
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self

import pynng
import trio
from pynng import lib as nng

from sphtp.errors import LocalError, MessageTooLargeError, SettingsError

MAX_MESSAGE_SIZE: Final = 65536
"""Bytes that a publisher sends at most."""

RECEIVE_SIZE: Final = 2 * MAX_MESSAGE_SIZE
"""Bytes. NNG drops a larger message, and its connection; below, readers count what is too large."""

DEFAULT_BUFFER: Final = 8192
"""Messages, the most that NNG allows. With its own 16, a mass start loses nine answers of ten."""

RECONNECT_MIN: Final = 100
RECONNECT_MAX: Final = 2000
"""Milliseconds between attempts to reach a dialled address, doubling from one to the other."""

# By itself NNG starts some seven threads per core; a control plane is content with one or two of
# each sort. Only what is set before the first socket of the process opens has an effect.
_THREADS: Final = {
    nng.NNG_INIT_NUM_TASK_THREADS: 2,
    nng.NNG_INIT_NUM_EXPIRE_THREADS: 1,
    nng.NNG_INIT_NUM_POLLER_THREADS: 1,
    nng.NNG_INIT_NUM_RESOLVER_THREADS: 1,
}
for _parameter, _count in _THREADS.items():
    nng.nng_init_set_parameter(_parameter, _count)


class BusError(LocalError):
    """An address that cannot be listened on or dialled; the message names it."""


class BusAddressInUseError(BusError):
    """Somebody else listens on that address already; the message names it."""


class _Ends:
    """Counts connections that ended. A method of the socket would keep the socket alive."""

    number = 0

    def count_in_nng_thread(self, _: Any) -> None:
        self.number += 1


class _BusSocket:
    """What both sorts have in common: addresses and lifetime."""

    def __init__(
        self, opened: Any, *, max_pipes: int | None, on_connected: Callable[[], None] | None
    ) -> None:
        self._socket = opened
        self._closed = False
        self._max_pipes = max_pipes
        self._refused = 0
        self._ends = _Ends()
        self._on_connected = on_connected
        self._dialers: dict[str, Any] = {}
        opened.tcp_keepalive = True
        opened.add_post_pipe_remove_cb(self._ends.count_in_nng_thread)
        if max_pipes is not None:
            opened.add_pre_pipe_connect_cb(self._admit_in_nng_thread)
        if on_connected is not None:
            self._token = trio.lowlevel.current_trio_token()
            opened.add_post_pipe_connect_cb(self._connected_in_nng_thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            self._socket.close()

    @property
    def connections(self) -> int:
        """How many peers are connected at this moment."""
        return len(self._socket.pipes)

    @property
    def refused(self) -> int:
        """How many connections were refused because there were ``max_pipes`` already."""
        return self._refused

    @property
    def ended(self) -> int:
        """How many connections ended, for whatever reason; NNG tells none."""
        return self._ends.number

    def listen(self, url: str) -> str:
        """Listen on ``url`` and return it with the real port, should it have asked for port 0.

        Raises:
            BusAddressInUseError: somebody else listens there.
            BusError: the address is malformed, or not this machine's to use.
        """
        self._check_open()
        try:
            listener = self._socket.listen(url)
        except pynng.AddressInUse as error:
            raise BusAddressInUseError(f"{url} is already in use") from error
        except pynng.NNGException as error:
            raise BusError(f"cannot listen on {url}: {error.args[0]}") from error
        address = listener.local_address
        if not hasattr(address, "port"):
            return url
        return f"{url.rpartition(':')[0]}:{socket.ntohs(address.port)}"

    def dial(self, url: str) -> None:
        """Reach for ``url``, now and again until it answers. Dialling it twice is dialling it once.

        Raises:
            BusError: the address is malformed. One where nobody listens is no error.
        """
        self._check_open()
        if url in self._dialers:
            return
        try:
            self._dialers[url] = self._socket.dial(url, block=False)
        except pynng.NNGException as error:
            raise BusError(f"cannot dial {url}: {error.args[0]}") from error

    def hang_up(self, url: str) -> None:
        """Drop the connection to ``url`` and dial it no more. Not having dialled it is fine."""
        self._check_open()
        dialer = self._dialers.pop(url, None)
        if dialer is not None:
            dialer.close()

    def close(self) -> None:
        """Close at once; whoever waits gets ``trio.ClosedResourceError``. Closing twice is fine."""
        if not self._closed:
            self._closed = True
            self._dialers.clear()
            self._socket.close()

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this bus socket is closed")

    def _admit_in_nng_thread(self, pipe: Any) -> None:
        if self._max_pipes is not None and len(self._socket.pipes) > self._max_pipes:
            self._refused += 1
            pipe.close()

    def _connected_in_nng_thread(self, pipe: Any) -> None:
        # The run may be over by the time that NNG gets round to telling us.
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._connected, idempotent=True)

    def _connected(self) -> None:
        if self._on_connected is not None and not self._closed:
            self._on_connected()


class Publisher(_BusSocket):
    """A PUB socket.

    Args:
        buffer: messages kept per subscriber that is slower than this publisher, 1 to 8192.
        max_pipes: connections beyond this number are refused.
        on_connected: called in Trio's thread soon after a connection came up; once for several
            that came up together, and never after ``close``.
    """

    def __init__(
        self,
        buffer: int = DEFAULT_BUFFER,
        *,
        max_pipes: int | None = None,
        on_connected: Callable[[], None] | None = None,
    ) -> None:
        opened = pynng.Pub0(
            send_buffer_size=_checked(buffer),
            reconnect_time_min=RECONNECT_MIN,
            reconnect_time_max=RECONNECT_MAX,
        )
        super().__init__(opened, max_pipes=max_pipes, on_connected=on_connected)

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


class Subscriber(_BusSocket):
    """A SUB socket. Subscribe before dialling or listening, or the first messages are missed.

    Args:
        buffer: messages kept while nobody receives, 1 to 8192; when full, the oldest goes.
        max_size: bytes; a larger message is dropped, with the connection it came through.
        max_pipes, on_connected: as for `Publisher`.
    """

    def __init__(
        self,
        buffer: int = DEFAULT_BUFFER,
        max_size: int = RECEIVE_SIZE,
        *,
        max_pipes: int | None = None,
        on_connected: Callable[[], None] | None = None,
    ) -> None:
        opened = pynng.Sub0(
            recv_buffer_size=_checked(buffer),
            recv_max_size=max_size,
            reconnect_time_min=RECONNECT_MIN,
            reconnect_time_max=RECONNECT_MAX,
        )
        super().__init__(opened, max_pipes=max_pipes, on_connected=on_connected)
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

    async def receive_batch(self, limit: int = 256) -> list[bytes]:
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

    def _drain(self, limit: int) -> list[bytes]:
        batch: list[bytes] = []
        receive = self._socket.recv
        while len(batch) < limit:
            try:
                batch.append(receive(block=False))
            except pynng.TryAgain:
                break
            except RuntimeError:
                # An empty message is a null pointer, which pynng refuses to unpack.
                batch.append(b"")
        return batch


def _checked(buffer: int) -> int:
    if not 1 <= buffer <= DEFAULT_BUFFER:
        raise SettingsError(f"a bus buffer of {buffer} messages; allowed are 1 to {DEFAULT_BUFFER}")
    return buffer
