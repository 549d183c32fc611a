"""The sockets that a server listens on: SP over TCP and TLS, spoken here and not by NNG.

NNG never ends a handshake that stalls, holds a descriptor for each, and does not report that no
descriptor is left. It has one queue for the messages of all connections, which drops the oldest, so
that one connection that floods it silences the others. Here a connection has to authenticate itself
in time (see ``bus_handshakes``), and messages are taken from the connections in turn. The socket
stops reading from a connection that sends too fast, and TCP slows it down.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Final, Self
from urllib.parse import urlsplit

import trio

from sphtp.errors import BusAddressInUseError, BusError, MessageTooLargeError
from sphtp.shell import bus_tls as tls_configs
from sphtp.shell.bus_dialing import (
    DEFAULT_BUFFER,
    ENDS_KEPT,
    MAX_MESSAGE_SIZE,
    RECEIVE_SIZE,
    BusArrival,
    checked_buffer,
)
from sphtp.shell.bus_handshakes import (
    OUT_OF_DESCRIPTORS,
    AcceptCounters,
    AcceptLimits,
    Handshakes,
    SpareDescriptor,
    site_of,
)
from sphtp.shell.tls import SCHEME, Tls

SHARE: Final = 16
"""Messages taken from one connection before it is the next one's turn."""

QUEUED_BYTES: Final = 4 << 20
"""Bytes kept for a subscriber that is slower than the publisher; beyond, the oldest goes."""

PIECE: Final = 65_536
"""Bytes given to a socket at once, about. Only these may be a copy for one subscriber: what waits
behind them is the end of what all were to be sent, and is kept once for all of them."""

_BACKLOG: Final = 1024
"""The connections that the kernel queues; with 128, it refuses part of a mass start."""

_ACCEPTED_AT_ONCE: Final = 64
"""The connections that are accepted before others are served again."""

_HANDSHAKES_AT_ONCE: Final = 16
"""The steps of TLS, at about a millisecond each, before others are served again."""

_READ: Final = 65536
"""The bytes that are read from a connection at once."""

_PAUSE: Final = 0.1
"""Seconds until the next attempt to accept, if not even the spare descriptor is left."""

_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Keepalive settings with which a machine that is gone is detected after 25 s of silence."""

_USER_TIMEOUT: Final = 25_000
"""The milliseconds for which sent data may stay unacknowledged (RFC 5482)."""

_LENGTH: Final = struct.Struct(">Q")
_GREETING: Final = struct.Struct(">4sHH")
_MAGIC: Final = b"\0SP\0"
_PUB, _SUB = 32, 33
"""The protocol numbers of SP: 2 for publish and subscribe, times 16, and the side."""

_READ_EVENT, _WRITE_EVENT = selectors.EVENT_READ, selectors.EVENT_WRITE

_numbers = itertools.count(1)


class ConnectionStage(IntEnum):
    """The progress of a connection."""

    TLS = 0
    GREETING = 1
    UNPROVEN = 2
    PROVEN = 3
    ENDED = 4


class _BusConnection:
    """One connection, with the bytes that were read and not taken, and those still to send."""

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
        self.events = _READ_EVENT
        self.received = bytearray()
        self.at = 0
        self.is_ready = False
        self.has_ended = False
        self.sending: memoryview | None = None
        self.queue: deque[bytes] = deque()
        self.queued = 0

    def end(self) -> None:
        """Close it."""
        self.owner.end(self)

    @property
    def message_size(self) -> int | None:
        """The size of the next message; None if it is not known yet."""
        if len(self.received) - self.at < _LENGTH.size:
            return None
        size: int = _LENGTH.unpack_from(self.received, self.at)[0]
        return size

    @property
    def has_message(self) -> bool:
        """True if a whole message is there."""
        size = self.message_size
        return size is not None and len(self.received) - self.at - _LENGTH.size >= size

    def take_message(self) -> bytes:
        """Return the next message, which must be there."""
        start = self.at + _LENGTH.size
        self.at = start + (self.message_size or 0)
        return bytes(memoryview(self.received)[start : self.at])

    def forget_taken(self) -> None:
        """Free the memory of the messages that were taken."""
        del self.received[: self.at]
        self.at = 0


class ListeningSocket:
    """The base of both listening sockets: accepts connections, runs handshakes, ends silent ones.

    Args:
        handshakes: shared by the sockets of one server; by default with its own limits.
        on_connected: called when a connection has greeted, and never after ``close``.
        tls: the files for addresses ``tls+tcp``; with them, no other address is accepted.
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
        """The addresses that it listens at, with the real ports."""
        self._paused: list[socket.socket] = []
        self._resume_at = math.inf
        self._all: dict[int, _BusConnection] = {}
        self._greeted: dict[int, _BusConnection] = {}
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
        """Counters of connections that were ended early, at all sockets that share handshakes."""
        return self._handshakes.counters

    @property
    def ended(self) -> int:
        """The number of connections that had greeted and ended, for whatever reason."""
        return self._ends

    def take_ended(self) -> list[int]:
        """Return the numbers of the connections that ended since the last call."""
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def listen(self, url: str) -> str:
        """Listen on ``url``; return it, with the actual port in the place of port 0.

        Raises:
            BusAddressInUseError: another program listens there.
            BusError: the address is malformed, or is not one of this machine.
            SettingsError: the URL asks for TLS and there are no files, or the reverse.
        """
        self._check_open()
        family, address = _resolve(url)
        context = tls_configs.for_listening(self._tls, url)
        listener = _listen(url, family, address)
        self._listeners[listener.fileno()] = listener
        self._contexts[listener.fileno()] = context
        self._selector.register(listener, _READ_EVENT)
        self.urls.append(f"{url.rpartition(':')[0]}:{listener.getsockname()[1]}")
        return self.urls[-1]

    def prepare_tls(self, tls: Tls | None) -> Callable[[], None]:
        """Read files, and return the function that uses them for connections to come.

        Connections that are open stay as they are. Raises ``SettingsError``.
        """
        urls = dict(zip(self._contexts, self.urls, strict=True))
        contexts = {number: tls_configs.for_listening(tls, url) for number, url in urls.items()}

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

    def end(self, connection: _BusConnection) -> None:
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
        """Do all work that needs no waiting."""
        now = trio.current_time()
        if now >= self._resume_at:
            self._resume_accepting()
        shaken = 0
        for key, events in self._selector.select(0):
            connection: _BusConnection | None = key.data
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
                    # There is nobody left, or whoever it was has gone again.
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
            self._selector.register(self._paused.pop(), _READ_EVENT)

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
        connection = _BusConnection(self, accepted, site_of(host))
        context = self._contexts[listener.fileno()]
        if context is not None:
            connection.stage = ConnectionStage.TLS
            try:
                connection.socket = context.wrap_socket(
                    accepted, server_side=True, do_handshake_on_connect=False
                )
            except OSError:  # it has gone again
                accepted.close()
                return
        self._all[connection.number] = connection
        self._selector.register(connection.socket, _READ_EVENT, connection)
        self._handshakes.begin(now, connection, lambda: self._is_excused(connection))
        if context is None:
            self._greet(connection)
            # Who has greeted already is not pushed out by those that are accepted next.
            self._progress(now, connection, _READ_EVENT)

    def _shake(self, now: float, connection: _BusConnection) -> None:
        opened = connection.socket
        assert isinstance(opened, ssl.SSLSocket)
        try:
            opened.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(connection, _READ_EVENT)
        except ssl.SSLWantWriteError:
            self._watch(connection, _WRITE_EVENT)
        except (OSError, ValueError):
            self.counters.failed += 1
            self.end(connection)
        else:
            self._watch(connection, _READ_EVENT)
            connection.stage = ConnectionStage.GREETING
            self._greet(connection)
            # What came in the same packet is in TLS's buffer, where waiting does not see it.
            if connection.stage is not ConnectionStage.ENDED:
                self._progress(now, connection, _READ_EVENT)

    def _greet(self, connection: _BusConnection) -> None:
        try:
            connection.socket.send(_GREETING.pack(_MAGIC, self._OWN, 0))
        except OSError:
            self.end(connection)

    def _progress(self, now: float, connection: _BusConnection, events: int) -> None:
        if events & _WRITE_EVENT and connection.stage is not ConnectionStage.ENDED:
            self._send_more(connection)
        if events & _READ_EVENT and connection.stage is not ConnectionStage.ENDED:
            self._read(connection)
            if connection.stage is ConnectionStage.GREETING:
                self._hear_greeting(now, connection)
            if connection.stage in (ConnectionStage.UNPROVEN, ConnectionStage.PROVEN):
                self._handle_received(now, connection)
            if connection.has_ended and not connection.is_ready:
                self.end(connection)

    def _read(self, connection: _BusConnection) -> None:
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

    def _hear_greeting(self, now: float, connection: _BusConnection) -> None:
        if len(connection.received) < _GREETING.size:
            return
        told = bytes(connection.received[: _GREETING.size])
        del connection.received[: _GREETING.size]
        if told != _GREETING.pack(_MAGIC, self._OTHER, 0):
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

    def _watch(self, connection: _BusConnection, events: int) -> None:
        """Wait for these events of a connection; with 0, for none."""
        if events == connection.events:
            return
        if not events:
            self._selector.unregister(connection.socket)
        elif not connection.events:
            self._selector.register(connection.socket, events, connection)
        else:
            self._selector.modify(connection.socket, events, connection)
        connection.events = events

    def _is_excused(self, connection: _BusConnection) -> bool:
        """Return True if a connection need not prove that it knows the secret."""
        raise NotImplementedError

    def _handle_received(self, now: float, connection: _BusConnection) -> None:
        raise NotImplementedError

    def _send_more(self, connection: _BusConnection) -> None:
        raise NotImplementedError

    def _let_go(self, connection: _BusConnection) -> None:
        """Remove a connection that is about to be closed."""


class ListeningPubSocket(ListeningSocket):
    """A PUB socket that listens: it sends to every connected subscriber.

    ``run`` has to run all the time. It keeps ``buffer`` messages, 4 MiB at most, for slow
    subscribers, and then drops the oldest. All slow subscribers share them.
    """

    _OWN, _OTHER = _PUB, _SUB

    def __init__(
        self,
        handshakes: Handshakes | None = None,
        *,
        buffer: int = DEFAULT_BUFFER,
        on_connected: Callable[[], None] | None = None,
        tls: Tls | None = None,
    ) -> None:
        super().__init__(handshakes, on_connected=on_connected, tls=tls)
        self._buffer = checked_buffer(buffer)
        self.discarded = 0
        """The messages that were discarded for subscribers that read too slowly."""

    async def run(self) -> None:
        """Accept connections, and send to slow subscribers, until cancelled or closed."""
        with suppress(trio.ClosedResourceError):
            while True:
                await self._wait()
                self._pump()

    def send(self, data: bytes) -> None:
        """Send to every connected subscriber without blocking. Raises as ``send_many``."""
        self.send_many((data,))

    def send_many(self, messages: Sequence[bytes]) -> None:
        """Send several messages to everyone connected, in one piece, without ever blocking.

        Raises:
            MessageTooLargeError: receivers would drop one, together with this connection.
            trio.ClosedResourceError: this publisher was closed.
        """
        self._check_open()
        for data in messages:
            if len(data) > MAX_MESSAGE_SIZE:
                raise MessageTooLargeError(
                    f"a message of {len(data)} bytes; the bus carries at most {MAX_MESSAGE_SIZE}"
                )
        frames = [_LENGTH.pack(len(data)) + data for data in messages]
        pieces = list(_pieces(frames))
        for connection in tuple(self._greeted.values()):
            behind = 0
            for piece, end in pieces:
                if connection.sending is not None or connection.stage is ConnectionStage.ENDED:
                    break
                self._send(connection, piece)
                behind = end
            self._enqueue(connection, frames[behind:])

    def _send(self, connection: _BusConnection, data: memoryview) -> None:
        try:
            sent = connection.socket.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            sent = 0
        except OSError:
            self.end(connection)
            return
        if sent < len(data):
            # TLS wants the very same bytes again.
            connection.sending = data[sent:]
            self._watch(connection, _READ_EVENT | _WRITE_EVENT)
        else:
            connection.sending = None
            self._watch(connection, _READ_EVENT)

    def _enqueue(self, connection: _BusConnection, frames: Iterable[bytes]) -> None:
        queue = connection.queue
        for frame in frames:
            queue.append(frame)
            connection.queued += len(frame)
        while len(queue) > self._buffer or connection.queued > QUEUED_BYTES:
            connection.queued -= len(queue.popleft())
            self.discarded += 1

    def _send_more(self, connection: _BusConnection) -> None:
        while connection.sending is not None:
            before = connection.sending
            self._send(connection, before)
            if connection.stage is ConnectionStage.ENDED or connection.sending is not None:
                return
            if connection.queue:
                piece, end = next(_pieces(connection.queue))
                for _ in range(end):
                    connection.queued -= len(connection.queue.popleft())
                connection.sending = piece

    def _is_excused(self, connection: _BusConnection) -> bool:
        # Who only listens can prove nothing. Who speaks from the same place does it for both.
        return connection.stage >= ConnectionStage.UNPROVEN and self._handshakes.trusts(
            connection.site
        )

    def _handle_received(self, _: float, connection: _BusConnection) -> None:
        if connection.received:
            # A subscriber has nothing to say.
            self.end(connection)


class ListeningSubSocket(ListeningSocket):
    """A SUB socket that listens: it takes messages from all connections in turn.

    ``max_size`` is in bytes; a larger message is dropped, with the connection it came through.
    """

    _OWN, _OTHER = _SUB, _PUB

    def __init__(
        self,
        handshakes: Handshakes | None = None,
        *,
        max_size: int = RECEIVE_SIZE,
        on_connected: Callable[[], None] | None = None,
        tls: Tls | None = None,
    ) -> None:
        super().__init__(handshakes, on_connected=on_connected, tls=tls)
        self._max_size = max_size
        self._topics: tuple[bytes, ...] = ()
        self._ready: deque[_BusConnection] = deque()
        self._ends_told = 0

    def subscribe(self, topic: bytes) -> None:
        """Receive messages that begin with ``topic`` from now on; ``b""`` matches every message."""
        self._check_open()
        self._topics = (*self._topics, topic)

    async def receive_batch(self, limit: int = 256) -> list[bytes]:
        """Return messages as ``receive_arrivals`` does, without their connections."""
        return [arrival.data for arrival in await self.receive_arrivals(limit)]

    async def receive_arrivals(self, limit: int = 256) -> list[BusArrival]:
        """Wait until there is a message or a connection ended; return at most ``limit`` messages.

        They are taken from the connections in turn, and those of one are in order. Cancelling loses
        nothing.

        Raises:
            trio.ClosedResourceError: closed, before or during the wait.
            trio.BusyResourceError: another task already waits here.
        """
        self._check_open()
        while True:
            if self._ready:
                await trio.lowlevel.checkpoint()
                self._check_open()
            else:
                await self._wait()
            self._pump()
            batch = self._take(limit)
            if batch or self._ends > self._ends_told:
                self._ends_told = self._ends
                return batch

    def prove(self, number: int) -> None:
        """Note that a connection brought a message with a valid MAC."""
        connection = self._all.get(number)
        if connection is not None and connection.stage is ConnectionStage.UNPROVEN:
            connection.stage = ConnectionStage.PROVEN
            self._handshakes.end(connection)
            self._handshakes.trust(connection.site)

    def note_replayed_message(self, number: int) -> None:
        """Note that a connection brought a message that came before over another one.

        A client that dials a server under two of its names sends everything twice, and only the
        first copy counts. A copy proves nothing by itself. The second connection is accepted
        because the first one comes from the same site.
        """
        connection = self._all.get(number)
        if connection is None or connection.stage is not ConnectionStage.UNPROVEN:
            return
        if self._handshakes.trusts(connection.site):
            self._handshakes.end(connection)

    def _take(self, limit: int) -> list[BusArrival]:
        batch: list[BusArrival] = []
        now = trio.current_time()
        while self._ready and len(batch) < limit:
            connection = self._ready.popleft()
            connection.is_ready = False
            self._take_from(connection, min(SHARE, limit - len(batch)), batch)
            if connection.stage is not ConnectionStage.ENDED:
                self._handle_received(now, connection)
                if connection.has_ended and not connection.is_ready:
                    self.end(connection)
        return batch

    def _take_from(self, connection: _BusConnection, share: int, batch: list[BusArrival]) -> None:
        for _ in range(share):
            if not connection.has_message:
                break
            data = connection.take_message()
            if data.startswith(self._topics):
                batch.append(BusArrival(data, connection.number))
        connection.forget_taken()
        if connection.stage is ConnectionStage.PROVEN:
            # What is left is of another message, which has a deadline of its own.
            self._handshakes.end(connection)

    def _handle_received(self, now: float, connection: _BusConnection) -> None:
        """Queue a connection that has a whole message; read on from one that has none."""
        size = connection.message_size
        if size is not None and size > self._max_size:
            self.end(connection)
        elif connection.has_message:
            self._watch(connection, 0)
            connection.is_ready = True
            self._ready.append(connection)
        else:
            self._watch(connection, 0 if connection.has_ended else _READ_EVENT)
            if connection.stage is ConnectionStage.PROVEN:
                self._expect_the_rest(now, connection)

    def _expect_the_rest(self, now: float, connection: _BusConnection) -> None:
        """Start the deadline of a message that has begun, which must not hold memory for ever."""
        if connection.received:
            self._handshakes.begin(now, connection)
        else:
            self._handshakes.end(connection)

    def _is_excused(self, connection: _BusConnection) -> bool:
        return False

    def _let_go(self, connection: _BusConnection) -> None:
        if connection.is_ready:
            self._ready.remove(connection)
        if connection.stage is ConnectionStage.PROVEN and self._handshakes.asks_for_proof:
            self._handshakes.distrust(connection.site)


def _pieces(frames: Iterable[bytes]) -> Iterator[tuple[memoryview, int]]:
    """Join frames to pieces. Yield each with the number of frames joined so far."""
    parts: list[bytes] = []
    size = number = 0
    for number, frame in enumerate(frames, 1):
        parts.append(frame)
        size += len(frame)
        if size >= PIECE:
            yield memoryview(b"".join(parts)), number
            parts, size = [], 0
    if parts:
        yield memoryview(b"".join(parts)), number


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
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise BusAddressInUseError(f"{url} is already in use") from error
        raise BusError(f"cannot listen on {url}: {_words(error)}") from error
    return listener


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _set_up(accepted: socket.socket) -> None:
    """Make a socket send small messages at once, and detect a machine that is gone."""
    tcp = socket.IPPROTO_TCP
    with suppress(OSError):  # it has gone again, which reading will tell
        accepted.setsockopt(tcp, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in {**_KEEPALIVE, "TCP_USER_TIMEOUT": _USER_TIMEOUT}.items():
            if hasattr(socket, name):  # not every system has them
                accepted.setsockopt(tcp, getattr(socket, name), value)
