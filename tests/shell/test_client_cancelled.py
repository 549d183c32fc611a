"""A client that is cancelled while it waits: nothing hangs, and nothing stays open."""

import gc

import pytest
import trio

import sphtp
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.records import ServerAddress
from sphtp.events import Suspended
from sphtp.shell.bus_listening import ListeningPubSocket
from tests.deadline import within_20_seconds
from tests.shell.test_client import ANY, TIMERS, client, cluster, kept, server, wait_for

pytestmark = within_20_seconds


def nowhere() -> ServerAddress:
    # Where no other test binds, so that nobody takes the port meanwhile.
    apart = "tcp://127.0.0.86:0"
    with ListeningPubSocket() as first, ListeningPubSocket() as second:
        return ServerAddress(first.listen(apart), second.listen(apart))


@pytest.mark.parametrize("seconds", [0, 0.01, 0.1])
async def test_opening_a_client_can_be_cancelled_while_no_server_is_there(seconds):
    with trio.move_on_after(seconds) as scope:
        async with sphtp.open_client([nowhere()], config=sphtp.Config(timers=TIMERS)):
            raise AssertionError("there is no server")
    assert scope.cancelled_caught
    gc.collect()


async def test_opening_a_client_can_be_cancelled_while_it_announces():
    async with sphtp.open_server(ANY, config=sphtp.Config(timers=TIMERS)) as joining:
        with trio.move_on_after(0.2) as scope:
            async with sphtp.open_client([joining.address], config=sphtp.Config(timers=TIMERS)):
                raise AssertionError("nobody acknowledges")
        assert scope.cancelled_caught
        assert not joining.clients
    gc.collect()


async def test_waiting_for_a_peer_can_be_cancelled_and_begun_again():
    async with cluster(1) as servers, client(servers[0].address) as alone:
        for _ in range(3):
            with trio.move_on_after(0.01) as scope:
                await alone.wait_for_peer(3)
            assert scope.cancelled_caught
        async with client(servers[0].address, ids=iter([3])) as late:
            assert (await alone.wait_for_peer(3)).id == late.id


async def test_waiting_for_a_peer_while_no_server_is_heard_is_a_wait_like_any_other():
    async with trio.open_nursery() as nursery:
        stop, closed = trio.CancelScope(), trio.Event()
        first = await nursery.start(kept, server(), stop, closed)
        hasty = sphtp.config.ChannelSettings(connect_timeout=0.01, linger=0.05)
        async with client(first.address, channel=hasty) as alone:
            with alone.events() as events:
                stop.cancel()
                await wait_for(events, Suspended)
            await closed.wait()
            assert alone.state is ClientState.SUSPENDED
            with trio.move_on_after(0.01) as scope:
                await alone.wait_for_peer(3)
            assert scope.cancelled_caught
            with pytest.raises(sphtp.UnreachableError, match="peer 0x00000003 did not appear"):
                async with alone.open_channel(3):
                    raise AssertionError("nobody has id 3")
            async with server(bind=first.address), client(first.address, ids=iter([3])) as late:
                assert (await alone.wait_for_peer(3)).id == late.id
    gc.collect()
