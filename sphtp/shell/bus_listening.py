"""The sockets that a server listens on: one that publishes, one that receives.

NNG has one queue for the messages of all connections, which drops the oldest. So one connection can
displace the messages of all others by a flood. Here messages are taken from the connections in
turn. The socket stops reading from a connection that sends too fast, and TCP slows its sender down.
"""

import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import trio

from sphtp.errors import MessageTooLargeError
from sphtp.shell.bus_connections import (
    LENGTH,
    PUB,
    READ_EVENT,
    SUB,
    WRITE_EVENT,
    BusConnection,
    ConnectionStage,
    ListeningSocket,
)
from sphtp.shell.bus_dialing import (
    DEFAULT_BUFFER,
    MAX_MESSAGE_SIZE,
    RECEIVE_SIZE,
    BusArrival,
    checked_buffer,
)
from sphtp.shell.bus_handshakes import Handshakes
from sphtp.shell.tls import Tls

SHARE: Final = 16
"""The most messages taken from one connection before the turn of the next one."""

QUEUED_BYTES: Final = 4 << 20
"""The most bytes queued for a slow subscriber; with more, the oldest message is dropped."""

PIECE: Final = 65_536
"""The approximate bytes that a socket gets at once. These may be a copy for one subscriber. The
messages behind them are kept once for all slow subscribers."""


class ListeningPubSocket(ListeningSocket):
    """A PUB socket that listens: it sends each message to every connected subscriber.

    ``run`` has to run as long as the socket is open. For each slow subscriber, the socket queues up
    to ``buffer`` messages and 4 MiB, and then drops the oldest. The queues share the messages.
    """

    _OWN, _OTHER = PUB, SUB

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
        """Send several messages to every connected subscriber, without blocking.

        Bytes for which a connection has no room are queued. A subscriber that reads too slowly
        misses the oldest messages of its queue, which ``discarded`` counts.

        Raises:
            MessageTooLargeError: a message has more than ``MAX_MESSAGE_SIZE`` bytes. Then none is
                sent.
            trio.ClosedResourceError: this publisher was closed.
        """
        self._check_open()
        for data in messages:
            if len(data) > MAX_MESSAGE_SIZE:
                raise MessageTooLargeError(
                    f"a message of {len(data)} bytes; the bus carries at most {MAX_MESSAGE_SIZE}"
                )
        frames = [LENGTH.pack(len(data)) + data for data in messages]
        pieces = list(_pieces(frames))
        for connection in tuple(self._greeted.values()):
            behind = 0
            for piece, end in pieces:
                if connection.sending is not None or connection.stage is ConnectionStage.ENDED:
                    break
                self._send(connection, piece)
                behind = end
            self._enqueue(connection, frames[behind:])

    def _send(self, connection: BusConnection, data: memoryview) -> None:
        try:
            sent = connection.socket.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            sent = 0
        except OSError:
            self.end(connection)
            return
        if sent < len(data):
            # TLS requires the same bytes in the next attempt.
            connection.sending = data[sent:]
            self._watch(connection, READ_EVENT | WRITE_EVENT)
        else:
            connection.sending = None
            self._watch(connection, READ_EVENT)

    def _enqueue(self, connection: BusConnection, frames: Iterable[bytes]) -> None:
        queue = connection.queue
        for frame in frames:
            queue.append(frame)
            connection.queued += len(frame)
        while len(queue) > self._buffer or connection.queued > QUEUED_BYTES:
            connection.queued -= len(queue.popleft())
            self.discarded += 1

    def _send_more(self, connection: BusConnection) -> None:
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

    def _is_excused(self, connection: BusConnection) -> bool:
        # A subscriber sends nothing, and cannot prove that it has the secret. A proven connection
        # to the SUB socket from the same site proves it for both.
        return connection.stage >= ConnectionStage.UNPROVEN and self._handshakes.trusts(
            connection.site
        )

    def _handle_received(self, _: float, connection: BusConnection) -> None:
        if connection.received:
            # A subscriber must not send messages.
            self.end(connection)


class ListeningSubSocket(ListeningSocket):
    """A SUB socket that listens: it takes messages from all connections in turn.

    A message of more than ``max_size`` bytes is dropped, and its connection is closed.
    """

    _OWN, _OTHER = SUB, PUB

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
        self._ready: deque[BusConnection] = deque()
        self._ends_reported = 0

    def subscribe(self, topic: bytes) -> None:
        """Receive messages that begin with ``topic`` from now on; ``b""`` matches every message.

        Raises ``trio.ClosedResourceError`` if this socket was closed.
        """
        self._check_open()
        self._topics = (*self._topics, topic)

    async def receive_batch(self, limit: int = 256) -> list[bytes]:
        """Return messages as ``receive_arrivals`` does, without their connections."""
        return [arrival.data for arrival in await self.receive_arrivals(limit)]

    async def receive_arrivals(self, limit: int = 256) -> list[BusArrival]:
        """Wait until there is a message or a connection ended; return at most ``limit`` messages.

        The messages are taken from the connections in turn; those of one connection are in order. A
        cancelled call loses no message.

        Raises:
            trio.ClosedResourceError: this socket was closed before the call or during it.
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
            if batch or self._ends > self._ends_reported:
                self._ends_reported = self._ends
                return batch

    def prove(self, number: int) -> None:
        """Mark a connection as authenticated, because it brought a message with a valid MAC."""
        connection = self._all.get(number)
        if connection is not None and connection.stage is ConnectionStage.UNPROVEN:
            connection.stage = ConnectionStage.PROVEN
            self._handshakes.end(connection)
            self._handshakes.trust(connection.site)

    def note_replayed_message(self, number: int) -> None:
        """Handle a message that another connection has brought before.

        A client that dials a server by two names sends each message twice, and the second copy is a
        replay. It proves nothing by itself. If an open connection from the same site has proved
        that it has the secret, this connection stays open without a proof.
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

    def _take_from(self, connection: BusConnection, share: int, batch: list[BusArrival]) -> None:
        for _ in range(share):
            if not connection.has_message:
                break
            data = connection.take_message()
            if data.startswith(self._topics):
                batch.append(BusArrival(data, connection.number))
        connection.forget_taken()
        if connection.stage is ConnectionStage.PROVEN:
            # The remaining bytes belong to the next message, which has a deadline of its own.
            self._handshakes.end(connection)

    def _handle_received(self, now: float, connection: BusConnection) -> None:
        """Mark a connection with a whole message as ready; read on from one without.

        Close a connection whose next message is too large.
        """
        size = connection.message_size
        if size is not None and size > self._max_size:
            self.end(connection)
        elif connection.has_message:
            connection.is_ready = True
            self._ready.append(connection)
        else:
            self._watch(connection, 0 if connection.has_ended else READ_EVENT)
            if connection.stage is ConnectionStage.PROVEN:
                self._expect_the_rest(now, connection)

    def _expect_the_rest(self, now: float, connection: BusConnection) -> None:
        """Start the deadline of a message of which a part has arrived, else end the deadline.

        Without it, such a part could keep memory for ever.
        """
        if connection.received:
            self._handshakes.begin(now, connection)
        else:
            self._handshakes.end(connection)

    def _is_excused(self, connection: BusConnection) -> bool:
        return False

    def _let_go(self, connection: BusConnection) -> None:
        if connection.is_ready:
            self._ready.remove(connection)
            connection.is_ready = False
        if connection.stage is ConnectionStage.PROVEN and self._handshakes.asks_for_proof:
            self._handshakes.distrust(connection.site)


def _pieces(frames: Iterable[bytes]) -> Iterator[tuple[memoryview, int]]:
    """Join frames to pieces of about ``PIECE`` bytes.

    Yield each piece with the number of frames up to its end.
    """
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
