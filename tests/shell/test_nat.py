"""Servers that answer STUN, and clients that ask them, on loopback; NATs are in ``tests/nat``."""

import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from hashlib import md5
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from aioice import stun

from sphtp import Config, open_client, open_server
from sphtp.config import ServerLimits, TurnServer
from sphtp.core.channel.lifecycle import State
from sphtp.core.control.counters import Count
from sphtp.core.control.records import Candidate, ServerAddress
from sphtp.core.control.server_messages import PeerCheck
from sphtp.core.datagrams import RELAYED, Datagrams, Kind, encode_front
from sphtp.core.nat import TurnMethod
from sphtp.errors import UdpAddressError
from sphtp.shell.lifetime import running
from sphtp.shell.nat import PER_HOST, NatDriver, RelayLink
from sphtp.shell.udp import UdpSocket
from tests.deadline import within, within_20_seconds

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
        monkeypatch.setitem(sys.modules, "aioice", None)
        monkeypatch.delitem(sys.modules, "sphtp.shell.nat")
        with caplog.at_level(logging.WARNING, "sphtp.client"):
            async with open_client(str(server.address)):
                while "sphtp[nat]" not in caplog.text:
                    await trio.lowlevel.checkpoint()
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'sphtp\[nat\]'"):
            async with open_server(bind(), stun=True):
                pass
        config = Config(relay=TurnServer("127.0.0.1", "me", "secret"))
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'sphtp\[nat\]'"):
            async with open_client(str(server.address), config=config):
                await trio.sleep_forever()


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


async def test_rubbish_of_one_host_costs_another_one_no_answer() -> None:
    config = Config(server_limits=ServerLimits(stun_per_second=10))
    async with open_server(bind(), new_cluster=True, stun=True, config=config) as server:
        with trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            await udp.bind(("127.0.0.2", 0))
            for _ in range(100):
                await udp.sendto(b"\0" * 20, place(server))
            while server.statistics().counters.get(Count.MALFORMED, 0) < PER_HOST:
                await trio.lowlevel.checkpoint()
        with trio.fail_after(2):
            await ask(server, bytes(REQUEST))


# The driver, with stubs on both sides and in virtual time


in_virtual_time = pytest.mark.trio(run=within(400))


class StubMachine:
    """The machine of a client that knows servers, and is requested to check addresses."""

    def __init__(self, *hosts: str, port: int = 8764) -> None:
        self.stun_servers = self.of(*hosts, port=port)
        self.checks: list[PeerCheck] = []
        self.requested: list[float] = []
        self.candidates: list[Candidate] = []

    @staticmethod
    def of(*hosts: str, port: int) -> tuple[ServerAddress, ...]:
        return tuple(ServerAddress.parse(f"tcp://{host}:{port}") for host in hosts)

    def poll_check(self) -> PeerCheck | None:
        return self.checks.pop() if self.checks else None

    def request_check(self, now: float, peer: int, token: int) -> None:
        self.requested.append(now)

    def set_candidates(self, now: float, candidates: list[Candidate]) -> None:
        self.candidates = candidates


class StubRegistration:
    """Counts how often the driver has run."""

    def __init__(self) -> None:
        self.runs = 0

    def flush(self) -> None:
        self.runs += 1

    async def next_change(self) -> None:
        await trio.sleep(1)


class StubEndpoint:
    """The channels of a node, of which one has lost its way, and uses a relay."""

    peer_id = 3

    def __init__(self) -> None:
        handshake = SimpleNamespace(wanted=5, candidates=())
        lost = SimpleNamespace(state=State.OPEN, peer_id=5, received_at=0.0, is_owed=True)
        lost.address, lost.handshake = ("203.0.113.5" + RELAYED, 4), handshake
        self.connections = [_Hashed(**vars(lost))]

    def handle_candidate(self, *_: object) -> None:
        pass


class _Hashed(SimpleNamespace):
    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class Driven:
    """A driver with its socket, and a socket that stands for a server or a peer."""

    def __init__(self, udp: UdpSocket, other: trio.socket.SocketType) -> None:
        self.udp, self.other = udp, other
        self.endpoint, self.registration = StubEndpoint(), StubRegistration()
        self.machine = StubMachine("127.0.0.1", port=other.getsockname()[1])
        self.driver = NatDriver(udp, cast("Any", self.endpoint), lambda _: None, dict)

    def task(self, machine: StubMachine, relay: TurnServer | None = None) -> Any:
        both = cast("Any", machine), cast("Any", self.registration)
        return partial(self.driver.run, *both, (), announces=True, relay=relay)

    async def receive(self) -> stun.Message:
        return stun.parse_message(await self.other.recv(2048))

    def take(self, *datagrams: bytes) -> None:
        rows = [Datagrams.of(self.other.getsockname(), each) for each in datagrams]
        self.driver.take_own_untrusted(trio.current_time(), rows)


@asynccontextmanager
async def driven() -> AsyncIterator[Driven]:
    with (
        UdpSocket("127.0.0.1", 0) as udp,
        trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        await other.bind(("127.0.0.1", 0))
        yield Driven(udp, other)


def answer_to(request: stun.Message) -> bytes:
    mapped = {"XOR-MAPPED-ADDRESS": ("192.0.2.7", 9)}
    kind = stun.Method.BINDING, stun.Class.RESPONSE
    return bytes(stun.Message(*kind, request.transaction_id, mapped))


class Names(trio.abc.HostnameResolver):
    """Knows all names, as this host, after 20 s. A lookup takes 5 s."""

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
        known = trio.current_time() > 20
        await trio.sleep(5)
        if not known:
            raise trio.socket.gaierror(trio.socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", port))]

    async def getnameinfo(self, *_: Any) -> Any:
        raise NotImplementedError


@in_virtual_time
async def test_names_are_looked_up_again_and_nothing_waits_for_them(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    trio.socket.set_custom_hostname_resolver(Names())
    async with driven() as it:
        port = it.other.getsockname()[1]
        machine = StubMachine("late", port=port)
        machine.checks.append(PeerCheck(9, 3, 5, 1, (Candidate("127.0.0.1", port),)))
        with caplog.at_level(logging.WARNING, "sphtp.client"):
            async with running(it.task(machine, TurnServer("later", "me", "secret", port))):
                assert (await it.receive()).message_class is stun.Class.INDICATION
                assert trio.current_time() < 1
                methods = set[stun.Method]()
                while methods != {stun.Method.BINDING, stun.Method.ALLOCATE}:
                    message = await it.receive()
                    if message.message_class is stun.Class.REQUEST:
                        methods.add(message.message_method)
                assert 20 < trio.current_time() < 60
    assert len([each for each in caplog.records if "cannot be used" in each.message]) == 2


@in_virtual_time
async def test_attempts_end_when_no_address_is_known_any_more(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with driven() as it:
        machine = it.machine
        async with running(it.task(machine)):
            it.take(answer_to(await it.receive()))
            await trio.sleep(10)
            assert Candidate("192.0.2.7", 9) in machine.candidates
            assert len(machine.requested) > 5
            machine.stun_servers = machine.of("127.0.0.1", port=9)
            await trio.sleep(5)
            machine.requested.clear()
            await trio.sleep(30)
            assert machine.requested == []


@in_virtual_time
async def test_datagrams_of_strangers_cause_no_run(autojump_clock: trio.abc.Clock) -> None:
    async with driven() as it, running(it.task(it.machine)):
        request = await it.receive()
        await trio.testing.wait_all_tasks_blocked()
        before = it.registration.runs
        stray = stun.Message(stun.Method.BINDING, stun.Class.RESPONSE, b"transaction?")
        stray.attributes["XOR-MAPPED-ADDRESS"] = "192.0.2.7", 9
        it.take(b"\0" * 20, bytes(stray), bytes(REQUEST))
        await trio.testing.wait_all_tasks_blocked()
        assert it.registration.runs == before
        it.take(answer_to(request))
        await trio.testing.wait_all_tasks_blocked()
        assert it.registration.runs == before + 1


@in_virtual_time
async def test_a_refusal_of_the_relay_is_logged_once(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with driven() as it:
        host, port = it.other.getsockname()
        refused = 0
        with caplog.at_level(logging.WARNING, "sphtp.client"):
            async with running(it.task(StubMachine(), TurnServer(host, "me", "wrong", port))):
                while refused < 6:
                    request = await it.receive()
                    attributes = {"ERROR-CODE": (401, "Unauthorized"), "REALM": "r", "NONCE": b"n"}
                    method, number = request.message_method, request.transaction_id
                    it.take(bytes(stun.Message(method, stun.Class.ERROR, number, attributes)))
                    refused += 1
                await trio.testing.wait_all_tasks_blocked()
    assert [each.message for each in caplog.records] == [
        "the relay cannot be used: '401 Unauthorized'"
    ]


async def test_answers_to_strangers_bind_no_channel() -> None:
    async with driven() as it:
        link = RelayLink(it.udp, TurnServer("127.0.0.1", "me", "secret"), ("127.0.0.1", 3478))
        for kind in (Kind.COOKIE, Kind.REFUSE, Kind.RESET):
            link.wrap(("203.0.113.1", kind), encode_front(kind, 1))
        assert link.allocation.poll_request() is None
        link.wrap(("203.0.113.1", 4), encode_front(Kind.SEALED, 1))
        request = link.allocation.poll_request()
        assert request is not None
        assert request.method is TurnMethod.CHANNEL_BIND
