"""Clusters with a secret, on real sockets: members hear members, and nobody else."""

from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
import trio

import sphtp
from sphtp import open_client, open_server
from sphtp.config import ControlTimers
from sphtp.core.control.client_messages import Leave
from sphtp.core.control.codec import Parameter
from sphtp.core.control.counters import Count
from sphtp.core.control.records import ServerAddress
from sphtp.errors import MessageTooLargeError, SettingsError, UnreachableError
from sphtp.shell.bus_dialing import PubSocket, SubSocket
from tests.deadline import until, within_20_seconds

pytestmark = within_20_seconds

TIMERS = ControlTimers(heartbeat=0.1, expiry=1.0, announce_deadline=0.5, backoff=0.2)
ANY = ServerAddress.parse("tcp://127.0.0.1:0,0")
SECRET, OTHER = bytes(range(32)), bytes(32)


@asynccontextmanager
async def server(*join, secret=SECRET):
    async with open_server(
        ANY,
        join=join,
        new_cluster=not join,
        config=sphtp.Config(timers=TIMERS, cluster=sphtp.security.ClusterSecurity(secret=secret)),
    ) as opened:
        yield opened


def client(address, secret=SECRET, timeout=10.0):
    return open_client(
        [address],
        config=sphtp.Config(
            timers=replace(TIMERS, answer_timeout=timeout),
            cluster=sphtp.security.ClusterSecurity(secret=secret),
        ),
    )


async def test_members_hear_each_other():
    async with server() as first, server(first.address) as second:
        await until(lambda: len(first.view.active) == len(second.view.active) == 2)
        async with client(first.address) as one, client(second.address) as other:
            assert (await one.wait_for_peer(other.id)).key == other.identity.public
            for each in (one, other, first, second):
                counters = each.statistics().counters
                assert Count.UNVOUCHED not in counters
                assert Count.REPLAYED not in counters


async def test_a_client_with_another_secret_hears_nobody_and_says_nothing():
    async with server() as opened:
        with pytest.raises(UnreachableError, match="wrong secret: the servers have another one"):
            async with client(opened.address, secret=OTHER, timeout=0.6):
                pytest.fail("it was let in")
        assert opened.clients == {}


async def test_a_client_without_a_secret_is_not_heard():
    async with server() as opened:
        with pytest.raises(UnreachableError, match="no secret: the servers have one"):
            async with client(opened.address, secret=None, timeout=0.6):
                pytest.fail("it was let in")
        assert opened.clients == {}
        assert opened.statistics().counters[Count.UNVOUCHED] > 0


async def test_a_client_with_a_secret_believes_no_server_without():
    async with server(secret=None) as opened:
        with pytest.raises(UnreachableError, match="the servers have no secret, and one was given"):
            async with client(opened.address, timeout=0.6):
                pytest.fail("it believed")


async def test_a_server_without_the_secret_joins_nothing():
    async with server() as first, server(first.address, secret=OTHER) as second:
        await until(lambda: first.statistics().counters.get(Count.UNVOUCHED, 0) > 3)
        assert len(first.view.members) == len(second.view.members) == 1


async def test_status_needs_the_secret():
    async with server() as opened:
        document = await sphtp.observe.fetch_status(
            opened.address,
            config=sphtp.Config(cluster=sphtp.security.ClusterSecurity(secret=SECRET)),
        )
        assert document["id"] == opened.id
        with pytest.raises(UnreachableError, match="no secret: the servers have one"):
            await sphtp.observe.fetch_status(
                opened.address, config=sphtp.Config(timers=ControlTimers(answer_timeout=0.6))
            )
        with pytest.raises(UnreachableError, match="wrong secret"):
            await sphtp.observe.fetch_status(
                opened.address,
                config=sphtp.Config(
                    cluster=sphtp.security.ClusterSecurity(secret=OTHER),
                    timers=ControlTimers(answer_timeout=0.6),
                ),
            )


async def test_a_stranger_who_read_the_nonce_cannot_speak_for_a_client():
    async with server() as opened, client(opened.address) as one:
        forged = Leave(one.id, opened.clients[one.id].nonce).encode()
        with PubSocket() as stranger:
            stranger.dial(opened.address.sub)
            while opened.statistics().counters.get(Count.UNVOUCHED, 0) < 3:
                stranger.send(forged)
                await trio.lowlevel.checkpoint()
        assert one.id in opened.clients


async def test_a_secret_of_another_size_is_refused():
    with pytest.raises(SettingsError, match="secret of 5 bytes"):
        async with server(secret=b"short"):
            pass
    with pytest.raises(SettingsError, match="secret of 5 bytes"):
        async with client("tcp://127.0.0.1:8764", secret=b"short"):
            pass


async def test_a_secret_is_not_shown():
    assert repr(SECRET) not in repr(
        sphtp.Config(cluster=sphtp.security.ClusterSecurity(secret=SECRET))
    )


async def test_what_is_for_clients_uses_up_nothing_when_it_is_played_to_a_server():
    """What must hold: somebody who relays it cannot make the server's own words count as said."""
    async with server() as first, server(first.address) as second:
        await until(lambda: len(first.view.active) == len(second.view.active) == 2)
        with SubSocket() as subscriber, PubSocket() as publisher:
            subscriber.subscribe(b"")
            subscriber.dial(first.address.pub)
            publisher.dial(second.address.sub)
            relayed = 0
            with trio.move_on_after(1.0):
                while True:
                    for message in await subscriber.receive_batch():
                        publisher.send(message)
                        relayed += 1
        assert relayed > 5
        assert Count.REPLAYED not in second.statistics().counters
        assert len(second.view.active) == 2


async def test_a_secret_leaves_less_room_for_messages_of_the_application():
    fits, too_large = (Parameter(0x200, bytes(65_500 - 10 - 4 + more)) for more in (0, 1))
    async with server() as opened, client(opened.address) as one:
        opened.send_command(one.id, 0x200, [fits])
        for publish in (partial(opened.send_command, one.id), one.send_command):
            with pytest.raises(MessageTooLargeError, match="with a secret, at most 65500"):
                publish(0x200, [too_large])
        await sphtp.observe.fetch_status(
            opened.address,
            config=sphtp.Config(cluster=sphtp.security.ClusterSecurity(secret=SECRET)),
        )
