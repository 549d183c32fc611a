"""The published byte layout, spoken by the C library that the protocol was first written for.

What is here stands for a client in another language: it knows the byte vectors of
`docs/reference/wire` and nothing of this project's code.
"""

import ctypes
import ctypes.util
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

import pytest
import trio

from sphtp import Config
from sphtp.core.control.records import ServerAddress
from sphtp.core.control.settings import ControlTimers
from sphtp.shell.client import open_client
from sphtp.shell.server import Server, open_server
from tests.deadline import within_20_seconds

# Numbers of <nanomsg/nn.h> and <nanomsg/pubsub.h>.
AF_SP, PUB, SUB = 1, 32, 33
SOL_SOCKET, RCVTIMEO, SUBSCRIBE = 0, 5, 1

HEARTBEAT, ANNOUNCE, ACK, NACK, LEAVE = 1, 2, 3, 4, 5
NONCE_PARAMETER, REASON_PARAMETER = 3, 9
ID, NONCE = 0x12345679, 0x1122334455667788

Heard = Callable[[bytes], bool]


class NanomsgError(Exception):
    """The C library said no."""


@cache
def _library() -> ctypes.CDLL:
    """The C library. A test that needs it fails without: skipped, nobody would see it missing."""
    path = ctypes.util.find_library("nanomsg")
    if path is None:
        pytest.fail("the C library libnanomsg is not installed (Debian: libnanomsg5)")
    library = ctypes.CDLL(path, use_errno=True)
    library.nn_send.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    library.nn_recv.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    library.nn_setsockopt.argtypes = [
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_size_t,
    ]
    return library


class NanomsgSocket:
    """One socket of the C library. Receiving waits in a thread, at most 50 ms at a time."""

    def __init__(self, protocol: int) -> None:
        self._socket = _checked(_library().nn_socket(AF_SP, protocol))
        self._buffer = ctypes.create_string_buffer(1 << 16)

    def connect(self, url: str) -> None:
        _checked(_library().nn_connect(self._socket, url.encode()))

    def bind(self, url: str) -> None:
        _checked(_library().nn_bind(self._socket, url.encode()))

    def subscribe(self, topic: bytes) -> None:
        _checked(_library().nn_setsockopt(self._socket, SUB, SUBSCRIBE, topic, len(topic)))
        wait = struct.pack("i", 50)
        _checked(_library().nn_setsockopt(self._socket, SOL_SOCKET, RCVTIMEO, wait, len(wait)))

    def send(self, data: bytes) -> None:
        _checked(_library().nn_send(self._socket, data, len(data), 0))

    async def receive(self) -> bytes | None:
        """Return the next message, or None when there was none in time."""
        return await trio.to_thread.run_sync(self._receive)

    def close(self) -> None:
        _library().nn_close(self._socket)

    def _receive(self) -> bytes | None:
        size = _library().nn_recv(self._socket, self._buffer, len(self._buffer), 0)
        return self._buffer.raw[:size] if size >= 0 else None


class NanomsgClient:
    """The two sockets of a client."""

    def __init__(self, address: ServerAddress, number: int = ID) -> None:
        self._subscriber, self._publisher = NanomsgSocket(SUB), NanomsgSocket(PUB)
        self._subscriber.subscribe(struct.pack("<I", 0))
        self._subscriber.subscribe(struct.pack("<I", number))
        self._subscriber.connect(address.pub)
        self._publisher.connect(address.sub)

    async def hear(self, wanted: Heard, saying: bytes | None = None) -> bytes:
        """Wait for a wanted message; say something again and again until then."""
        while True:
            if saying is not None:
                self._publisher.send(saying)
            message = await self._subscriber.receive()
            if message is not None and wanted(message):
                return message

    def close(self) -> None:
        self._subscriber.close()
        self._publisher.close()


class NanomsgServer:
    """The two sockets of a server that keeps no more than it needs: it acknowledges everybody."""

    ID: Final = 0x0ABCDEF0

    def __init__(self) -> None:
        self.publisher, self.subscriber = NanomsgSocket(PUB), NanomsgSocket(SUB)
        self.address = ServerAddress(pub=free_url(), sub=free_url())
        self.subscriber.subscribe(b"")
        self.publisher.bind(self.address.pub)
        self.subscriber.bind(self.address.sub)
        self.heard: list[bytes] = []

    async def serve(self) -> None:
        """Send heartbeats and answer announcements until cancelled."""
        while True:
            self.publisher.send(struct.pack("<IIH", 0, self.ID, HEARTBEAT))
            received = await self.subscriber.receive()
            if received is None:
                continue
            self.heard.append(received)
            if is_command(ANNOUNCE)(received):
                self.publisher.send(self._acknowledge(received))

    def close(self) -> None:
        self.publisher.close()
        self.subscriber.close()

    def _acknowledge(self, announce: bytes) -> bytes:
        head = struct.pack("<4sIH", announce[:4], self.ID, ACK)
        return head + struct.pack("<HH", NONCE_PARAMETER, 8) + parameter(announce, NONCE_PARAMETER)


def free_url() -> str:
    """A port that was free a moment ago: the C library does not tell which one it chose."""
    with socket.socket() as probe:
        # Where no other test binds.
        probe.bind(("127.0.0.86", 0))
        return f"tcp://127.0.0.86:{probe.getsockname()[1]}"


def parameter(received: bytes, wanted: int) -> bytes:
    """The first parameter with an id."""
    position = 10
    while position < len(received):
        key, size = struct.unpack_from("<HH", received, position)
        if key == wanted:
            return received[position + 4 : position + 4 + size]
        position += 4 + size
    raise LookupError(f"no parameter {wanted} in {received.hex()}")


def message(command: int, *parameters: tuple[int, bytes], number: int = ID) -> bytes:
    head = struct.pack("<IIH", number, number, command)
    return head + b"".join(struct.pack("<HH", key, len(data)) + data for key, data in parameters)


def nonce(value: int) -> tuple[int, bytes]:
    return NONCE_PARAMETER, struct.pack("<Q", value)


def is_command(command: int) -> Heard:
    return lambda data: data[8:10] == struct.pack("<H", command)


pytestmark = within_20_seconds


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with open_server(
        ServerAddress.parse("tcp://127.0.0.1:0"),
        new_cluster=True,
        config=Config(timers=ControlTimers(heartbeat=0.1, expiry=5, announce_deadline=0.5)),
    ) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[NanomsgClient]:
    with connected(server.address) as opened:
        yield opened


@contextmanager
def connected(address: ServerAddress, number: int = ID) -> Iterator[NanomsgClient]:
    opened = NanomsgClient(address, number)
    try:
        yield opened
    finally:
        opened.close()


def _checked(result: int) -> int:
    if result < 0:
        raise NanomsgError(os.strerror(ctypes.get_errno()))
    return result


class TestClientInC:
    """Clients of the C library at our server."""

    async def test_it_hears_heartbeats(self, server: Server, client: NanomsgClient) -> None:
        heartbeat = await client.hear(is_command(HEARTBEAT))
        assert heartbeat[:8] == struct.pack("<II", 0, server.id)

    async def test_an_announcement_with_a_nonce_is_acknowledged_with_it(
        self, server: Server, client: NanomsgClient
    ) -> None:
        ack = await client.hear(is_command(ACK), message(ANNOUNCE, nonce(NONCE)))
        assert ack == struct.pack("<IIHHHQ", ID, server.id, ACK, NONCE_PARAMETER, 8, NONCE)
        assert server.clients[ID].nonce == NONCE

    async def test_a_plain_announcement_is_acknowledged_plainly(
        self, server: Server, client: NanomsgClient
    ) -> None:
        ack = await client.hear(is_command(ACK), message(ANNOUNCE))
        assert ack == struct.pack("<IIH", ID, server.id, ACK)
        assert list(server.clients) == [ID]

    async def test_a_second_holder_is_refused_with_a_reason(
        self, server: Server, client: NanomsgClient
    ) -> None:
        await client.hear(is_command(ACK), message(ANNOUNCE, nonce(NONCE)))
        nack = await client.hear(is_command(NACK), message(ANNOUNCE, nonce(NONCE + 1)))
        head = struct.pack("<IIHHHQ", ID, server.id, NACK, NONCE_PARAMETER, 8, NONCE + 1)
        assert nack == head + struct.pack("<HHH", REASON_PARAMETER, 2, 1)

    async def test_unknown_parameters_are_skipped(
        self, server: Server, client: NanomsgClient
    ) -> None:
        extra = (0xFFFE, b"from the future")
        await client.hear(is_command(ACK), message(ANNOUNCE, extra, nonce(NONCE)))
        assert server.clients[ID].nonce == NONCE

    async def test_two_clients_each_hear_what_is_theirs(
        self, server: Server, client: NanomsgClient
    ) -> None:
        other = ID + 2
        with connected(server.address, other) as second:
            ours = await client.hear(is_command(ACK), message(ANNOUNCE, nonce(NONCE)))
            theirs = await second.hear(is_command(ACK), message(ANNOUNCE, number=other))
        assert ours[:4] == struct.pack("<I", ID)
        assert theirs[:4] == struct.pack("<I", other)
        assert set(server.clients) == {ID, other}


class TestServerInC:
    """A server of the C library, and our client."""

    @pytest.fixture
    async def native(self) -> AsyncIterator[NanomsgServer]:
        opened = NanomsgServer()
        try:
            yield opened
        finally:
            opened.close()

    async def test_our_client_registers_heartbeats_and_leaves(self, native: NanomsgServer) -> None:
        timers = ControlTimers(heartbeat=0.1, expiry=5, announce_deadline=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(native.serve)
            async with open_client(
                [native.address], data="ours", config=Config(timers=timers)
            ) as ours:
                assert list(ours.servers) == [native.ID]
                await self._wait(native, HEARTBEAT)
                number = struct.pack("<I", ours.id)
            await self._wait(native, LEAVE)
            nursery.cancel_scope.cancel()
        said = [struct.unpack_from("<H", data, 8)[0] for data in native.heard]
        assert said[0] == ANNOUNCE
        assert said.index(ANNOUNCE) < said.index(HEARTBEAT) < said.index(LEAVE)
        assert {data[:8] for data in native.heard} == {number + number}
        assert len({parameter(data, NONCE_PARAMETER) for data in native.heard}) == 1

    async def _wait(self, native: NanomsgServer, command: int) -> None:
        while not any(is_command(command)(data) for data in native.heard):
            await trio.lowlevel.checkpoint()
