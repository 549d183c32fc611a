"""What both sorts of sockets that dial have in common: addresses, connections and lifetime."""

import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self

import pynng
import trio
from pynng import ffi
from pynng import lib as nng

from sphtp.errors import LocalError, SettingsError
from sphtp.shell.bus import tls as tls_configs
from sphtp.shell.tls import Tls

DEFAULT_BUFFER: Final = 8192
"""Messages, the most that NNG allows. With its own 16, a mass start loses nine answers of ten."""

ENDS_KEPT: Final = 16384
"""Connections that ended and of which nobody has been told yet; the oldest go unmentioned."""

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
    """Connections that ended. A method of the socket would keep the socket alive."""

    def __init__(self) -> None:
        self.number = 0
        self.pipes: deque[int] = deque(maxlen=ENDS_KEPT)

    def note_in_nng_thread(self, pipe: Any) -> None:
        self.number += 1
        self.pipes.append(pipe.id)


class BusSocket:
    """What both sorts of sockets that dial have in common: addresses and lifetime."""

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
        self._tls = tls
        self._on_connected = on_connected
        self._dialers: dict[str, Any] = {}
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
        """How many peers are connected at this moment."""
        return len(self._socket.pipes)

    @property
    def ended(self) -> int:
        """How many connections ended, for whatever reason; NNG tells none."""
        return self._ends.number

    def take_ended(self) -> list[int]:
        """Return the numbers of the connections that ended since the last call."""
        ended = self._ends.pipes
        return [ended.popleft() for _ in range(len(ended))]

    def dial(self, url: str) -> None:
        """Reach for ``url``, now and again until it answers. Dialling it twice is dialling it once.

        Raises:
            BusError: the address is malformed. One where nobody listens is no error.
            SettingsError: as for ``listen``.
        """
        self._check_open()
        if url in self._dialers:
            return
        config = tls_configs.for_dialling(self._tls, url)
        try:
            self._dialers[url] = _dial(self._socket, url, config)
        except pynng.NNGException as error:
            raise BusError(f"cannot dial {url}: {error.args[0]}") from error

    def hang_up(self, url: str) -> None:
        """Drop the connection to ``url`` and dial it no more. Not having dialled it is fine."""
        self._check_open()
        dialer = self._dialers.pop(url, None)
        if dialer is not None:
            nng.nng_dialer_close(dialer[0])

    def close(self) -> None:
        """Close at once; whoever waits gets ``trio.ClosedResourceError``. Closing twice is fine."""
        if not self._closed:
            self._closed = True
            self._dialers.clear()
            self._socket.close()

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this bus socket is closed")

    def _connected_in_nng_thread(self, pipe: Any) -> None:
        # The run may be over by the time that NNG gets round to telling us.
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._connected, idempotent=True)

    def _connected(self) -> None:
        if self._on_connected is not None and not self._closed:
            self._on_connected()


def _dial(opened: Any, url: str, config: Any) -> Any:
    # A configuration names the host to expect. Set at the socket, as pynng would have it, the last
    # one would count for all.
    dialer = ffi.new("nng_dialer *")
    pynng.check_err(nng.nng_dialer_create(dialer, opened.socket, url.encode()))
    if config is not None:
        pynng.Dialer(dialer, opened).tls_config = config
    pynng.check_err(nng.nng_dialer_start(dialer[0], nng.NNG_FLAG_NONBLOCK))
    return dialer


def checked_buffer(buffer: int) -> int:
    """Return a size of a buffer. Raises ``SettingsError`` when NNG has none such."""
    if not 1 <= buffer <= DEFAULT_BUFFER:
        raise SettingsError(f"a bus buffer of {buffer} messages; allowed are 1 to {DEFAULT_BUFFER}")
    return buffer
