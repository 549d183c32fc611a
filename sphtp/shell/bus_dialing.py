"""The message bus, PUB and SUB sockets on Trio: the sockets that dial.

Only this module imports pynng. The sockets that dial are NNG's: they reconnect by themselves when a
connection ends, and only a TLS handshake that breaks off or stalls can stop them (see
``redial_stalled``). The sockets that listen are the project's own, because strangers can reach them
(see ``bus_connections`` and ``bus_listening``).

Sending never blocks: a publisher copies each message to every subscriber, and if a subscriber's
queue is full, its oldest message is discarded. Receiving waits for a descriptor and then drains a
bounded batch, which is several times faster than one wait per message. A process that has dialled
must never fork: spawn a fresh interpreter instead.
"""

import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

import pynng
import trio
from pynng import TLSConfig, ffi
from pynng import lib as nng

from sphtp.errors import BusError, MessageTooLargeError, SettingsError
from sphtp.shell.tls import Tls, is_wanted, unusable

DEFAULT_BUFFER: Final = 8192
"""The messages buffered, which is NNG's maximum. With NNG's default of 16, 90 % of the messages are
lost if many clients start at once."""

ENDS_KEPT: Final = 16384
"""The most ended connections that are remembered until they are taken; the oldest are dropped."""

RECONNECT_MIN: Final = 100
RECONNECT_MAX: Final = 2000
"""Milliseconds between attempts to reach a dialled address; they double from the first to the last.
"""

STALLED: Final = 15.0
"""The seconds without a connection after which a TLS address is dialled anew.

If the peer closes a connection during its TLS handshake, NNG 1.11 can stop dialling for ever. It
also waits for ever in a handshake that stalls. The greeting after the handshake may take up to
10 s, by a limit of NNG, and the pause before an attempt 2 s.
"""

LOOK_INTERVAL: Final = 1.0
"""Seconds between two looks for such addresses."""

# By default NNG starts some seven threads per core. A control plane needs one or two of each kind.
# The parameters have an effect only before the first socket of the process opens.
_THREADS: Final = {
    nng.NNG_INIT_NUM_TASK_THREADS: 2,
    nng.NNG_INIT_NUM_EXPIRE_THREADS: 1,
    nng.NNG_INIT_NUM_POLLER_THREADS: 1,
    nng.NNG_INIT_NUM_RESOLVER_THREADS: 1,
}
for _parameter, _count in _THREADS.items():
    nng.nng_init_set_parameter(_parameter, _count)


class _Ends:
    """The ended connections of a socket.

    This is a separate object, because a callback that is a method of the socket would keep the
    socket alive.
    """

    def __init__(self) -> None:
        self.number = 0
        self.pipes: deque[int] = deque(maxlen=ENDS_KEPT)

    def note_in_nng_thread(self, pipe: Any) -> None:
        self.number += 1
        self.pipes.append(pipe.id)


class _Dialled:
    """NNG's dialer of an address, and the time since which it has had no connection."""

    def __init__(self, dialer: Any) -> None:
        self.dialer = dialer
        self.waiting_since: float | None = None
        """The time of the first look, or of the last one that saw a connection or dialled anew."""


class BusSocket:
    """The base of both dialling sockets: addresses and lifetime."""

    def __init__(
        self,
        opened: Any,
        *,
        on_connected: Callable[[], None] | None,
        tls: Tls | None,
    ) -> None:
        self._socket = opened
        self._closed = False
        self._ends = _Ends()
        self.tls = tls
        """The files for new connections."""
        self._on_connected = on_connected
        self._dialled: dict[str, _Dialled] = {}
        opened.tcp_keepalive = True
        opened.add_post_pipe_remove_cb(self._ends.note_in_nng_thread)
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
        """The number of peers that are connected."""
        return len(self._socket.pipes)

    @property
    def ended(self) -> int:
        """The number of connections that ended, for any reason."""
        return self._ends.number

    def take_ended(self) -> list[int]:
        """Return the numbers of the connections that ended since the last call."""
        ended = self._ends.pipes
        return [ended.popleft() for _ in range(len(ended))]

    def dial(self, url: str) -> None:
        """Connect to ``url``, and repeat that until it succeeds. A second call has no effect.

        Raises:
            BusError: the address is malformed. An address without a listener is no error.
            SettingsError: the URL is for TLS and there are no files, or the reverse; or a file
                cannot be used.
            trio.ClosedResourceError: this socket was closed.
        """
        self._check_open()
        if url in self._dialled:
            return
        try:
            self._dialled[url] = _Dialled(self._start(url))
        except pynng.NNGException as error:
            raise BusError(f"cannot dial {url}: {error.args[0]}") from error

    def hang_up(self, url: str) -> None:
        """Close the connection to ``url`` and stop dialling it. An unknown address is ignored.

        Raises ``trio.ClosedResourceError`` if this socket was closed.
        """
        self._check_open()
        dialled = self._dialled.pop(url, None)
        if dialled is not None:
            nng.nng_dialer_close(dialled.dialer[0])

    async def redial_stalled(self) -> None:
        """Dial anew each TLS address that has no connection for ``STALLED`` seconds.

        Runs until cancelled, or ends at once without TLS.
        """
        while self.tls is not None:
            await trio.sleep(LOOK_INTERVAL)
            self._redial_stalled(trio.current_time())

    def _redial_stalled(self, now: float) -> None:
        pipes = [nng.nng_pipe_dialer(pipe.pipe) for pipe in self._socket.pipes]
        connected = {nng.nng_dialer_id(dialer) for dialer in pipes}
        for url, dialled in self._dialled.items():
            if dialled.waiting_since is None or nng.nng_dialer_id(dialled.dialer[0]) in connected:
                dialled.waiting_since = now
            elif now - dialled.waiting_since >= STALLED:
                dialled.waiting_since = now
                # Without usable files the old attempt goes on.
                with suppress(pynng.NNGException, SettingsError):
                    stalled, dialled.dialer = dialled.dialer, self._start(url)
                    nng.nng_dialer_close(stalled[0])

    def _start(self, url: str) -> Any:
        return _dial(self._socket, url, _tls_config(self.tls, url))

    def close(self) -> None:
        """Close at once; a task that waits gets ``trio.ClosedResourceError``. Closing twice is
        fine.
        """
        if not self._closed:
            self._closed = True
            self._dialled.clear()
            self._socket.close()

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this bus socket is closed")

    def _connected_in_nng_thread(self, pipe: Any) -> None:
        # Trio may have ended before NNG calls this.
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._connected, idempotent=True)

    def _connected(self) -> None:
        if self._on_connected is not None and not self._closed:
            self._on_connected()


def _dial(opened: Any, url: str, config: Any) -> Any:
    # A configuration has the name of the expected host, so that each dialer needs its own. pynng
    # would set it at the socket, where the last one would apply to all dialers.
    dialer = ffi.new("nng_dialer *")
    pynng.check_err(nng.nng_dialer_create(dialer, opened.socket, url.encode()))
    try:
        if config is not None:
            pynng.Dialer(dialer, opened).tls_config = config
        pynng.check_err(nng.nng_dialer_start(dialer[0], nng.NNG_FLAG_NONBLOCK))
    except pynng.NNGException:
        nng.nng_dialer_close(dialer[0])
        raise
    return dialer


def checked_buffer(buffer: int) -> int:
    """Return the size of a buffer. Raises ``SettingsError`` if NNG does not allow it."""
    if not 1 <= buffer <= DEFAULT_BUFFER:
        raise SettingsError(f"a bus buffer of {buffer} messages; allowed are 1 to {DEFAULT_BUFFER}")
    return buffer


MAX_MESSAGE_SIZE: Final = 65536
"""The most bytes of a message that a publisher sends."""


class PubSocket(BusSocket):
    """A PUB socket.

    Args:
        buffer: the most messages that are queued for a slow subscriber, 1 to 8192.
        on_connected: called in Trio's thread soon after a connection came up; once for several
            that came up together, and never after ``close``.
        tls: the files for ``tls+tcp`` addresses; with them, other addresses raise
            ``SettingsError``.
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
        """Send a message to every connected subscriber, without blocking.

        Raises:
            MessageTooLargeError: the message has more than ``MAX_MESSAGE_SIZE`` bytes.
            trio.ClosedResourceError: this publisher was closed.
        """
        self._check_open()
        if len(data) > MAX_MESSAGE_SIZE:
            raise MessageTooLargeError(
                f"a message of {len(data)} bytes; the bus carries at most {MAX_MESSAGE_SIZE}"
            )
        self._socket.send(data)


RECEIVE_SIZE: Final = 2 * MAX_MESSAGE_SIZE
"""The most bytes of a message that a socket receives: it drops a larger one, and its connection.

A message between the two limits arrives, so that its reader can count it before dropping it.
"""


class BusArrival(NamedTuple):
    """A message, and the number of the connection that brought it."""

    data: bytes
    pipe: int


class SubSocket(BusSocket):
    """A SUB socket. Subscribe before you dial; otherwise the first messages may be lost.

    Args:
        buffer: the most messages that wait for ``receive_arrivals``, 1 to 8192; with more, the
            oldest is dropped.
        max_size: the most bytes of a message; a larger one is dropped, and its connection is
            closed.
        on_connected, tls: as for ``PubSocket``.
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
        """Receive messages that begin with ``topic`` from now on; ``b""`` matches every message.

        Raises ``trio.ClosedResourceError`` if this socket was closed.
        """
        self._check_open()
        self._socket.subscribe(topic)

    def unsubscribe(self, topic: bytes) -> None:
        """Stop receiving ``topic``, buffered messages included.

        Raises:
            BusError: there is no subscription to ``topic``.
            trio.ClosedResourceError: this socket was closed.
        """
        self._check_open()
        try:
            self._socket.unsubscribe(topic)
        except pynng.NNGException as error:
            raise BusError(f"not subscribed to {topic!r}") from error

    def prove(self, _: int) -> None:
        """Do nothing: this side has dialled the connection, and need not authenticate it."""

    def note_replayed_message(self, _: int) -> None:
        """Do nothing, as ``prove``."""

    async def receive_batch(self, limit: int = 256) -> list[bytes]:
        """Wait for messages as ``receive_arrivals`` does, and return only their bytes."""
        return [arrival.data for arrival in await self.receive_arrivals(limit)]

    async def receive_arrivals(self, limit: int = 256) -> list[BusArrival]:
        """Wait for messages, and return those that have arrived, at most ``limit``, in order.

        A cancelled call loses no message.

        Raises:
            trio.ClosedResourceError: this socket was closed before the call or during it.
            trio.BusyResourceError: another task already waits here.
        """
        self._check_open()
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            self._check_open()
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

    def _drain(self, limit: int) -> list[BusArrival]:
        batch: list[BusArrival] = []
        slot = ffi.new("nng_msg **")
        while len(batch) < limit:
            error = nng.nng_recvmsg(self._socket.socket, slot, nng.NNG_FLAG_NONBLOCK)
            if error == nng.NNG_EAGAIN:
                break
            pynng.check_err(error)
            batch.append(_take(slot[0]))
        return batch


def _take(message: Any) -> BusArrival:
    # pynng itself would look up an object of the pipe in a table under a lock, which is not needed.
    try:
        pipe = nng.nng_pipe_id(nng.nng_msg_get_pipe(message))
        size = nng.nng_msg_len(message)
        # The body of an empty message is a null pointer.
        data = ffi.buffer(nng.nng_msg_body(message), size)[:] if size else b""
        return BusArrival(data, pipe)
    finally:
        nng.nng_msg_free(message)


def _tls_config(tls: Tls | None, url: str) -> Any:
    """Return the configuration to dial with, or None without TLS.

    Raises ``SettingsError`` if the files are missing or unusable, or do not fit the URL.
    """
    if not is_wanted(tls, url, "dial"):
        return None
    assert tls is not None
    if tls.ca is None:
        raise SettingsError(f"dialling {url} needs a TLS authority (ca) for its certificate")
    # NNG accepts some wrong files without an error, and its errors for others have no cause. So
    # ``read_ca`` and the others check the files.
    try:
        config = TLSConfig(
            TLSConfig.MODE_CLIENT,
            ca_string=tls.read_ca(),
            own_cert_string=tls.read_cert(),
            own_key_string=tls.read_key(),
        )
    except pynng.NNGException as error:
        raise unusable(tls, str(error.args[0])) from error
    config.set_auth_mode(TLSConfig.AUTH_MODE_REQUIRED)
    # Without it, NNG refuses every certificate.
    config.set_server_name(urlsplit(url).hostname)
    return config
