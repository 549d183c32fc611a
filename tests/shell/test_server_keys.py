"""Clusters whose servers sign, on real sockets: servers are servers, and members are no more."""

from contextlib import asynccontextmanager
from dataclasses import replace
from random import SystemRandom

import pytest

import sphtp
from sphtp import open_client, open_server
from sphtp.config import ControlTimers
from sphtp.core.control.codec import Parameter
from sphtp.core.control.counters import Count
from sphtp.core.control.records import ServerAddress
from sphtp.errors import MessageTooLargeError, SettingsError, UnreachableError
from sphtp.security import ClusterKey, ServerKey
from tests.deadline import until, within_20_seconds

pytestmark = within_20_seconds

TIMERS = ControlTimers(heartbeat=0.1, expiry=1.0, announce_deadline=0.5, backoff=0.2)
ANY = ServerAddress.parse("tcp://127.0.0.1:0,0")
SECRET = bytes(range(32))
CLUSTER, OTHERS = (ClusterKey.draw(SystemRandom()) for _ in range(2))


def key(cluster: ClusterKey | None = CLUSTER) -> ServerKey:
    drawn = ServerKey.draw(SystemRandom())
    return drawn if cluster is None else drawn.certified(cluster)


@asynccontextmanager
async def server(*join, signing_key=None, server_keys=(), secret=SECRET):
    async with open_server(
        ANY,
        join=join,
        new_cluster=not join,
        config=sphtp.Config(
            timers=TIMERS,
            cluster=sphtp.security.ClusterSecurity(
                secret=secret, signing_key=signing_key, server_keys=server_keys
            ),
        ),
    ) as opened:
        yield opened


def client(address, *server_keys, timeout=10.0, secret=SECRET):
    return open_client(
        [address],
        config=sphtp.Config(
            timers=replace(TIMERS, answer_timeout=timeout),
            cluster=sphtp.security.ClusterSecurity(secret=secret, server_keys=server_keys),
        ),
    )


@pytest.mark.parametrize("secret", [SECRET, None], ids=["secret", "open"])
async def test_servers_that_a_cluster_vouches_for_are_heard(secret):
    async with (
        server(signing_key=key(), secret=secret) as first,
        server(first.address, signing_key=key(), secret=secret) as second,
    ):
        await until(lambda: len(first.view.active) == len(second.view.active) == 2)
        async with (
            client(first.address, CLUSTER.public, secret=secret) as one,
            client(second.address, CLUSTER.public, secret=secret) as other,
        ):
            assert (await one.wait_for_peer(other.id)).key == other.identity.public
            async with one.open_channel(other.id) as channel:
                await channel.send("sealed")
                assert await (await other.accept()).receive() == "sealed"
            for each in (one, other, first, second):
                counters = each.statistics().counters
                for count in (Count.UNSIGNED, Count.UNKNOWN_KEY, Count.REPLAYED):
                    assert count not in counters


async def test_a_server_that_is_known_by_its_own_key_is_heard():
    own = key(None)
    async with server(signing_key=own) as opened, client(opened.address, own.public) as one:
        assert one.id in opened.clients


async def test_programs_without_keys_hear_servers_that_sign():
    async with server(signing_key=key()) as opened, client(opened.address) as one:
        assert one.id in opened.clients
        assert (
            await sphtp.observe.fetch_status(
                opened.address,
                config=sphtp.Config(cluster=sphtp.security.ClusterSecurity(secret=SECRET)),
            )
        )["id"] == opened.id


async def test_a_client_refuses_a_server_that_does_not_sign_and_says_so():
    async with server() as opened:
        with pytest.raises(UnreachableError, match="the servers do not sign their messages"):
            async with client(opened.address, CLUSTER.public, timeout=0.6):
                pytest.fail("it believed")


async def test_a_client_refuses_a_server_of_another_cluster_and_names_its_keys():
    own = key(OTHERS)
    async with server(signing_key=own) as opened:
        with pytest.raises(UnreachableError, match="wrong server key") as caught:
            async with client(opened.address, CLUSTER.public, timeout=0.6):
                pytest.fail("it believed")
    assert sphtp.security.format_key(own.public) in str(caught.value)
    assert sphtp.security.format_key(OTHERS.public) in str(caught.value)


async def test_a_client_that_knows_one_server_of_two_is_told_of_the_other():
    one, other = key(None), key(None)
    both = [one.public, other.public]
    async with (
        server(signing_key=one, server_keys=both) as first,
        server(first.address, signing_key=other, server_keys=both) as second,
    ):
        await until(lambda: len(first.view.active) == len(second.view.active) == 2)
        with pytest.raises(UnreachableError, match=r"not all of the view.*wrong server key") as why:
            async with client(first.address, one.public, timeout=0.6):
                pytest.fail("it believed")
        assert sphtp.security.format_key(other.public) in str(why.value)


@pytest.mark.parametrize("rogue", [None, key(None), key(OTHERS)], ids=["none", "own", "others'"])
async def test_a_member_joins_no_view_and_is_told_to_nobody(rogue):
    """What must hold: the secret makes no server, whatever it signs with."""
    async with (
        server(signing_key=key()) as true,
        client(true.address, CLUSTER.public) as one,
        server(true.address, signing_key=rogue) as false,
    ):
        refused = Count.UNSIGNED if rogue is None else Count.UNKNOWN_KEY
        await until(lambda: true.statistics().counters.get(refused, 0) > 3)
        assert set(true.view.active) == set(one.servers) == {true.id}
        assert false.id not in one.servers


async def test_a_status_has_to_be_signed_where_keys_are_given():
    async with server(signing_key=key()) as opened, server() as unsigned:

        def ask(address, *, server_keys):
            cluster = sphtp.security.ClusterSecurity(secret=SECRET, server_keys=server_keys)
            config = sphtp.Config(cluster=cluster, timers=ControlTimers(answer_timeout=2))
            return sphtp.observe.fetch_status(address, config=config)

        assert (await ask(opened.address, server_keys=[CLUSTER.public]))["id"] == opened.id
        with pytest.raises(UnreachableError, match="wrong server key"):
            await ask(opened.address, server_keys=[OTHERS.public])
        with pytest.raises(UnreachableError, match="the servers do not sign their messages"):
            await ask(unsigned.address, server_keys=[CLUSTER.public])


async def test_a_server_that_nobody_would_hear_does_not_start():
    with pytest.raises(SettingsError, match="no signing_key"):
        async with server(server_keys=[CLUSTER.public]):
            pass
    with pytest.raises(SettingsError, match="other servers would drop its messages"):
        async with server(signing_key=key(OTHERS), server_keys=[CLUSTER.public]):
            pass
    with pytest.raises(SettingsError, match="public key of 5 bytes"):
        async with client("tcp://127.0.0.1:8764", b"short"):
            pass


async def test_a_signature_leaves_less_room_for_messages_of_the_application():
    fits, too_large = (Parameter(0x200, bytes(65_288 - 10 - 4 + more)) for more in (0, 1))
    async with server(signing_key=key()) as opened:
        opened.send_command(0, 0x200, [fits])
        with pytest.raises(MessageTooLargeError, match="at most 65288"):
            opened.send_command(0, 0x200, [too_large])


async def test_a_key_is_not_shown():
    own = key()
    assert own.export() not in repr(sphtp.security.ClusterSecurity(signing_key=own))
    assert own.export() not in repr(own)
