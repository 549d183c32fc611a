"""Connections that never prove themselves: each has a deadline, and none takes another's place."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from sphtp import Config, ServerAddress
from sphtp.config import ControlTimers, ServerLimits
from sphtp.core.control.client_messages import StatusRequest
from sphtp.core.secure.vouch import Voucher
from sphtp.security import ClusterSecurity, Tls
from sphtp.shell.client import open_client
from sphtp.shell.server import Server, open_server
from tests.certificates import Authority
from tests.deadline import within_20_seconds
from tests.interpreters import ForkedProcess
from tests.shell.strangers import PUB, SUB, connect, frame, greeted, greeting, is_ended

pytestmark = within_20_seconds

HOST = "127.0.0.1"
TIMERS = ControlTimers(heartbeat=0.1, expiry=2.0, announce_deadline=0.5, backoff=0.2)
SECRET = bytes(range(32))
PATIENCE = 0.5
MOST = 16
CROWD = 48
"""Connections of strangers at each socket: more than may shake hands at a time."""

HALF_TLS = b"\x16\x03\x01\x02\x00"
"""The head of a record of TLS, and nothing of the 512 bytes that it announces."""

Opening = Callable[[str, int], Awaitable[trio.SocketStream]]


async def says_nothing(url: str, _: int) -> trio.SocketStream:
    return await connect(url)


async def begins_tls(url: str, _: int) -> trio.SocketStream:
    stream = await connect(url)
    await stream.send_all(HALF_TLS)
    return stream


async def begins_to_greet(url: str, protocol: int) -> trio.SocketStream:
    stream = await connect(url)
    await stream.send_all(greeting(protocol)[:4])
    return stream


async def knows_no_secret(url: str, protocol: int) -> trio.SocketStream:
    # Whoever only listens is believed for the sake of who speaks from the same address.
    return await greeted(url, protocol, source="127.0.0.2")


@asynccontextmanager
async def server(tls: Tls | None, secret: bytes | None, **limits: Any) -> AsyncIterator[Server]:
    scheme = "tcp" if tls is None else "tls+tcp"
    async with open_server(
        ServerAddress.parse(f"{scheme}://{HOST}:0"),
        new_cluster=True,
        config=Config(
            timers=TIMERS,
            server_limits=ServerLimits(**limits),
            cluster=ClusterSecurity(tls=tls, secret=secret),
        ),
    ) as opened:
        yield opened


def mutual(folder: Path) -> Tls:
    authority = Authority(folder)
    return Tls(authority.ca, *authority.issue(HOST), mutual=True)


@pytest.mark.parametrize(
    ("opening", "tls", "secret"),
    [
        (says_nothing, False, None),
        (says_nothing, True, None),
        (begins_tls, True, None),
        (begins_to_greet, False, None),
        (knows_no_secret, False, SECRET),
    ],
    ids=["silent", "silent in TLS", "half TLS", "half a greeting", "no secret"],
)
async def test_who_does_not_prove_itself_is_ended_and_shuts_nobody_out(
    opening: Opening,
    tls: bool,
    secret: bytes | None,
    tmp_path: Path,
) -> None:
    """What must hold: clients get in beside more strangers than have room, and those are ended."""
    files = mutual(tmp_path) if tls else None
    limits = {"max_handshakes": MOST, "handshake_timeout": PATIENCE}
    async with server(files, secret, **limits) as opened, AsyncExitStack() as stack:
        strangers = []
        for url, protocol in ((opened.address.pub, SUB), (opened.address.sub, PUB)) * CROWD:
            stranger = await stack.enter_async_context(await opening(url, protocol))
            strangers.append(stranger)
        async with open_client(
            [opened.address],
            config=Config(timers=TIMERS, cluster=ClusterSecurity(secret=secret, tls=files)),
        ) as client:
            assert client.id in opened.clients
            for stranger in strangers:
                await is_ended(stranger)
            # On a slow machine more of them have had their time before there is no room for them.
            counters = opened.statistics().counters
            assert counters["over_max_handshakes"] >= 1
            assert counters["over_handshake_timeout"] >= 1
            ended = counters["over_max_handshakes"] + counters["over_handshake_timeout"]
            assert ended == 2 * CROWD
            # Nothing but the client itself is left, and it stays.
            await trio.sleep(PATIENCE)
            assert opened.statistics().publishing_to == opened.statistics().receiving_from == 1


async def test_what_a_server_says_proves_nothing_when_it_is_played_to_it() -> None:
    async with server(None, SECRET, handshake_timeout=PATIENCE) as opened:
        async with (
            await greeted(opened.address.pub, SUB, source="127.0.0.2") as listener,
            await greeted(opened.address.sub, PUB, source="127.0.0.2") as speaker,
        ):
            await speaker.send_all(await next_frame(listener))
            await is_ended(speaker)
            await is_ended(listener)
        counters = opened.statistics().counters
        assert counters["replayed"] == 1
        assert counters["over_handshake_timeout"] == 2


async def test_a_copy_excuses_who_speaks_from_the_same_place_and_nobody_else() -> None:
    """What must hold: who dials a server under two of its names stays at both."""
    said = frame(Voucher(SECRET, 7).vouch(StatusRequest(4711).encode()))
    async with (
        server(None, SECRET, handshake_timeout=PATIENCE) as opened,
        await greeted(opened.address.sub, PUB) as first,
        await greeted(opened.address.sub, PUB) as second,
        await greeted(opened.address.sub, PUB, source="127.0.0.2") as stranger,
    ):
        await first.send_all(said)
        while opened.status()["counters"].get("replayed", 0) < 2:
            await second.send_all(said)
            await stranger.send_all(said)
            await trio.sleep(PATIENCE / 20)
        await is_ended(stranger)
        await trio.sleep(PATIENCE)
        assert opened.statistics().receiving_from == 2


async def next_frame(stream: trio.SocketStream) -> bytes:
    """Read one message from a connection, with its length before it."""
    data = b""
    while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "big"):
        data += await stream.receive_some()
    return data[: 8 + int.from_bytes(data[:8], "big")]


async def test_a_message_that_is_begun_has_to_be_ended() -> None:
    async with server(None, None, handshake_timeout=PATIENCE) as opened:
        async with await greeted(opened.address.sub, PUB) as stranger:
            await stranger.send_all((60_000).to_bytes(8, "big") + bytes(1000))
            await is_ended(stranger)
        assert opened.statistics().counters["over_handshake_timeout"] == 1


async def test_who_ends_each_message_in_time_stays_though_it_has_always_begun_another() -> None:
    message = frame(bytes(1000))
    async with server(None, None, handshake_timeout=PATIENCE) as opened:
        async with await greeted(opened.address.sub, PUB) as busy:
            await busy.send_all(message[:500])
            for _ in range(10):
                await trio.sleep(PATIENCE / 5)
                await busy.send_all(message[500:] + message[:500])
            assert opened.statistics().receiving_from == 1
        assert "over_handshake_timeout" not in opened.statistics().counters


async def test_what_is_no_greeting_is_counted() -> None:
    async with server(None, None) as opened:
        for url, said in (
            (opened.address.pub, greeting(PUB)),
            (opened.address.sub, greeting(SUB)),
            (opened.address.sub, b"GET / HTTP/1.1\r\n\r\n"),
        ):
            async with await connect(url) as stranger:
                await stranger.send_all(said)
                await is_ended(stranger)
        assert opened.statistics().counters["handshakes_failed"] == 3


@asynccontextmanager
async def daemon(descriptors: int) -> AsyncIterator[tuple[ServerAddress, trio.abc.ReceiveStream]]:
    """A daemon that may have so many descriptors; its address, and its log from there on."""
    program = (
        "import resource, runpy\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (64, {descriptors}))\n"
        "runpy.run_module('sphtp', run_name='__main__', alter_sys=True)\n"
    )
    options = ["--new", "--log-format", "json", "--log-interval", "0.2"]
    ports = ["--pub-port", "0", "--sub-port", "0"]
    async with aclosing(ForkedProcess(program, ["server", *options, *ports])) as process:
        log = b""
        while b"started" not in log or not log.endswith(b"\n"):
            log += await process.stdout.receive_some()
        lines = [json.loads(line) for line in log.splitlines()]
        assert lines[0]["event"].startswith("few descriptors")
        assert lines[0]["limit"] == descriptors
        started = next(line for line in lines if line["event"] == "started")
        yield ServerAddress(started["pub"], started["sub"]), process.stdout


async def test_running_out_of_descriptors_is_logged_and_who_is_in_stays() -> None:
    """What must hold: a newcomer takes the place of who has not greeted, and of nobody else.

    The limit of the daemon is 128, of which 64 were in force when it started.
    """
    async with (
        daemon(descriptors=128) as (address, log),
        open_client([address]) as first,
    ):
        async with AsyncExitStack() as stack:
            for url, protocol in ((address.pub, SUB), (address.sub, PUB)) * 100:
                stream = await stack.enter_async_context(await connect(url))
                await stream.send_all(greeting(protocol)[:4])
            told = await lines_until(log, b"out of descriptors")
            async with open_client([address]) as second:
                assert (await second.wait_for_peer(first.id)).id == first.id
            for url, protocol in ((address.pub, SUB), (address.sub, PUB)) * 100:
                stream = await stack.enter_async_context(await connect(url))
                await stream.send_all(greeting(protocol))
            told += await lines_until(log, b"out of descriptors")
            # All places are taken by those who have proved what there is to prove.
            await is_ended(stream)
        lines = [json.loads(line) for line in told.splitlines() if line.endswith(b"}")]
        of_first = [line["event"] for line in lines if line.get("client") == first.id]
        assert of_first == ["client entered"], "nothing happened to who was in"


async def lines_until(log: trio.abc.ReceiveStream, words: bytes) -> bytes:
    """Read whole chunks of a log until they have these words; return what was read."""
    text = b""
    while words not in text:
        text += await log.receive_some()
    return text
