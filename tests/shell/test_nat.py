"""Servers that answer STUN, and clients that ask them, on loopback; NATs are in ``tests/nat``."""

import logging
import socket
import sys
from contextlib import suppress
from hashlib import md5
from typing import Any

import pytest
import trio
from aioice import stun

from sphtp import Config, open_client, open_server
from sphtp.config import ServerLimits, TurnServer
from sphtp.core.control.counters import Count
from sphtp.errors import UdpAddressError
from sphtp.shell.lifetime import running
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds
REQUEST = stun.Message(stun.Method.BINDING, stun.Class.REQUEST, b"transaction!")


def bind() -> str:
    """Return an address whose port is free for TCP and for UDP: other tests open sockets, too."""
    while True:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        ):
            udp.bind(("127.0.0.1", 0))
            port = udp.getsockname()[1]
            with suppress(OSError):
                tcp.bind(("127.0.0.1", port))
                return f"tcp://127.0.0.1:{port},0"


def place(server) -> tuple[str, int]:
    return "127.0.0.1", int(server.address.pub.rpartition(":")[2])


async def ask(server, *datagrams: bytes) -> tuple[stun.Message, tuple[str, int]]:
    """Send datagrams from one socket; return the first answer, and the address of the socket."""
    with trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        await udp.bind(("127.0.0.1", 0))
        for datagram in datagrams:
            await udp.sendto(datagram, place(server))
        answer = await udp.recv(2048)
        return stun.parse_message(answer), udp.getsockname()


async def test_a_server_answers_what_it_sees_and_nothing_else() -> None:
    async with open_server(bind(), new_cluster=True, stun=True) as server:
        indication = stun.Message(stun.Method.BINDING, stun.Class.INDICATION)
        allocate = stun.Message(stun.Method.ALLOCATE, stun.Class.REQUEST)
        noise = [b"", b"\0" * 20, bytes(REQUEST)[:19], bytes(indication), bytes(allocate)]
        answer, own = await ask(server, *noise, bytes(REQUEST))
        assert answer.transaction_id == REQUEST.transaction_id
        assert answer.message_class is stun.Class.RESPONSE
        assert answer.attributes == {"XOR-MAPPED-ADDRESS": own}
        assert len(bytes(answer)) <= 1.6 * len(bytes(REQUEST))
        assert server.statistics().counters[Count.MALFORMED] == 3


async def test_no_more_answers_leave_than_the_limit_allows() -> None:
    config = Config(server_limits=ServerLimits(stun_per_second=1))
    async with open_server(bind(), new_cluster=True, stun=True, config=config) as server:
        await ask(server, *[bytes(REQUEST)] * 50)
        while server.statistics().counters.get(Count.OVER_STUN_PER_SECOND, 0) < 40:
            await trio.lowlevel.checkpoint()


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        taken = udp.getsockname()[1]
        with pytest.raises(UdpAddressError, match=str(taken)):
            async with open_server(f"tcp://127.0.0.1:{taken},0", stun=True):
                pass


async def test_clients_that_reach_each_other_cost_the_server_no_check() -> None:
    async with (
        open_server(bind(), new_cluster=True, stun=True) as server,
        open_client(str(server.address), name="left") as left,
        open_client(str(server.address), name="right") as right,
    ):
        peer = await left.wait_for_peer("right")
        async with left.open_channel(peer) as channel:
            await channel.send("straight")
            async with await right.accept() as other:
                assert await other.receive() == "straight"
        assert right.id in left.peers
        assert left.peers[right.id].addresses == (right.address,)


async def test_without_the_extra_a_client_says_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_server(bind(), new_cluster=True, stun=True) as server:
        for name in ("aioice", "sphtp.shell.nat"):
            monkeypatch.setitem(sys.modules, name, None)
        with caplog.at_level(logging.WARNING, "sphtp.client"):
            async with open_client(str(server.address)):
                while "sphtp[nat]" not in caplog.text:
                    await trio.lowlevel.checkpoint()
        with pytest.raises(ModuleNotFoundError):
            async with open_server(bind(), stun=True):
                pass


class Relay:
    """A server of TURN for one client, in as few lines as a test needs."""

    def __init__(self, udp: trio.socket.SocketType) -> None:
        self.udp, self.client = udp, ("", 0)
        self.seen: list[stun.Method] = []
        self.sent: list[tuple[str, bytes]] = []

    async def run(self) -> None:
        while True:
            datagram, self.client = await self.udp.recvfrom(2048)
            if datagram[0] >> 6 == 1:
                self.sent.append(("channel", datagram[4:]))
                continue
            message = stun.parse_message(datagram)
            if message.message_class is stun.Class.INDICATION:
                self.sent.append(("indication", message.attributes["DATA"]))
                continue
            self.seen.append(message.message_method)
            await self.udp.sendto(self.answer(message), self.client)

    def answer(self, message: stun.Message) -> bytes:
        def reply(kind: stun.Class, attributes: dict[str, Any]) -> stun.Message:
            number = message.transaction_id
            return stun.Message(message.message_method, kind, number, attributes)

        if "NONCE" not in message.attributes:
            refused: dict[str, Any] = {
                "ERROR-CODE": (401, "Unauthorized"),
                "REALM": "r",
                "NONCE": b"n",
            }
            return bytes(reply(stun.Class.ERROR, refused))
        key = md5(b"me:r:secret", usedforsecurity=False).digest()
        assert message.check_message_integrity(key)
        granted = reply(
            stun.Class.RESPONSE, {"XOR-RELAYED-ADDRESS": ("192.0.2.1", 7), "LIFETIME": 600}
        )
        granted.add_message_integrity(key)
        return bytes(granted)


async def test_a_client_announces_the_address_at_its_relay() -> None:
    with trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        await udp.bind(("127.0.0.1", 0))
        relay = Relay(udp)
        host, port = udp.getsockname()
        config = Config(relay=TurnServer(host, "me", "secret", port))
        async with (
            open_server(bind(), new_cluster=True) as server,
            running(relay.run),
            open_client(str(server.address), name="left", config=config) as left,
            open_client(str(server.address), name="right") as right,
        ):
            await right.wait_for_peer(lambda peer: ("192.0.2.1", 7) in peer.addresses)
            assert relay.seen[:2] == [stun.Method.ALLOCATE] * 2
            # Both reach each other, so that nothing passes the relay.
            async with right.open_channel("left") as channel:
                await channel.send("straight")
                async with await left.accept() as other:
                    assert await other.receive() == "straight"
            assert relay.sent == []
