"""A reliable QUIC stream of aioquic; encrypted, because QUIC cannot do otherwise."""

import asyncio
import datetime
import ssl
from typing import Any, Final

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.asyncio.server import QuicServer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StreamDataReceived
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sphtp_benchmarks.meters import MessageTally, say
from sphtp_benchmarks.process_task import ProcessTask
from sphtp_benchmarks.systems.credit import CREDIT, CreditWindow, Grants, Room
from sphtp_benchmarks.systems.framing import Unframer, framed

HOST: Final = "127.0.0.1"
IN_FLIGHT: Final = 1 << 20  # bytes that a QUIC stream may have under way by default
PROTOCOLS: Final = ["sphtp-bench"]


def receive(part: ProcessTask) -> None:
    """Accept a connection and count."""
    tally, window = part.tally(), _window(part)
    asyncio.run(_serve(part, lambda *args, **more: MessageReceiver(tally, window, *args, **more)))


def send(part: ProcessTask) -> None:
    """Connect and send."""
    asyncio.run(_send(part))


def echo(part: ProcessTask) -> None:
    """Accept a connection and send everything back."""
    asyncio.run(_serve(part, Echo))


def ping(part: ProcessTask) -> None:
    """Connect and time answers."""
    asyncio.run(_ping(part))


class MessageReceiver(QuicConnectionProtocol):
    """The protocol of a receiver, which counts messages, and grants the sender more."""

    def __init__(self, tally: MessageTally, window: CreditWindow, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._tally = tally
        self._grants = Grants(window)
        self._unframer = Unframer()

    def quic_event_received(self, event: QuicEvent) -> None:
        """Take a piece of the stream."""
        if isinstance(event, StreamDataReceived):
            messages = self._unframer.feed(event.data)
            self._tally.take(messages)
            if due := self._grants.due(len(messages)):
                self._quic.send_stream_data(event.stream_id, CREDIT * due)


class Echo(QuicConnectionProtocol):
    """The protocol of a receiver that sends everything back."""

    def quic_event_received(self, event: QuicEvent) -> None:
        """Return a piece of the stream."""
        if isinstance(event, StreamDataReceived):
            self._quic.send_stream_data(event.stream_id, event.data)


class Caller(QuicConnectionProtocol):
    """The protocol of a sender with one stream, which keeps the bytes that come back on it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._stream = self._quic.get_next_available_stream_id()
        self._arrived = b""
        self._changed = asyncio.Event()

    def quic_event_received(self, event: QuicEvent) -> None:
        """Take a piece of the stream."""
        if isinstance(event, StreamDataReceived):
            self._arrived += event.data
            self._changed.set()

    def send(self, piece: bytes) -> None:
        """Send a piece of the stream."""
        self._quic.send_stream_data(self._stream, piece)
        self.transmit()

    def arrived(self) -> bytes:
        """Return the bytes that have come since the last call."""
        arrived, self._arrived = self._arrived, b""
        self._changed.clear()
        return arrived

    async def some(self) -> bytes:
        """Wait for bytes, and return those that have come."""
        await self._changed.wait()
        return self.arrived()


async def _serve(part: ProcessTask, create_protocol: Any) -> None:
    configuration = _configuration(part, is_client=False)
    configuration.certificate, configuration.private_key = certificate()
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: QuicServer(configuration=configuration, create_protocol=create_protocol),
        local_addr=(HOST, 0),
    )
    say(port=transport.get_extra_info("sockname")[1])
    await asyncio.Event().wait()


async def _send(part: ProcessTask) -> None:
    source, window = part.source(), _window(part)
    room = Room(window)
    async with _connected(part) as caller:
        for burst in source.bursts(window.burst):
            while not room.take(len(burst)):
                room.granted(len(await caller.some()))
            caller.send(framed(burst))
            await asyncio.sleep(0)  # its sockets are served in the loop only
        source.done()
        await asyncio.Event().wait()


async def _ping(part: ProcessTask) -> None:
    stopwatch, unframer = part.stopwatch(), Unframer()
    async with _connected(part) as caller:
        for message in stopwatch.pings():
            caller.send(framed([message]))
            while not (answers := unframer.feed(await caller.some())):
                pass
            stopwatch.pong(answers[0])
        stopwatch.done()
        await asyncio.Event().wait()


def _window(part: ProcessTask) -> CreditWindow:
    return CreditWindow.of(IN_FLIGHT, part.size)


def _connected(part: ProcessTask) -> Any:
    configuration = _configuration(part, is_client=True)
    return connect(HOST, part.port, configuration=configuration, create_protocol=Caller)


def _configuration(part: ProcessTask, *, is_client: bool) -> QuicConfiguration:
    configuration = QuicConfiguration(
        is_client=is_client, alpn_protocols=PROTOCOLS, verify_mode=ssl.CERT_NONE
    )
    if part.max_datagram is not None:
        configuration.max_datagram_size = part.max_datagram
    return configuration


def certificate() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return a certificate that no authority has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return certificate, key
