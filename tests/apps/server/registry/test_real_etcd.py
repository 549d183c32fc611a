"""Servers that share a registry on a real etcd: restarts, outages, TLS and a user, compaction."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import sphtp
from sphtp import Client, Config, Server
from sphtp.config import ControlTimers
from sphtp.events import ClientState, Established, ServerState, Suspended
from sphtp_server.registry.gateway import Gateway, GatewayError
from sphtp_server.registry.keyspace import Keyspace, parse_watch_untrusted
from sphtp_server.registry.location import EtcdAccess, EtcdLocation
from sphtp_server.settings import ServerSettings
from tests.apps.server.registry.real_etcd import EtcdMembers, needs_etcd, real_etcd
from tests.apps.server.test_daemon import daemon
from tests.certificates import Authority
from tests.deadline import until, within

pytestmark = [needs_etcd, pytest.mark.soak, pytest.mark.trio(run=within(60))]

TIMERS = ControlTimers(heartbeat=0.2, expiry=2.0, announce_deadline=1.0)
CONFIG = Config(timers=TIMERS)


@asynccontextmanager
async def server_on(etcd: EtcdMembers, **settings: Any) -> AsyncIterator[Server]:
    chosen = ServerSettings(
        pub_port=0,
        sub_port=0,
        announce=False,
        registry=etcd.url,
        heartbeat=TIMERS.heartbeat,
        announce_deadline=TIMERS.announce_deadline,
        **{"expiry": TIMERS.expiry, **settings},
    )
    async with chosen.open(chosen.admit()) as server:
        await server.wait_active()
        yield server


def addresses(*servers: Server) -> list[str]:
    return [str(server.address) for server in servers]


async def test_servers_find_each_other_and_their_clients(tmp_path: Path) -> None:
    async with (
        real_etcd(tmp_path) as etcd,
        server_on(etcd) as one,
        server_on(etcd) as other,
        sphtp.open_client(addresses(one, other), config=CONFIG) as client,
        sphtp.open_client(addresses(other), config=CONFIG) as rival,
    ):
        await until(lambda: len(one.view.members) == len(other.view.members) == 2)
        await until(lambda: set(one.clients) == set(other.clients) == {client.id, rival.id})
        status = one.status()
        assert status["registry"]["is_reached"]
        assert status["registry"]["malformed"] == 0


async def test_a_server_that_is_killed_serves_again_within_a_second(tmp_path: Path) -> None:
    options = ("--no-announce", "--expiry", "10", "--heartbeat", "1", "--announce-deadline", "3")
    async with real_etcd(tmp_path) as etcd, AsyncExitStack() as clients:
        async with daemon("--registry", etcd.url, *options) as killed:
            first = await killed.line("started")
            address = address_of(first)
            before = await clients.enter_async_context(sphtp.open_client(address))
            os.kill(killed.process.pid, signal.SIGKILL)
            await killed.process.wait()
        ports = (first["pub"].rpartition(":")[2], first["sub"].rpartition(":")[2])
        again = ("--pub-port", ports[0], "--sub-port", ports[1])
        async with daemon("--registry", etcd.url, *options, *again) as restarted:
            # From its first line on, so that the time to import Python's modules is left out.
            begun = await restarted.line("started")
            active = await restarted.line("state changed")
            assert active["state"] == "active"
            assert seconds(active) - seconds(begun) < 1.0
            async with sphtp.open_client(address) as after:
                assert after.id != before.id


def address_of(line: dict[str, Any]) -> str:
    return f"{line['pub']},{line['sub'].rpartition(':')[2]}"


def seconds(line: dict[str, Any]) -> float:
    from datetime import datetime

    return datetime.fromisoformat(line["timestamp"]).timestamp()


async def test_a_server_that_was_frozen_says_nothing_that_is_over(tmp_path: Path) -> None:
    options = ("--no-announce", "--expiry", "2", "--heartbeat", "0.2", "--announce-deadline", "1")
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(real_etcd(tmp_path))

        async def connect(address: str) -> Client:
            """Connect a client whose ids are those of all others."""
            opened = sphtp.open_client(address, config=Config(timers=TIMERS, seed=1))
            return await stack.enter_async_context(opened)

        frozen = await stack.enter_async_context(daemon("--registry", etcd.url, *options))
        address = address_of(await frozen.line("started"))
        await frozen.line("state changed")
        client = await connect(address)
        held = client.id
        os.kill(frozen.process.pid, signal.SIGSTOP)
        try:
            await until(lambda: client.state is ClientState.SUSPENDED)
            other = await stack.enter_async_context(server_on(etcd))
            # Until the lease of the frozen one has ended, the id is nobody else's.
            rival = await connect(str(other.address))
            while rival.id != held:
                rival = await connect(str(other.address))
        finally:
            os.kill(frozen.process.pid, signal.SIGCONT)

        def has_another_id() -> bool:
            if client.state is not ClientState.ESTABLISHED:
                return False
            assert client.id != held
            return True

        await until(has_another_id)
        assert rival.state is ClientState.ESTABLISHED
        assert rival.id == held


async def test_clients_wait_for_an_etcd_that_is_gone_and_keep_their_ids(tmp_path: Path) -> None:
    async with (
        real_etcd(tmp_path) as etcd,
        server_on(etcd) as server,
        sphtp.open_client(addresses(server), config=CONFIG) as client,
    ):
        held, events = client.id, client.events()
        etcd.members[0].kill()
        await until(lambda: server.state is ServerState.DETACHED)
        async for event in events:
            if isinstance(event, Suspended):
                break
        assert not server.status()["registry"]["is_reached"]
        etcd.members[0].start()
        async for event in events:
            if isinstance(event, Established):
                break
        assert client.id == held
        assert server.state is ServerState.ACTIVE


async def test_channels_live_on_while_etcd_is_gone_and_peers_that_know_each_other_open_more(
    tmp_path: Path,
) -> None:
    async with (
        real_etcd(tmp_path) as etcd,
        server_on(etcd) as server,
        sphtp.open_client(addresses(server), config=CONFIG) as left,
        sphtp.open_client(addresses(server), config=CONFIG) as right,
    ):
        await left.wait_for_peer(lambda peer: peer.id == right.id)
        await right.wait_for_peer(lambda peer: peer.id == left.id)
        async with left.open_channel(right.id) as here, await right.accept() as there:
            etcd.members[0].kill()
            await until(lambda: left.state is right.state is ClientState.SUSPENDED)
            assert server.state is ServerState.DETACHED
            # Longer than peers are kept without a server that vouches for them.
            for number in range(2 * int(TIMERS.expiry) + 1):
                await here.send(b"%d" % number)
                assert await there.receive() == b"%d" % number
                await trio.sleep(1)
            async with right.open_channel(left.id) as later, await left.accept() as accepted:
                await later.send(b"opened without etcd")
                assert await accepted.receive() == b"opened without etcd"
            etcd.members[0].start()
            await until(lambda: left.state is right.state is ClientState.ESTABLISHED)
            await there.send(b"still here")
            assert await here.receive() == b"still here"


async def test_a_compaction_is_told_to_who_lags_and_to_nobody_else(tmp_path: Path) -> None:
    async with (
        real_etcd(tmp_path) as etcd,
        server_on(etcd) as one,
        server_on(etcd) as other,
        sphtp.open_client(addresses(one, other), config=CONFIG) as client,
    ):
        await etcd.compact()
        gateway, keyspace = Gateway(EtcdLocation.parse(etcd.url), EtcdAccess()), Keyspace("sphtp")
        with pytest.raises(GatewayError, match="compacted"):
            await gateway.request("/v3/kv/range", keyspace.range(keyspace.prefix, 2))
        async with gateway.stream("/v3/watch", keyspace.watch(2)) as documents:
            async for document in documents:
                if parse_watch_untrusted(document).is_compacted:
                    break
        gateway.close()
        async with sphtp.open_client(addresses(other), config=CONFIG) as late:
            await until(lambda: {client.id, late.id} == set(one.clients) == set(other.clients))
        await until(lambda: {client.id} == set(one.clients) == set(other.clients))


async def test_tls_and_a_user_protect_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("127.0.0.1")
    password = tmp_path / "password"
    password.write_text("of the gas\n")
    password.chmod(0o600)
    etcd = EtcdMembers(tmp_path, 1)
    (member,) = etcd.members
    try:
        member.start()
        await etcd.wait_ready()
        await etcd.ask("/v3/auth/user/add", {"name": "root", "password": "of the gas"})
        await etcd.ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
        await etcd.ask("/v3/auth/enable", {})
        member.kill()
        member.files = ["--cert-file", str(cert), "--key-file", str(key)]
        member.start()
        etcd.url = "tls+" + etcd.url
        # Time to sign in, for which etcd computes for long.
        files = {"registry_ca": authority.ca, "registry_password_file": password, "expiry": 10.0}
        async with (
            server_on(etcd, **files, registry_user="root") as server,
            sphtp.open_client(addresses(server), config=CONFIG),
        ):
            pass
        with trio.move_on_after(1) as refused:
            async with server_on(etcd, registry_ca=authority.ca):
                pass
        assert refused.cancelled_caught
    finally:
        member.kill()


async def test_three_members_bear_one_that_is_killed_and_one_that_is_frozen(
    tmp_path: Path,
) -> None:
    async with (
        real_etcd(tmp_path, 3) as etcd,
        server_on(etcd) as one,
        server_on(etcd) as other,
        sphtp.open_client(addresses(one, other), config=CONFIG) as client,
    ):
        suspended = client.events()
        first, second, _ = etcd.members
        first.kill()
        async with sphtp.open_client(addresses(one, other), config=CONFIG):
            pass
        first.start()
        await etcd.wait_ready()
        second.send(signal.SIGSTOP)
        try:
            async with sphtp.open_client(addresses(one, other), config=CONFIG):
                pass
        finally:
            second.send(signal.SIGCONT)
        # Without a quorum nobody is admitted, and nobody's id is another's.
        first.kill()
        second.kill()
        await until(lambda: {one.state, other.state} == {ServerState.DETACHED})
        async for event in suspended:
            if isinstance(event, Suspended):
                break
        first.start()
        second.start()
        async for event in suspended:
            if isinstance(event, Established):
                break
        await until(lambda: {one.state, other.state} == {ServerState.ACTIVE})
        # Who left just before the quorum was lost is on etcd until its id expires.
        await until(lambda: set(one.clients) == set(other.clients) == {client.id})
