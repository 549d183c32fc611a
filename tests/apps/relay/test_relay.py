"""The relay on real sockets."""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio

import sphtp
from sphtp.errors import SettingsError, UnreachableError
from sphtp.shell.lifetime import running
from sphtp.testing import Faults
from sphtp.testing.network import Address
from sphtp_client.relay.impairment import Traffic
from sphtp_client.relay.relay import Relay, open_relay
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds

ANY: Address = ("127.0.0.1", 0)
CLEAN = Faults(delay=0)


@contextmanager
def udp(port: int = 0) -> Iterator[trio.socket.SocketType]:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind(("127.0.0.1", port))
    with trio.socket.from_stdlib_socket(bound) as opened:
        yield opened


@asynccontextmanager
async def echo(port: int = 0) -> AsyncIterator[Address]:
    """Answer every datagram with itself."""

    async def answer() -> None:
        while True:
            datagram, address = await opened.recvfrom(65_535)
            await opened.sendto(datagram, address)

    with udp(port) as opened:
        async with running(answer):
            yield opened.getsockname()


class Client:
    """Asks for an echo, and hears nothing that it has not asked for."""

    def __init__(self, opened: trio.socket.SocketType, relay: Relay) -> None:
        self._socket = opened
        self._relay = relay
        self._asked: set[bytes] = set()

    async def ask(self, question: bytes) -> None:
        """Ask until the answer is there."""
        self._asked.add(question)
        while True:
            await self.send(question)
            with trio.move_on_after(0.1):
                while await self._receive() != question:
                    pass
                return

    async def send(self, question: bytes) -> None:
        await self._socket.sendto(question, self._relay.address)

    async def _receive(self) -> bytes:
        answer, address = await self._socket.recvfrom(65_535)
        assert address == self._relay.address
        assert answer in self._asked
        return answer


@contextmanager
def client_of(relay: Relay) -> Iterator[Client]:
    with udp() as opened:
        yield Client(opened, relay)


async def test_each_client_gets_its_own_answers() -> None:
    async with echo() as target, open_relay(ANY, target, Traffic(1, CLEAN, CLEAN)) as relay:
        with client_of(relay) as one, client_of(relay) as two:
            for number in range(20):
                await one.ask(b"one %d" % number)
                await two.ask(b"two %d" % number)
        statistics = relay.statistics()
    assert statistics.clients == 2
    assert statistics.up.offered >= 40
    assert statistics.down.carried >= 40


async def test_datagrams_of_every_size_pass() -> None:
    async with echo() as target, open_relay(ANY, target, Traffic(1, CLEAN, CLEAN)) as relay:
        with client_of(relay) as client:
            for size in (0, 1, 1200, 65_507):
                await client.ask(bytes(size))
        assert relay.statistics().up.carried_bytes >= 65_507


async def test_the_delay_is_real() -> None:
    slow = Faults(delay=0.05)
    async with echo() as target, open_relay(ANY, target, Traffic(1, slow, slow)) as relay:
        with client_of(relay) as client:
            began = trio.current_time()
            await client.ask(b"x")
            assert trio.current_time() - began >= 0.1


async def test_a_channel_works_through_a_bad_network() -> None:
    bad = Faults(
        loss=0.1, duplicate=0.1, burst=0.01, delay=0.002, jitter=0.002, reorder=0.1, rate=20e6
    )
    messages = [{"number": number, "padding": bytes(500)} for number in range(300)]
    received: list[Any] = []
    async with (
        sphtp.open_node() as there,
        open_relay(ANY, there.address, Traffic(1, bad, bad)) as relay,
        sphtp.open_node() as here,
        here.open_channel(*relay.address) as channel,
        trio.open_nursery() as nursery,
    ):
        answering = await there.accept()

        async def send() -> None:
            for message in messages:
                await channel.send(message)

        nursery.start_soon(send)
        while len(received) < len(messages):
            received.append(await answering.receive())
        statistics = relay.statistics()
    assert received == messages
    assert statistics.up.lost > 0
    assert statistics.up.duplicated > 0
    assert statistics.up.held_back > 0


@pytest.mark.parametrize("mtu", [1100, 600])
async def test_a_channel_works_through_a_path_below_its_base(mtu: int) -> None:
    small = Faults(delay=0.001, mtu=mtu)
    async with (
        sphtp.open_node() as there,
        open_relay(ANY, there.address, Traffic(1, small, small)) as relay,
        sphtp.open_node() as here,
        here.open_channel(*relay.address) as channel,
    ):
        answering = await there.accept()
        await channel.send(b"x" * 5000)
        assert await answering.receive() == b"x" * 5000
        assert channel.statistics().datagram_size <= mtu
        assert relay.statistics().up.too_large > 0


async def test_a_path_below_what_a_channel_needs_is_told() -> None:
    small = Faults(delay=0.001, mtu=400)
    async with (
        sphtp.open_node() as there,
        open_relay(ANY, there.address, Traffic(1, small, small)) as relay,
        sphtp.open_node() as here,
        here.open_channel(*relay.address) as channel,
    ):
        await channel.send(b"x" * 5000)
        with pytest.raises(trio.BrokenResourceError, match=r"MTU .* too small"):
            await channel.receive()


async def test_a_target_that_is_not_there_yet_is_waited_for() -> None:
    with udp() as placeholder:
        target = placeholder.getsockname()
    async with open_relay(ANY, target, Traffic(1, CLEAN, CLEAN)) as relay:
        with client_of(relay) as client:
            while not relay.statistics().socket_errors:
                await client.send(b"somebody?")
            async with echo(target[1]):
                await client.ask(b"somebody?")


async def test_who_is_silent_makes_room() -> None:
    traffic = Traffic(1, CLEAN, CLEAN, clients=1, idle=0.15)
    async with echo() as target, open_relay(ANY, target, traffic) as relay:
        with client_of(relay) as one, client_of(relay) as two:
            await one.ask(b"one")
            await two.ask(b"two")
            await one.ask(b"again")
            assert relay.statistics().clients <= 1


async def test_an_address_in_use_is_refused_by_name() -> None:
    with udp() as taken:
        address = taken.getsockname()
        with pytest.raises(SettingsError, match=f"cannot listen on UDP 127.0.0.1:{address[1]}"):
            async with open_relay(address, ANY, Traffic(1, CLEAN, CLEAN)):
                raise AssertionError("not reached")


async def test_a_target_that_cannot_exist_is_named() -> None:
    host = "x" * 64 + ".invalid"
    with pytest.raises(UnreachableError, match="no way to x"):
        async with open_relay(ANY, (host, 1), Traffic(1, CLEAN, CLEAN)):
            raise AssertionError("not reached")
