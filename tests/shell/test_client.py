"""Clients among real servers, over real sockets on loopback."""

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from socket import AF_INET, SOCK_DGRAM, socket
from typing import Any

import pytest
import trio
import trio.testing

import sphtp
from sphtp import open_client, open_server
from sphtp.config import ControlTimers
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.records import ClusterView, Member, ServerAddress
from sphtp.core.control.server_messages import ServerHeartbeat
from sphtp.core.control.settings import ServerLimits
from sphtp.core.control.vocabulary import Reason
from sphtp.errors import BusAddressInUseError, BusError
from sphtp.events import Established, PeerChanged, PeerLeft, ServerEntered, ServerLeft, Suspended
from sphtp.messages import MessageFactory
from sphtp.shell.bus_dialing import PubSocket
from sphtp.shell.bus_listening import ListeningPubSocket
from sphtp.shell.lifetime import running
from tests.deadline import until, within_20_seconds
from tests.recorder import Recorder
from tests.shell.nodes import BRIEFLY

pytestmark = within_20_seconds

TIMERS = ControlTimers(heartbeat=0.1, expiry=1.0, announce_deadline=0.5, backoff=0.2)
ANY = ServerAddress.parse("tcp://127.0.0.1:0,0")


def server(*join, bind=ANY):
    return open_server(bind, join=join, new_cluster=True, config=sphtp.Config(timers=TIMERS))


def client(*servers, channel=BRIEFLY, messages=None, instruments=(), identity=None, **options):
    config = sphtp.Config(
        timers=TIMERS,
        channel=channel,
        messages=messages,
        instruments=instruments,
        security=sphtp.security.Security(identity=identity),
    )
    return open_client(servers, config=config, **options)


@asynccontextmanager
async def cluster(servers: int):
    """Servers of one view."""
    async with trio.open_nursery() as nursery:
        running: list[sphtp.Server] = []
        for _ in range(servers):
            join = [other.address for other in running]
            running.append(await nursery.start(kept, server(*join)))
        with trio.fail_after(20):
            for each in running:
                await agreed(each, servers)
            yield running
        nursery.cancel_scope.cancel()


async def kept(opened, stop=None, closed=None, *, task_status):
    """Keep a client or a server open in a task of its own."""
    with stop or trio.CancelScope():
        async with opened as it:
            task_status.started(it)
            await trio.sleep_forever()
    if closed is not None:
        closed.set()


async def agreed(server: sphtp.Server, members: int) -> None:
    """Wait until a server's view has so many members."""
    events = server.events()
    while len(server.view.members) < members:
        await anext(events)


async def wait_for(events, kind):
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__} came")


async def test_one_address_is_enough_to_register_with_every_server():
    async with cluster(2) as servers, client(servers[0].address) as alone:
        assert alone.id % 2 == 1
        assert alone.state is ClientState.ESTABLISHED
        assert set(alone.servers) <= {server.id for server in servers}
        assert all(alone.id in server.clients for server in servers)


@dataclass
class Step:
    number: int


async def test_channels_of_clients_carry_types_and_refuse_clients_without():
    types = MessageFactory([Step])
    async with (
        cluster(1) as (only,),
        client(only.address, messages=types) as left,
        client(only.address, messages=types) as right,
        client(only.address) as plain,
    ):
        async with left.open_channel(right.id) as here, await right.accept() as there:
            await here.send(Step(7))
            assert await there.receive() == Step(7)
        with pytest.raises(sphtp.RefusedError, match=r"message types differ .* Step: here missing"):
            async with plain.open_channel(left.id):
                pytest.fail("a channel")


async def test_peers_are_introduced_with_data_and_open_channels_to_each_other():
    async with (
        cluster(2) as servers,
        client(servers[0].address, data={"slab": 0}) as left,
        client(servers[1].address, data={"slab": 1}) as right,
    ):
        peer = await left.wait_for_peer(lambda peer: peer.data == {"slab": 1})
        assert peer.id == right.id
        assert peer.addresses == (right.address,)
        async with left.open_channel(peer.id) as here, await right.accept() as there:
            assert (here.peer_id, there.peer_id) == (right.id, left.id)
            await here.send("hello")
            assert await there.receive() == "hello"


async def test_the_channels_of_a_client_can_be_watched():
    recorder = Recorder()
    async with (
        cluster(1) as servers,
        client(servers[0].address, instruments=[recorder]) as left,
        client(servers[0].address) as right,
        left.open_channel(right.id),
        await right.accept(),
    ):
        pass
    [(_, channel, _)] = recorder.of("channel_closed")
    assert channel.peer_id == right.id
    assert channel.peer_address == right.address


async def test_peers_learn_each_others_public_keys():
    own = sphtp.Identity(bytes(range(32)))
    async with (
        cluster(2) as servers,
        client(servers[0].address, identity=own) as one,
        client(servers[1].address) as other,
    ):
        assert (await other.wait_for_peer(one.id)).key == one.identity.public == own.public
        drawn = (await one.wait_for_peer(other.id)).key
        assert drawn == other.identity.public != own.public


async def test_data_that_changes_reaches_the_peers():
    async with (
        cluster(1) as servers,
        client(servers[0].address, data="before") as left,
        client(servers[0].address) as right,
    ):
        await right.wait_for_peer(lambda peer: peer.data == "before")
        left.set_data("after")
        peer = await right.wait_for_peer(lambda peer: peer.data == "after")
        assert peer.id == left.id


async def test_events_tell_the_peer_itself_with_what_it_says_of_itself():
    async with cluster(1) as servers, client(servers[0].address) as right:
        with right.events() as events:
            async with client(servers[0].address, data={"place": 7}) as left:
                changed = await wait_for(events, PeerChanged)
                assert changed.peer == right.peers[left.id]
                assert changed.peer.data == {"place": 7}
            assert (await wait_for(events, PeerLeft)).peer.data == {"place": 7}


async def test_a_peer_is_found_among_others_whose_data_is_of_another_sort():
    async with (
        cluster(1) as servers,
        client(servers[0].address, data=7),
        client(servers[0].address, data={"other": 1}),
        client(servers[0].address, data=["place"]),
        client(servers[0].address) as alone,
        client(servers[0].address, data={"place": 3}) as wanted,
    ):
        while len(alone.peers) < 4:
            await trio.lowlevel.checkpoint()
        peer = await alone.wait_for_peer(lambda peer: peer.data["place"] == 3)
        assert peer.id == wanted.id


async def test_a_function_that_fails_on_every_peer_is_told(caplog):
    async with (
        cluster(1) as servers,
        client(servers[0].address, data={"place": 3}),
        client(servers[0].address) as alone,
    ):
        await alone.wait_for_peer(lambda peer: peer.data == {"place": 3})
        with trio.move_on_after(0.1):
            await alone.wait_for_peer(lambda peer: peer.data["plaec"] == 3)
    assert "the function raised for 1 of them, last KeyError('plaec')" in caplog.text


def misspelt(peer):
    return plaec == peer.data  # type: ignore[name-defined] # noqa: F821 - that is the point


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda peer: peer.dta == 3, AttributeError),
        (misspelt, NameError),
        (lambda: True, TypeError),
    ],
)
async def test_a_function_that_no_data_makes_fail_fails_at_once(function, error):
    async with (
        cluster(1) as servers,
        client(servers[0].address) as other,
        client(servers[0].address) as alone,
    ):
        await alone.wait_for_peer(other.id)
        with pytest.raises(error):
            await alone.wait_for_peer(function)


async def test_publishing_raises_what_its_page_says():
    async with cluster(1) as servers, client(servers[0].address) as alone:
        for publish in (alone.send_command, partial(servers[0].send_command, 0)):
            for command, parameter in ((0xFF, 0x100), (0x10000, 0x100), (0x100, 0x10000)):
                with pytest.raises(sphtp.errors.StateError):
                    publish(command, [sphtp.events.Parameter(parameter, b"")])
            for sizes in ((65_536,), (40_000, 40_000)):
                parameters = [sphtp.events.Parameter(0x100, bytes(size)) for size in sizes]
                with pytest.raises(sphtp.errors.MessageTooLargeError):
                    publish(0x100, parameters)
            publish(0x100, [sphtp.events.Parameter(0x100, bytes(65_536 - 22 - 4))])


async def test_topics_that_change_reach_the_peers():
    async with (
        cluster(2) as servers,
        client(servers[0].address, data="spheres") as left,
        client(servers[1].address) as right,
    ):
        assert (await right.wait_for_peer(left.id)).topics == ()
        async with left.publish("positions", "速度"):
            peer = await right.wait_for_peer(lambda peer: "positions" in peer.topics)
            assert (peer.id, peer.topics, peer.data) == (left.id, ("positions", "速度"), "spheres")
        assert not (await right.wait_for_peer(lambda peer: not peer.topics)).topics


async def test_peers_find_a_source_by_its_topic_and_get_what_it_sends():
    async with (
        cluster(2) as servers,
        client(servers[0].address) as left,
        client(servers[1].address) as right,
        left.publish("positions") as source,
    ):
        await source.send("before")
        peer = await right.wait_for_peer(lambda peer: "positions" in peer.topics)
        async with right.subscribe_to(peer.id, "positions", late_join=True) as stream:
            await source.send_many(range(3))
            await source.aclose()
            assert [item async for item in stream] == ["before", 0, 1, 2]


async def test_peers_are_found_by_their_names():
    async with (
        cluster(2) as servers,
        client(servers[0].address, name="fluid-1", data="spheres") as left,
        client(servers[1].address, name="solid") as right,
    ):
        waiting = right.wait_for_peer("fluid-1")
        left.set_groups(["fluid", *left.groups])
        peer = await waiting
        assert (peer.name, peer.id, right.peer_named("fluid-1")) == ("fluid-1", left.id, peer)
        changed = await right.wait_for_peer(lambda peer: "fluid" in peer.groups)
        assert (changed, changed.data, left.groups) == (peer, "spheres", ("fluid",))
        label = f"fluid-1 ({left.id:#010x})"
        assert label in repr(changed)
        assert label in repr(left)
        for wanted in ("fluid-1", changed, left.id):
            async with right.open_channel(wanted) as channel:
                accepted = await left.accept()
                assert f"<Channel to {label} at " in repr(channel)
                assert f"<Channel to solid ({right.id:#010x}) at " in repr(accepted)
        assert right.peer_named("") is None
        soon = sphtp.config.ChannelSettings(connect_timeout=0.1)
        async with client(servers[0].address, channel=soon) as hasty:
            with pytest.raises(sphtp.UnreachableError, match="peer 'fluid-2' did not appear"):
                async with hasty.open_channel("fluid-2"):
                    pass


async def test_of_two_peers_with_one_name_the_last_one_counts():
    async with (
        cluster(1) as servers,
        client(servers[0].address) as alone,
        client(servers[0].address, name="twin") as first,
    ):
        assert (await alone.wait_for_peer("twin")).id == first.id
        async with client(servers[0].address, name="twin") as last:
            await alone.wait_for_peer(last.id)
            assert (await alone.wait_for_peer("twin")).id == last.id


async def test_errors_of_a_channel_name_the_peer():
    async with (
        cluster(1) as servers,
        client(servers[0].address) as alone,
        client(servers[0].address, name="fluid-1") as other,
        alone.open_channel(other.id) as channel,
    ):
        (await other.accept()).abort("enough")
        with pytest.raises(trio.BrokenResourceError, match=rf"peer fluid-1 \({other.id:#010x}\)"):
            await channel.receive()


async def test_a_client_that_watches_a_group_is_called_by_others_and_calls_them():
    async with (
        cluster(2) as servers,
        client(servers[0].address, name="caller") as caller,
        client(servers[1].address, name="member") as member,
        client(servers[0].address, name="watcher", presence=["fluid"]) as watcher,
    ):
        member.set_groups(["fluid"])
        assert (await watcher.wait_for_peer("member")).groups == ("fluid",)
        assert list(watcher.peers) == [member.id]
        async with caller.open_channel(watcher.id) as channel:
            accepted = await watcher.accept()
            await channel.send("hello")
            assert await accepted.receive() == "hello"
        assert set(watcher.peers) == {member.id, caller.id}
        watcher.set_presence([])
        assert set(watcher.peers) == {caller.id}
        async with watcher.open_channel(member.id) as channel:
            await (await member.accept()).send("world")
            assert await channel.receive() == "world"


async def test_topics_that_no_client_can_have_are_refused():
    async with cluster(1) as servers, client(servers[0].address) as alone:
        with pytest.raises(sphtp.errors.SettingsError, match="topic is ''"):
            async with alone.publish(""):
                pass


async def test_a_peer_that_leaves_is_missed_at_once():
    async with cluster(2) as servers, client(servers[0].address) as left:
        events = left.events()
        async with client(servers[1].address) as right:
            await left.wait_for_peer(right.id)
        event = await wait_for(events, PeerLeft)
        assert (event.peer.id, event.reason) == (right.id, Reason.LEFT)
        assert right.id not in left.peers


async def test_one_server_of_two_leaves_and_the_client_stays():
    async with cluster(1) as servers, trio.open_nursery() as nursery:
        stop = trio.CancelScope()
        second = await nursery.start(kept, server(servers[0].address), stop)
        await agreed(servers[0], 2)
        async with client(servers[0].address) as alone:
            events = alone.events()
            while second.id not in alone.servers:
                await anext(events)
            stop.cancel()
            event = await wait_for(events, ServerLeft)
            assert event.member.id == second.id
            assert alone.state is ClientState.ESTABLISHED


async def test_without_servers_a_client_is_suspended_and_its_channels_live_on():
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            stop, closed = trio.CancelScope(), trio.Event()
            first = await nursery.start(kept, server(), stop, closed)
            async with (
                client(first.address) as left,
                client(first.address) as right,
                left.open_channel(right.id) as here,
                await right.accept() as there,
            ):
                events, left_id = left.events(), left.id
                stop.cancel()
                await wait_for(events, Suspended)
                await here.send("still here")
                assert await there.receive() == "still here"
                await closed.wait()
                async with server(bind=first.address) as second:
                    event = await wait_for(events, Established)
                    assert (event.id, event.resumed) == (left_id, True)
                    assert left_id in second.clients


async def test_no_server_is_an_error_that_says_so():
    complaint = r"^not registered: connection refused by 127\.0\.0\.1:9$"
    with pytest.raises(sphtp.UnreachableError, match=complaint):
        async with open_client("tcp://127.0.0.1:9", config=sphtp.Config(timers=TIMERS)):
            raise AssertionError("there is none")


async def test_a_server_that_is_joining_is_an_error_that_says_so():
    async with open_server(ANY, config=sphtp.Config(timers=TIMERS)) as joining:
        with pytest.raises(sphtp.UnreachableError, match="no new id while they are JOINING"):
            async with open_client(
                [joining.address], config=sphtp.Config(timers=replace(TIMERS, answer_timeout=0.5))
            ):
                raise AssertionError("it acknowledges nobody")


async def test_a_full_server_is_an_error_that_says_so():
    limits = ServerLimits(max_clients=1)
    async with (
        open_server(
            ANY, new_cluster=True, config=sphtp.Config(timers=TIMERS, server_limits=limits)
        ) as full,
        client(full.address),
    ):
        with pytest.raises(sphtp.UnreachableError, match="the last refusal said FULL"):
            async with open_client(
                [full.address], config=sphtp.Config(timers=replace(TIMERS, answer_timeout=0.5))
            ):
                raise AssertionError("there is no room")


async def test_a_client_that_is_not_admitted_is_refused():
    async with open_server(
        ANY, new_cluster=True, admit=lambda _: False, config=sphtp.Config(timers=TIMERS)
    ) as strict:
        with pytest.raises(sphtp.RefusedError, match="denied") as caught:
            async with client(strict.address):
                raise AssertionError("it admits nobody")
        assert caught.value.reason == "denied"


@pytest.mark.parametrize(
    ("servers", "complaint"),
    [
        ([], "servers is empty"),
        (["127.0.0.1"], "server address '127.0.0.1': allowed is host:port"),
        ([8764], "server address 8764: allowed is text such as"),
        ([("127.0.0.1", "8764")], "allowed is text such as"),
    ],
)
async def test_addresses_that_make_no_sense_are_named(servers, complaint):
    with pytest.raises(sphtp.errors.SettingsError, match=complaint):
        async with open_client(servers):
            raise AssertionError("no such server")


async def test_addresses_may_be_pairs_or_lack_their_scheme():
    async with on_two_ports_in_a_row() as opened:
        plain = str(opened.address).removeprefix("tcp://")
        host, _, port = plain.rpartition(":")
        servers: Any
        for servers in (plain, [(host, int(port))], [("[::1]", int(port)), plain], opened.address):
            async with open_client(servers) as client:
                assert set(client.servers) == {opened.id}


@asynccontextmanager
async def on_two_ports_in_a_row():
    while True:
        with ListeningPubSocket() as publisher:
            bind = ServerAddress.parse(publisher.listen(ANY.pub))
        try:
            async with open_server(bind, new_cluster=True) as opened:
                yield opened
                return
        except BusAddressInUseError:
            continue  # of a random port, the next one may be taken


@pytest.mark.parametrize("wanted", [None, 3.0, b"\x03"])
async def test_what_names_no_peer_is_a_clear_error(wanted):
    async with cluster(1) as servers, client(servers[0].address) as alone:
        with pytest.raises(TypeError, match="neither id nor name of a peer nor"):
            await alone.wait_for_peer(wanted)
        for opening in (alone.open_channel(wanted), alone.subscribe_to(wanted, "topic")):
            with pytest.raises(TypeError, match="neither a peer nor its id or name"):
                async with opening:
                    raise AssertionError("nobody has such an id")


async def test_what_is_printed_names_it_and_its_state_and_no_secret():
    async with cluster(1) as servers, client(servers[0].address, data={"place": 3}) as left:
        async with client(servers[0].address) as right:
            peer = await right.wait_for_peer(lambda it: it.data == {"place": 3})
            assert repr(peer) == (
                f"<Peer {left.id:#010x} at {left.address[0]}:{left.address[1]}, "
                "data {'place': 3}>"
            )
            assert repr(left) == (
                f"<Client {left.id:#010x} ESTABLISHED at {left.address[0]}:{left.address[1]}>"
            )
            async with right.open_channel(left.id) as channel:
                assert repr(channel) == (
                    f"<Channel to {left.id:#010x} at {left.address[0]}:{left.address[1]} open>"
                )
            assert repr(channel).endswith("closed (DONE)>")
        assert repr(servers[0]) == (
            f"<Server {servers[0].id:#010x} ACTIVE at {servers[0].address.pub}>"
        )


async def test_what_was_waited_for_is_named(caplog):
    hasty = sphtp.config.ChannelSettings(connect_timeout=0.05, linger=0.05)
    async with cluster(1) as servers, client(servers[0].address, channel=hasty) as alone:
        with pytest.raises(trio.TooSlowError), trio.fail_after(0.05):
            await alone.wait_for_peer(3)
        assert "a wait was cancelled: peer 0x00000003 did not appear" in caplog.text
        with pytest.raises(
            sphtp.UnreachableError, match=r"0x00000003 did not appear within 0\.05 s"
        ):
            async with alone.open_channel(3):
                raise AssertionError("nobody has id 3")


async def test_statistics_count_what_was_dropped(monkeypatch):
    def refuse(_, url):
        raise BusError(f"cannot dial {url}")

    nowhere = Member(8, 9, ServerAddress("tcp://nowhere:1", "tcp://nowhere:2"))
    async with cluster(1) as servers:
        with ListeningPubSocket() as stranger:
            fake = ServerAddress(url := stranger.listen(ANY.pub), url)
            async with running(stranger.run), client(servers[0].address, fake) as alone:
                events, slow = alone.events(), alone.events()
                await until(lambda: bool(stranger.connections))
                stranger.send(bytes(4) + b"cut")
                monkeypatch.setattr(PubSocket, "dial", refuse)
                stranger.send(ServerHeartbeat(nowhere, ClusterView(1, (nowhere,))).encode())
                assert (await wait_for(events, ServerEntered)).member == nowhere
                with socket(AF_INET, SOCK_DGRAM) as udp:
                    udp.sendto(b"no datagram of ours", alone.address)
                for _ in range(12):
                    for _ in range(100):
                        servers[0].send_command(0, 0x100)
                    for _ in range(100):
                        await wait_for(events, sphtp.events.UserMessage)
                figures = alone.statistics()
                assert figures.counters["malformed"] == 1
                assert figures.undialable == 1
                assert figures.events_dropped >= 1200 - 1024
                assert figures.node.malformed == 1
                assert slow is not None


async def test_leaving_tells_the_servers():
    async with cluster(1) as servers:
        async with client(servers[0].address) as alone:
            assert alone.id in servers[0].clients
            left = alone.id
        events = servers[0].events()
        if left in servers[0].clients:
            await wait_for(events, sphtp.events.PeerLeft)
        assert left not in servers[0].clients


async def test_a_wait_for_a_peer_ends_with_its_client() -> None:
    async with cluster(1) as (only,), trio.open_nursery() as nursery:
        closing = trio.CancelScope()
        ann = await nursery.start(kept, client(only.address), closing)

        async def wait() -> None:
            with pytest.raises(trio.ClosedResourceError, match="this client was closed"):
                await ann.wait_for_peer("nobody")

        async with trio.open_nursery() as waiting:
            waiting.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.01)
            closing.cancel()
        nursery.cancel_scope.cancel()
