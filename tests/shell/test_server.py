"""The server on real sockets; clients here are a few lines that speak the protocol by hand."""

import struct
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest
import trio

from sphtp import Config
from sphtp.core.control.client_messages import Announce, ClientMessage, ClientUser, Heartbeat, Leave
from sphtp.core.control.codec import Parameter
from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.inbound import MessageReader
from sphtp.core.control.outputs import topic
from sphtp.core.control.records import ClusterView, Member, Peer, ServerAddress
from sphtp.core.control.server_messages import (
    IdAck,
    IdNack,
    PeersGone,
    ServerHeartbeat,
    ServerLeave,
    ServerUser,
)
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import Reason
from sphtp.errors import BusAddressInUseError, BusError, SettingsError, UnreachableError
from sphtp.events import (
    JoinFailing,
    PeerEntered,
    PeerLeft,
    PeerSuspected,
    ServerEvent,
    UserMessage,
)
from sphtp.security import ClusterSecurity
from sphtp.shell.bus_dialing import MAX_MESSAGE_SIZE, PubSocket, SubSocket
from sphtp.shell.bus_listening import ListeningPubSocket
from sphtp.shell.feed import Listener
from sphtp.shell.keys import draw_cluster_key, draw_server_key
from sphtp.shell.server import Server, open_server
from sphtp.shell.status import fetch_status
from tests.deadline import within_20_seconds
from tests.shell.strangers import PUB, frame, greeted

T = TypeVar("T")

ANY = ServerAddress.parse("tcp://127.0.0.1:0")
TIMERS = ControlTimers(heartbeat=0.1, expiry=3, announce_deadline=0.2)
FOUNDER = Config(timers=TIMERS, seed=1)
JOINING = replace(FOUNDER, seed=2)
found = partial(open_server, ANY, new_cluster=True, config=FOUNDER)


def with_cluster(**means: Any) -> Config:
    return replace(FOUNDER, cluster=ClusterSecurity(**means))


ID, NONCE = 4711, 123456789


pytestmark = within_20_seconds


class RawClient:
    """The two sockets of a client, and nobody's machine behind them."""

    def __init__(self, address: ServerAddress, number: int = ID) -> None:
        self._connected = trio.Event()
        self._reader = MessageReader(ControlCounters(), for_client=True)
        self._heard: list[object] = []
        self._subscriber = SubSocket()
        self._publisher = PubSocket(on_connected=self._connected.set)
        self._subscriber.subscribe(topic(0))
        self._subscriber.subscribe(topic(number))
        self._subscriber.dial(address.pub)
        self._publisher.dial(address.sub)

    async def __aenter__(self) -> Self:
        await self._connected.wait()
        await self.hear(ServerHeartbeat)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._subscriber.close()
        self._publisher.close()

    def say(self, message: ClientMessage) -> None:
        self.say_bytes(message.encode())

    def say_bytes(self, data: bytes) -> None:
        self._publisher.send(data)

    async def hear(self, kind: type[T]) -> T:
        """Wait for the next message of a kind; others before it are skipped."""
        while True:
            while self._heard:
                message = self._heard.pop(0)
                if isinstance(message, kind):
                    return message
            self._heard += map(self._reader.take, await self._subscriber.receive_batch())


async def happening(events: Listener[ServerEvent], kind: type[T]) -> T:
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"the server ended before any {kind.__name__}")


def unused_address() -> ServerAddress:
    # Where no other test binds, so that nobody takes the port meanwhile.
    apart = "tcp://127.0.0.86:0"
    with ListeningPubSocket() as first, ListeningPubSocket() as second:
        return ServerAddress(first.listen(apart), second.listen(apart))


async def test_a_founder_is_active_and_sends_heartbeats_at_its_real_address() -> None:
    async with found() as server:
        await server.wait_active()
        assert server.id % 2 == 0
        assert server.advertised == server.address
        async with RawClient(server.address) as client:
            heard = await client.hear(ServerHeartbeat)
    assert heard.member.id == server.id
    assert heard.member.address == server.address


async def test_an_announcement_is_acknowledged_and_registered() -> None:
    async with found() as server, RawClient(server.address) as client:
        events = server.events()
        client.say(Announce(ID, NONCE))
        answer = await client.hear(IdAck)
        entered = await happening(events, PeerEntered)
        assert (answer.sender, answer.holders) == (server.id, ((ID, NONCE),))
        assert (entered.peer.id, entered.peer.nonce) == (ID, NONCE)
        assert list(server.clients) == [ID]


async def test_a_plain_sphtp_client_is_acknowledged_without_nonce() -> None:
    async with found() as server, RawClient(server.address) as client:
        client.say_bytes(struct.pack("<IIH", ID, ID, 2))
        assert (await client.hear(IdAck)).holders == ((ID, 0),)


async def test_another_holder_of_the_id_is_refused() -> None:
    async with found() as server, RawClient(server.address) as client:
        client.say(Announce(ID, NONCE))
        await client.hear(IdAck)
        client.say(Announce(ID, NONCE + 1))
        refusal = await client.hear(IdNack)
        assert (refusal.nonce, refusal.reason) == (NONCE + 1, Reason.CONFLICT)
        assert server.clients[ID].nonce == NONCE


async def test_a_client_that_says_goodbye_is_gone_at_once() -> None:
    async with found() as server, RawClient(server.address) as client:
        events = server.events()
        client.say(Announce(ID, NONCE))
        await client.hear(IdAck)
        client.say(Leave(ID, NONCE))
        left = await happening(events, PeerLeft)
        assert (left.peer.id, left.reason) == (ID, Reason.LEFT)
        assert not server.clients


async def test_a_client_whose_connections_end_without_a_word_is_gone_within_two_seconds() -> None:
    """What must hold: the default timers, of which the expiry is 10 s; so ends a killed process."""
    usual = replace(FOUNDER, timers=ControlTimers())
    async with found(config=usual) as server, RawClient(server.address, ID + 2) as witness:
        async with RawClient(server.address) as client:
            client.say(Announce(ID, NONCE))
            await client.hear(IdAck)
        ended = trio.current_time()
        gone = (await witness.hear(PeersGone)).gone
        assert trio.current_time() - ended < 2.0
        assert [(each.id, each.reason) for each in gone] == [(ID, Reason.EXPIRED)]


async def test_a_silent_client_is_suspected_and_then_gone() -> None:
    impatient = replace(FOUNDER, timers=replace(TIMERS, expiry=0.4))
    async with found(config=impatient) as server, RawClient(server.address) as client:
        events = server.events()
        client.say(Announce(ID, NONCE))
        await client.hear(IdAck)
        assert (await happening(events, PeerSuspected)).peer.id == ID
        assert (await happening(events, PeerLeft)).reason is Reason.EXPIRED


async def test_nobody_is_registered_whom_the_application_does_not_admit() -> None:
    asked: list[Peer] = []

    def admit(peer: Peer) -> bool:
        asked.append(peer)
        return False

    async with found(admit=admit) as server, RawClient(server.address) as client:
        client.say(Announce(ID, NONCE))
        assert (await client.hear(IdNack)).reason is Reason.DENIED
        assert not server.clients
    assert [peer.id for peer in asked] == [ID]


@pytest.mark.parametrize(
    "garbage", [b"", b"\x01", bytes(10), struct.pack("<IIHHH", ID, ID, 2, 3, 8) + b"short"]
)
async def test_garbage_is_counted_and_changes_nothing(garbage: bytes) -> None:
    async with found() as server, RawClient(server.address) as client:
        before = dict(server.statistics().counters)
        client.say_bytes(garbage)
        client.say(Announce(ID, NONCE))
        await client.hear(IdAck)
        after = server.statistics().counters
        assert sum(after.values()) == sum(before.values()) + 1
        assert server.state is ServerState.ACTIVE


async def test_messages_that_are_too_large_are_counted_or_end_the_connection() -> None:
    async with found() as server, RawClient(server.address) as client:
        async with await greeted(server.address.sub, PUB) as stranger:
            await stranger.send_all(frame(bytes(70_000)))
            while server.statistics().counters.get("oversize") != 1:
                await client.hear(ServerHeartbeat)
            assert server.statistics().connections_ended == 0
            await stranger.send_all(frame(bytes(2 * MAX_MESSAGE_SIZE + 1))[:8])
            while server.statistics().connections_ended != 1:
                await client.hear(ServerHeartbeat)
        assert server.statistics().counters["oversize"] == 1
        client.say(Announce(ID, NONCE))
        await client.hear(IdAck)


async def test_messages_of_the_application_go_both_ways() -> None:
    async with found() as server, RawClient(server.address) as client:
        events = server.events()
        client.say(Announce(ID, NONCE))
        await client.hear(IdAck)
        client.say(ClientUser(ID, NONCE, 0x0123, (Parameter(0x0109, b"up"),)))
        heard = await happening(events, UserMessage)
        assert (heard.sender, heard.command) == (ID, 0x0123)
        server.send_command(ID, 0x0124, [Parameter(0x0109, b"down")])
        answer = await client.hear(ServerUser)
        assert (answer.command, answer.parameters) == (0x0124, ((0x0109, b"down"),))


async def test_a_client_of_one_server_is_known_to_the_other() -> None:
    async with found() as first:
        joining = partial(open_server, ANY, join=[first.address], config=JOINING)
        async with joining() as second, RawClient(first.address) as client:
            await second.wait_active()
            events = second.events()
            client.say(Announce(ID, NONCE))
            await client.hear(IdAck)
            assert (await happening(events, PeerEntered)).peer.nonce == NONCE


@pytest.mark.parametrize("new_cluster", [False, True])
async def test_why_nobody_is_heard_who_is_to_be_joined_is_told_within_a_second_and_a_half(
    new_cluster: bool,
) -> None:
    nowhere = unused_address()
    began = trio.current_time()
    async with open_server(ANY, join=[nowhere], new_cluster=new_cluster, config=FOUNDER) as server:
        told = await happening(server.events(), JoinFailing)
        assert trio.current_time() - began < 1.5
        assert told.address == nowhere
        assert told.why == f"connection refused by {nowhere.pub.removeprefix('tcp://')}"
        assert server.state is (ServerState.ACTIVE if new_cluster else ServerState.JOINING)


async def test_a_server_is_not_to_join_nobody_but_itself() -> None:
    """It would count as one that is told of nobody, and found a cluster of its own."""
    own, other = unused_address(), unused_address()
    opening = partial(open_server, own, config=FOUNDER)
    with pytest.raises(SettingsError, match=f"^join = {own}: that is this server itself$"):
        async with opening(join=[own]):
            pass
    async with opening(join=[own, other]) as server:
        assert (await happening(server.events(), JoinFailing)).address == other


async def test_a_name_that_is_none_ends_no_server_that_is_to_join_it() -> None:
    nobody = ServerAddress.parse("tcp://typo..invalid:8764")
    async with open_server(ANY, join=[nobody], config=FOUNDER) as server:
        told = await happening(server.events(), JoinFailing)
        assert told.why == "'typo..invalid' is not a valid host name"


async def test_a_server_that_answers_with_another_secret_is_told_apart_from_none() -> None:
    async with found(config=with_cluster(secret=bytes(32))) as other:
        options = with_cluster(secret=bytes([1] * 32))
        async with open_server(ANY, join=[other.address], config=options) as server:
            why = (await happening(server.events(), JoinFailing)).why
    assert "another secret" in why or "not vouched for with this cluster's secret" in why


async def test_that_servers_may_not_know_each_other_s_keys_is_among_the_reasons_told() -> None:
    first, second = draw_server_key(draw_cluster_key()), draw_server_key(draw_cluster_key())
    signed = with_cluster(secret=bytes(32), signing_key=first)
    async with found(config=signed) as other:
        options = with_cluster(secret=bytes(32), signing_key=second)
        async with open_server(ANY, join=[other.address], config=options) as server:
            why = (await happening(server.events(), JoinFailing)).why
    assert "another secret or other server keys" in why


async def test_clients_hear_that_their_server_leaves() -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(found())
        async with RawClient(server.address) as client:
            await stack.aclose()
            assert (await client.hear(ServerLeave)).sender == server.id


async def test_a_port_in_use_is_named_and_nothing_stays_open() -> None:
    async with found() as server:
        taken = ServerAddress(ANY.pub, server.address.sub)
        with pytest.raises(BusAddressInUseError, match=server.address.sub):
            async with open_server(taken, new_cluster=True, config=FOUNDER):
                pass


async def test_events_end_with_the_server() -> None:
    async with found() as server:
        events = server.events()
    assert server.state is ServerState.STOPPED
    assert [type(event).__name__ async for event in events][-1] == "StateChanged"


async def test_waiting_for_a_server_that_stops_before_it_is_active(
    nursery: trio.Nursery,
) -> None:
    given_up = trio.Event()

    async def wait(server: Server) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await server.wait_active()
        given_up.set()

    async with open_server(ANY, config=FOUNDER) as server:
        nursery.start_soon(wait, server)
        await trio.testing.wait_all_tasks_blocked()
    await given_up.wait()


async def test_an_address_that_the_bus_refuses_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: PubSocket, url: str) -> None:
        raise BusError(f"cannot dial {url}")

    async with found() as server, RawClient(server.address) as client:
        monkeypatch.setattr(PubSocket, "dial", refuse)
        nowhere = Member(8, 9, ServerAddress("tcp://nowhere:1", "tcp://nowhere:2"))
        client.say_bytes(ServerHeartbeat(nowhere, ClusterView(1, (nowhere,))).encode())
        client.say(Announce(ID, NONCE))
        await client.hear(IdAck)
        assert server.statistics().undialable == 1
        assert server.statistics().counters["undialable"] == 1


async def test_the_status_of_a_server_can_be_asked_for_from_outside() -> None:
    async with found() as server, RawClient(server.address) as client:
        client.say(Announce(ID, NONCE))
        await client.hear(IdAck)
        client.say(Heartbeat(ID, NONCE))
        document = await fetch_status(server.address)
        assert document["id"] == server.id
        assert document.keys() == server.status().keys()


async def test_a_long_status_arrives_whole() -> None:
    numbers: Sequence[int] = range(10_001, 10_001 + 2 * 1000, 2)
    async with found() as server, RawClient(server.address) as client:
        for number in numbers:
            client.say(Announce(number, NONCE))
        while len(server.clients) < len(numbers):
            await client.hear(IdAck)
        document = await fetch_status(server.address)
        assert len(document["clients"]) == len(numbers)


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    nowhere = unused_address()
    with pytest.raises(UnreachableError, match=f"no answer from {nowhere} within 0.05 s"):
        await fetch_status(nowhere, config=Config(timers=ControlTimers(answer_timeout=0.05)))
