"""Connections that a server accepts: SP over TCP and TLS, implemented here and not by NNG.

NNG never ends a TLS handshake that stalls, keeps a descriptor for each, and does not report that no
descriptor is left. Here a connection has to authenticate itself in time (see ``bus_handshakes``).

The layout is that of the SP transport mapping for TCP (nanomsg RFC "sp-tcp-mapping-01"): a greeting
of eight bytes each way, then messages, each after its length as eight bytes, most significant
first.
"""

import errno
import itertools
import math
import selectors
import socket
import ssl
import struct
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from enum import IntEnum
from typing import Final, Self
from urllib.parse import urlsplit

import trio

from sphtp.errors import BusAddressInUseError, BusError, SettingsError
from sphtp.shell.bus_dialing import ENDS_KEPT
from sphtp.shell.bus_handshakes import (
    OUT_OF_DESCRIPTORS,
    AcceptCounters,
    AcceptLimits,
    Handshakes,
    SpareDescriptor,
    site_of,
)
from sphtp.shell.tls import SCHEME, Tls, is_wanted, unusable

_BACKLOG: Final = 1024
"""The most connections that the kernel queues; with 128, it refuses some if many clients start."""

_ACCEPTED_AT_ONCE: Final = 64
"""The most connections that are accepted before other connections are served again."""

_HANDSHAKES_AT_ONCE: Final = 16
"""The most steps of TLS, at about a millisecond each, before other connections are served again."""

_READ: Final = 65536
"""The bytes that are read from a connection at once."""

_PAUSE: Final = 0.1
"""Seconds until the next attempt to accept, if not even the spare descriptor is left."""

_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Keepalive settings with which a machine that is gone is detected after 25 s of silence."""

_USER_TIMEOUT: Final = 25_000
"""The milliseconds for which sent data may stay unacknowledged (RFC 5482)."""

LENGTH: Final = struct.Struct(">Q")
_GREETING: Final = struct.Struct(">4sHH")
_MAGIC: Final = b"\0SP\0"
PUB, SUB = 32, 33
"""The protocol numbers of SP: 2 for publish and subscribe, times 16, and the side."""

READ_EVENT, WRITE_EVENT = selectors.EVENT_READ, selectors.EVENT_WRITE

_numbers = itertools.count(1)


class ConnectionStage(IntEnum):
    """The steps of a connection, in order: TLS, the greeting of SP, the proof, and the end.

    A connection is PROVEN by a message with a valid MAC, or if it needs none.
    """

    TLS = 0
    GREETING = 1
    UNPROVEN = 2
    PROVEN = 3
    ENDED = 4


class BusConnection:
    """One connection, with its bytes that were read and not taken, and those to send."""

    __slots__ = (
        "at",
        "events",
        "has_ended",
        "is_ready",
        "number",
        "owner",
        "queue",
        "queued",
        "received",
        "sending",
        "site",
        "socket",
        "stage",
    )

    def __init__(self, owner: "ListeningSocket", opened: socket.socket, site: str) -> None:
        self.owner = owner
        self.socket = opened
        self.site = site
        self.number = next(_numbers)
        self.stage = ConnectionStage.GREETING
        self.events = READ_EVENT
        self.received = bytearray()
        self.at = 0
        self.is_ready = False
        self.has_ended = False
        self.sending: memoryview | None = None
        self.queue: deque[bytes] = deque()
        self.queued = 0

    def end(self) -> None:
        """Close the connection."""
        self.owner.end(self)

    @property
    def message_size(self) -> int | None:
        """The size of the next message in bytes; None if it is not known yet."""
        if len(self.received) - self.at < LENGTH.size:
            return None
        size: int = LENGTH.unpack_from(self.received, self.at)[0]
        return size

    @property
    def has_message(self) -> bool:
        """True if a whole message has arrived."""
        size = self.message_size
        return size is not None and len(self.received) - self.at - LENGTH.size >= size

    def take_message(self) -> bytes:
        """Return the next message, which must have arrived."""
        start = self.at + LENGTH.size
        self.at = start + (self.message_size or 0)
        return bytes(memoryview(self.received)[start : self.at])

    def forget_taken(self) -> None:
        """Free the memory of the messages that were taken."""
        del self.received[: self.at]
        self.at = 0


class ListeningSocket:
    """The base of both listening sockets, which accepts connections.

    It closes those that do not authenticate themselves in time (see ``bus_handshakes``).

    Args:
        handshakes: the handshakes in progress, of all sockets of a server; by default, of this one.
        on_connected: called after the SP greeting of each connection, and never after ``close``.
        tls: the files for ``tls+tcp`` addresses; with them, other addresses raise
            ``SettingsError``.
    """

    _OWN: int
    _OTHER: int

    def __init__(
        self,
        handshakes: Handshakes | None = None,
        *,
        on_connected: Callable[[], None] | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._handshakes = Handshakes(AcceptLimits()) if handshakes is None else handshakes
        self._on_connected = on_connected
        self._tls = tls
        self._contexts: dict[int, ssl.SSLContext | None] = {}
        self._listeners: dict[int, socket.socket] = {}
        self.urls: list[str] = []
        """The addresses at which the socket listens, with the real ports."""
        self._paused: list[socket.socket] = []
        self._resume_at = math.inf
        self._all: dict[int, BusConnection] = {}
        self._greeted: dict[int, BusConnection] = {}
        self._ended: deque[int] = deque(maxlen=ENDS_KEPT)
        self._ends = 0
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._spare_descriptor = SpareDescriptor()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            self.close()

    @property
    def connections(self) -> int:
        """The number of peers that are connected and have greeted."""
        return len(self._greeted)

    @property
    def counters(self) -> AcceptCounters:
        """The counts of connections that ended early, at all sockets that share ``handshakes``."""
        return self._handshakes.counters

    @property
    def ended(self) -> int:
        """The number of connections that ended after their greeting, for any reason."""
        return self._ends

    def take_ended(self) -> list[int]:
        """Return the numbers of the connections that ended since the last call.

        Connections that ended before their greeting are left out. Of more than ``ENDS_KEPT``, the
        oldest are left out, too.
        """
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def listen(self, url: str) -> str:
        """Listen on ``url``; return it, with the actual port in the place of port 0.

        Raises:
            BusAddressInUseError: another program listens there.
            BusError: the address is malformed or unknown, or this process cannot listen there.
            SettingsError: the URL is for TLS and there are no files, or the reverse; or a file
                cannot be used.
            trio.ClosedResourceError: this socket was closed.
        """
        self._check_open()
        family, address = _resolve(url)
        context = listening_context(self._tls, url)
        listener = _listen(url, family, address)
        self._listeners[listener.fileno()] = listener
        self._contexts[listener.fileno()] = context
        self._selector.register(listener, READ_EVENT)
        self.urls.append(f"{url.rpartition(':')[0]}:{listener.getsockname()[1]}")
        return self.urls[-1]

    def prepare_tls(self, tls: Tls | None) -> Callable[[], None]:
        """Read files, and return the function that uses them for new connections.

        Open connections stay as they are. Raises ``SettingsError`` for a wrong file.
        """
        urls = dict(zip(self._contexts, self.urls, strict=True))
        contexts = {number: listening_context(tls, url) for number, url in urls.items()}

        def use() -> None:
            self._tls, self._contexts = tls, contexts

        return use

    def close(self) -> None:
        """Close at once; a task that waits gets ``trio.ClosedResourceError``. Closing twice is
        fine.
        """
        if self._closed:
            return
        self._closed = True
        # Without this a waiting task would wait for ever. Outside Trio there is none.
        with suppress(RuntimeError):
            trio.lowlevel.notify_closing(self._selector.fileno())
        for connection in tuple(self._all.values()):
            self.end(connection)
        for listener in self._listeners.values():
            listener.close()
        self._selector.close()
        self._spare_descriptor.spend()

    def end(self, connection: BusConnection) -> None:
        """Close a connection. Closing it twice is fine."""
        if connection.stage is ConnectionStage.ENDED:
            return
        self._let_go(connection)
        connection.stage = ConnectionStage.ENDED
        self._handshakes.end(connection)
        del self._all[connection.number]
        if connection.events:
            self._selector.unregister(connection.socket)
        connection.socket.close()
        if self._greeted.pop(connection.number, None) is not None:
            self._ends += 1
            self._ended.append(connection.number)

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this bus socket is closed")

    async def _wait(self) -> None:
        """Wait for a socket or a deadline."""
        self._check_open()
        due = self._handshakes.next_due()
        with trio.CancelScope(deadline=min(math.inf if due is None else due, self._resume_at)):
            await trio.lowlevel.wait_readable(self._selector.fileno())
        self._check_open()

    def _pump(self) -> None:
        """Handle events of sockets and deadlines, without waiting."""
        now = trio.current_time()
        if now >= self._resume_at:
            self._resume_accepting()
        shaken = 0
        for key, events in self._selector.select(0):
            connection: BusConnection | None = key.data
            if connection is None:
                self._accept(now, self._listeners[key.fd])
            elif connection.stage is ConnectionStage.TLS:
                shaken += 1
                if shaken <= _HANDSHAKES_AT_ONCE:
                    self._shake(now, connection)
            elif connection.stage is not ConnectionStage.ENDED:
                self._progress(now, connection, events)
        self._handshakes.handle_timeout(now)

    def _accept(self, now: float, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, address = listener.accept()
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    # No connection is left, or its peer has closed it already.
                    return
                if not self._find_descriptor(now, listener):
                    return
                continue
            self._spare_descriptor.refill()
            self._admit(now, listener, accepted, address[0])

    def _find_descriptor(self, now: float, listener: socket.socket) -> bool:
        """Make room for one more connection. Return True if accepting may go on."""
        self.counters.out_of_descriptors += 1
        if self._handshakes.evict():
            return True
        if self._spare_descriptor.spend():
            with suppress(OSError):
                listener.accept()[0].close()
            self._spare_descriptor.refill()
            return True
        self._selector.unregister(listener)
        self._paused.append(listener)
        self._resume_at = now + _PAUSE
        return False

    def _resume_accepting(self) -> None:
        self._resume_at = math.inf
        self._spare_descriptor.refill()
        while self._paused:
            self._selector.register(self._paused.pop(), READ_EVENT)

    def _admit(
        self, now: float, listener: socket.socket, accepted: socket.socket, host: str
    ) -> None:
        while len(self._all) >= self._handshakes.limits.max_connections:
            if not self._handshakes.evict(self):
                self.counters.refused += 1
                accepted.close()
                return
        accepted.setblocking(False)
        _set_up(accepted)
        connection = BusConnection(self, accepted, site_of(host))
        context = self._contexts[listener.fileno()]
        if context is not None:
            connection.stage = ConnectionStage.TLS
            try:
                connection.socket = context.wrap_socket(
                    accepted, server_side=True, do_handshake_on_connect=False
                )
            except OSError:  # the peer has closed it
                accepted.close()
                return
        self._all[connection.number] = connection
        self._selector.register(connection.socket, READ_EVENT, connection)
        self._handshakes.begin(now, connection, lambda: self._is_excused(connection))
        if context is None:
            self._greet(connection)
            # A peer whose greeting has arrived must not be displaced by the next connections.
            self._progress(now, connection, READ_EVENT)

    def _shake(self, now: float, connection: BusConnection) -> None:
        opened = connection.socket
        assert isinstance(opened, ssl.SSLSocket)
        try:
            opened.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(connection, READ_EVENT)
        except ssl.SSLWantWriteError:
            self._watch(connection, WRITE_EVENT)
        except (OSError, ValueError):
            self.counters.failed += 1
            self.end(connection)
        else:
            self._watch(connection, READ_EVENT)
            connection.stage = ConnectionStage.GREETING
            self._greet(connection)
            # Bytes of the same packet are in the buffer of TLS, for which the selector cannot wait.
            if connection.stage is not ConnectionStage.ENDED:
                self._progress(now, connection, READ_EVENT)

    def _greet(self, connection: BusConnection) -> None:
        try:
            connection.socket.send(_GREETING.pack(_MAGIC, self._OWN, 0))
        except OSError:
            self.end(connection)

    def _progress(self, now: float, connection: BusConnection, events: int) -> None:
        if events & WRITE_EVENT and connection.stage is not ConnectionStage.ENDED:
            self._send_more(connection)
        if connection.is_ready:
            # The client has sent more before its last message was taken, which is rare. If each
            # ready connection left the selector, each message would cost two system calls more.
            self._watch(connection, 0)
        elif events & READ_EVENT and connection.stage is not ConnectionStage.ENDED:
            self._read(connection)
            if connection.stage is ConnectionStage.GREETING:
                self._read_greeting(now, connection)
            if connection.stage in (ConnectionStage.UNPROVEN, ConnectionStage.PROVEN):
                self._handle_received(now, connection)
            if connection.has_ended and not connection.is_ready:
                self.end(connection)

    def _read(self, connection: BusConnection) -> None:
        opened = connection.socket
        try:
            while True:
                chunk = opened.recv(_READ)
                if not chunk:
                    connection.has_ended = True
                    return
                connection.received += chunk
                if not isinstance(opened, ssl.SSLSocket) or not opened.pending():
                    return
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            connection.has_ended = True

    def _read_greeting(self, now: float, connection: BusConnection) -> None:
        if len(connection.received) < _GREETING.size:
            return
        greeting = bytes(connection.received[: _GREETING.size])
        del connection.received[: _GREETING.size]
        if greeting != _GREETING.pack(_MAGIC, self._OTHER, 0):
            self.counters.failed += 1
            self.end(connection)
            return
        self._greeted[connection.number] = connection
        connection.stage = ConnectionStage.UNPROVEN
        if not self._handshakes.asks_for_proof or self._is_excused(connection):
            connection.stage = ConnectionStage.PROVEN
            self._handshakes.end(connection)
        if self._on_connected is not None:
            self._on_connected()

    def _watch(self, connection: BusConnection, events: int) -> None:
        """Have the selector wait for these events of a connection; 0 stands for none."""
        if events == connection.events:
            return
        if not events:
            self._selector.unregister(connection.socket)
        elif not connection.events:
            self._selector.register(connection.socket, events, connection)
        else:
            self._selector.modify(connection.socket, events, connection)
        connection.events = events

    def _is_excused(self, connection: BusConnection) -> bool:
        """Return True if a connection need not prove that it has the secret."""
        raise NotImplementedError

    def _handle_received(self, now: float, connection: BusConnection) -> None:
        raise NotImplementedError

    def _send_more(self, connection: BusConnection) -> None:
        raise NotImplementedError

    def _let_go(self, connection: BusConnection) -> None:
        """Remove a connection that is about to be closed."""


def _resolve(url: str) -> tuple[int, tuple[object, ...]]:
    """Return the family and address to bind. Raises ``BusError``."""
    try:
        parts = urlsplit(url)
        if f"{parts.scheme}://" not in ("tcp://", SCHEME) or parts.port is None:
            raise ValueError("no address of the bus")
        flags = socket.AI_PASSIVE
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM, flags=flags)
    except (ValueError, OSError, UnicodeError) as error:
        raise BusError(f"cannot listen on {url}: {_words(error)}") from error
    return found[0][0], found[0][4]


def _listen(url: str, family: int, address: tuple[object, ...]) -> socket.socket:
    try:
        with ExitStack() as unless_listening:
            listener = unless_listening.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            unless_listening.pop_all()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BusAddressInUseError(f"{url} is already in use") from error
        raise BusError(f"cannot listen on {url}: {_words(error)}") from error
    return listener


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _set_up(accepted: socket.socket) -> None:
    """Make a socket send small messages at once, and detect a machine that is gone."""
    tcp = socket.IPPROTO_TCP
    with suppress(OSError):  # the peer has closed it, which the next read shows
        accepted.setsockopt(tcp, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in {**_KEEPALIVE, "TCP_USER_TIMEOUT": _USER_TIMEOUT}.items():
            if hasattr(socket, name):  # some systems lack some options
                accepted.setsockopt(tcp, getattr(socket, name), value)


def listening_context(tls: Tls | None, url: str) -> ssl.SSLContext | None:
    """Return the configuration to listen with, or None without TLS.

    Raises ``SettingsError`` if the files are missing or unusable, or do not fit the URL.
    """
    if not is_wanted(tls, url, "listen on"):
        return None
    assert tls is not None
    if tls.cert is None:
        raise SettingsError(f"listening on {url} needs a TLS certificate and its key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Clients of the bus resume no TLS session, and would have to read a ticket before the greeting.
    context.num_tickets = 0
    ca, _, _ = tls.read_ca(), tls.read_cert(), tls.read_key()
    try:
        # Without a password, OpenSSL would ask for one at the terminal if the key is encrypted.
        context.load_cert_chain(tls.cert, tls.key, password="")
        if ca is not None:
            context.load_verify_locations(cadata=ca)
    except (OSError, ValueError) as error:
        raise unusable(tls, str(error)) from error
    if tls.mutual:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
