"""Late join and off-transport recovery over TCP: the history of a source, and its receivers.

A connection begins with ``session u32, receiver u32, salt 16`` from the receiver, and ``salt 16``
from the source. Frames follow in both directions. Those of a sealed node are sealed with keys that
are derived from the receiver's key and both salts.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from struct import Struct
from typing import Final

import trio

from sphtp.core.entropy import Secrets
from sphtp.core.stream.late_join_wire import Framing, prefixed
from sphtp.core.stream.retention import FetchServer
from sphtp.core.stream.sealing import TcpSeal, fetch_keys
from sphtp.core.stream.settings import StreamSettings
from sphtp.errors import RemoteError
from sphtp.shell.hosted_streams import HostedSource, HostedSubscription
from sphtp.shell.lifetime import running
from sphtp.shell.stream_admission import PendingReceivers

HELLO: Final = Struct("<II16s")
SALT_SIZE: Final = 16
PATIENCE: Final = 5.0
"""The most seconds for connecting, and for the identification of a receiver."""
MOST_PENDING: Final = 64
"""The most connections whose receiver is not identified yet."""
CHUNK: Final = 65_536

LOST: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)
"""The errors with which a connection fails."""


class HistoryConnection:
    """A connection on which both sides are identified."""

    def __init__(self, stream: trio.SocketStream, seal: TcpSeal) -> None:
        self._stream = stream
        self._seal = seal
        self._framing = Framing()

    async def send(self, *frames: bytes) -> None:
        """Send frames together, because a system call costs more than a frame."""
        await self._stream.send_all(b"".join(prefixed(self._seal.seal(one)) for one in frames))

    async def receive_untrusted(self) -> list[bytes]:
        """Wait for frames; return an empty list if the other side has closed the connection.

        Raises ``RemoteError`` if a frame is too long or has a wrong seal, and an error of ``LOST``
        if the connection fails.
        """
        while data := await self._stream.receive_some(CHUNK):
            frames = self._framing.feed_untrusted(bytes(data))
            if frames:
                return [self._seal.open_untrusted(frame) for frame in frames]
        return []


# The source's side


@asynccontextmanager
async def serving_history(
    hosted: HostedSource, settings: StreamSettings, host: str, secrets: Secrets
) -> AsyncIterator[None]:
    """Serve the history of a source to receivers, if it has one, for the length of the block."""
    if not settings.retention:
        yield
        return
    listeners = await trio.open_tcp_listeners(0, host=host)
    hosted.history_port = listeners[0].socket.getsockname()[1]
    strangers = PendingReceivers(MOST_PENDING, PATIENCE)
    serve = partial(serve_connection, hosted, strangers, secrets)
    async with running(partial(trio.serve_listeners, serve, listeners)):
        yield


async def serve_connection(
    hosted: HostedSource,
    strangers: PendingReceivers,
    secrets: Secrets,
    stream: trio.SocketStream,
) -> None:
    """Identify the receiver of a TCP connection, and answer its requests until it ends."""
    with suppress(*LOST, RemoteError):
        async with stream:
            with strangers.one():
                connection, receiver = await _answer_untrusted(hosted, secrets, stream)
                # Anybody can repeat a hello. A sealed frame identifies the receiver.
                asked = await connection.receive_untrusted()
            with hosted.only_connection_of(receiver):
                await _answer_all(hosted, connection, asked)


async def _answer_untrusted(
    hosted: HostedSource, secrets: Secrets, stream: trio.SocketStream
) -> tuple[HistoryConnection, int]:
    hello = await _receive_exactly(stream, HELLO.size)
    session, receiver, salt = HELLO.unpack(hello)
    known = hosted.find(receiver) if session == hosted.session else None
    if known is None:
        raise RemoteError("no receiver of this source")
    own = _draw_salt(secrets)
    await stream.send_all(own)
    incoming, outgoing = fetch_keys(known.key, salt + own)
    return HistoryConnection(stream, TcpSeal(outgoing, incoming, hosted.seals)), receiver


async def _answer_all(
    hosted: HostedSource, connection: HistoryConnection, asked: Sequence[bytes]
) -> None:
    server = hosted.fetch_server()
    while asked:
        for frame in asked:
            server.handle_frame_untrusted(frame)
        await _send_answers(server, connection)
        asked = await connection.receive_untrusted()


async def _send_answers(server: FetchServer, connection: HistoryConnection) -> None:
    while True:
        frames = _gather(server)
        if frames:
            await connection.send(*frames)
        elif (due := server.poll_timeout()) is not None:
            await trio.sleep_until(due)
        else:
            return


def _gather(server: FetchServer) -> list[bytes]:
    """Return frames that may leave now, about ``CHUNK`` bytes."""
    now, size, frames = trio.current_time(), 0, list[bytes]()
    while size < CHUNK and (frame := server.poll_transmit(now)) is not None:
        frames.append(frame)
        size += len(frame)
    return frames


# The receiver's side


async def fetch(hosted: HostedSubscription, secrets: Secrets) -> None:
    """Keep a connection to the history while the subscription wants one, until cancelled."""
    subscription = hosted.subscription
    while True:
        while not subscription.wants_connection:
            await hosted.changed.park()
        with suppress(*LOST, RemoteError):
            await _fetch_over_connection(hosted, secrets)
        subscription.handle_disconnected(trio.current_time())
        hosted.touch()
        await trio.lowlevel.checkpoint()


async def _fetch_over_connection(hosted: HostedSubscription, secrets: Secrets) -> None:
    address, welcome = hosted.channel.peer_address, hosted.welcome
    if address is None or not welcome.history:
        return
    with trio.fail_after(PATIENCE):
        stream = await trio.open_tcp_stream(address[0], welcome.history)
    async with stream:
        with trio.fail_after(PATIENCE):
            connection = await _open_history(hosted, secrets, stream)
        hosted.subscription.handle_connected(trio.current_time())
        hosted.touch()
        async with trio.open_nursery() as nursery:
            for work in (_send_requests, receive_answers_untrusted):
                nursery.start_soon(_until_lost, work, hosted, connection, nursery.cancel_scope)


async def _open_history(
    hosted: HostedSubscription, secrets: Secrets, stream: trio.SocketStream
) -> HistoryConnection:
    own, welcome = _draw_salt(secrets), hosted.welcome
    await stream.send_all(HELLO.pack(welcome.session, welcome.receiver, own))
    salt = await _receive_exactly(stream, SALT_SIZE)
    outgoing, incoming = fetch_keys(welcome.receiver_key, own + salt)
    return HistoryConnection(stream, TcpSeal(outgoing, incoming, hosted.counters))


async def _until_lost(
    work: Callable[[HostedSubscription, HistoryConnection], Awaitable[None]],
    hosted: HostedSubscription,
    connection: HistoryConnection,
    scope: trio.CancelScope,
) -> None:
    """Run one direction of the connection. When it ends or fails, end the other one, too."""
    with suppress(*LOST, RemoteError):
        await work(hosted, connection)
    scope.cancel()


async def _send_requests(hosted: HostedSubscription, connection: HistoryConnection) -> None:
    subscription = hosted.subscription
    while subscription.wants_connection:
        request = subscription.poll_request()
        if request is None:
            await hosted.changed.park()
        else:
            await connection.send(request)


async def receive_answers_untrusted(
    hosted: HostedSubscription, connection: HistoryConnection
) -> None:
    """Pass the answers of the history to the subscription until the connection ends."""
    while True:
        # If the reader is slow, messages stay at the source.
        while not hosted.subscription.is_hungry:
            await hosted.changed.park()
        frames = await connection.receive_untrusted()
        if not frames:
            return
        now = trio.current_time()
        hosted.subscription.handle_frames_untrusted(now, frames)
        hosted.touch()


def _draw_salt(secrets: Secrets) -> bytes:
    return secrets.getrandbits(8 * SALT_SIZE).to_bytes(SALT_SIZE, "little")


async def _receive_exactly(stream: trio.SocketStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = await stream.receive_some(size - len(data))
        if not part:
            raise trio.BrokenResourceError("the other side closed the connection")
        data += part
    return bytes(data)
