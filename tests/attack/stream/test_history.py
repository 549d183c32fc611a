"""Callers at the TCP port of a source's history who have no business there, or misbehave."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import pytest
import trio

from sphtp.core.stream.late_join_wire import (
    MOST_FRAME,
    AskRequest,
    FetchRequest,
    RequestKey,
    encode_ask,
    encode_fetch,
    prefixed,
)
from sphtp.core.stream.membership import Welcome
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.sealing import SealCounters, TcpSeal, fetch_keys
from sphtp.core.stream.settings import StreamSettings
from sphtp.shell.stream_history import (
    HELLO,
    MOST_PENDING,
    PATIENCE,
    SALT_SIZE,
    HistoryConnection,
)
from tests.attack.stream.wire import TOPIC, Scene, opened, streaming
from tests.deadline import until, within_20_seconds

pytestmark = within_20_seconds

SALT = bytes(SALT_SIZE)


def welcome_of(scene: Scene) -> Welcome:
    return scene.welcome


def hello(welcome: Welcome, *, receiver: int | None = None) -> bytes:
    who = welcome.receiver if receiver is None else receiver
    return HELLO.pack(welcome.session, who, SALT)


@asynccontextmanager
async def calling(welcome: Welcome) -> AsyncIterator[trio.SocketStream]:
    async with await trio.open_tcp_stream("127.0.0.1", welcome.history) as stream:
        yield stream


async def is_hung_up(stream: trio.SocketStream) -> bool:
    """Whether the other side ends the connection, whatever it has said before."""
    try:
        while await stream.receive_some(65_536):
            pass
    except trio.BrokenResourceError:
        pass
    return True


async def greet(stream: trio.SocketStream, welcome: Welcome) -> TcpSeal:
    """What a receiver says first; what it seals with from then on."""
    await stream.send_all(hello(welcome))
    salt = bytes(await stream.receive_some(SALT_SIZE))
    outgoing, incoming = fetch_keys(welcome.receiver_key, SALT + salt)
    return TcpSeal(outgoing, incoming, SealCounters())


async def introduce(stream: trio.SocketStream, welcome: Welcome) -> HistoryConnection:
    """What a receiver does."""
    return HistoryConnection(stream, await greet(stream, welcome))


def ask(welcome: Welcome) -> bytes:
    return encode_ask(AskRequest(RequestKey(welcome.session, 0, 1)))


@pytest.mark.parametrize(
    "frame",
    [b"", b"?", bytes(100), encode_ask(AskRequest(RequestKey(1, 0, 1)))],
    ids=["empty", "short", "zeros", "clear"],
)
async def test_whoever_has_no_key_is_hung_up_on(frame: bytes) -> None:
    """Its ids are true: they can be heard on the wire."""
    async with streaming() as scene:
        async with calling(welcome_of(scene)) as stream:
            await stream.send_all(hello(welcome_of(scene)) + prefixed(frame))
            assert await is_hung_up(stream)
        await scene.source.send("all is well")
        assert await scene.stream.receive() == "all is well"


@pytest.mark.parametrize("wrong", ["session", "receiver", "noise", "too long"])
async def test_whoever_is_unknown_is_hung_up_on(wrong: str) -> None:
    async with streaming() as scene:
        welcome = welcome_of(scene)
        said = {
            "session": hello(welcome._replace(session=welcome.session ^ 1)),
            "receiver": hello(welcome, receiver=welcome.receiver ^ 1),
            "noise": Random(1).randbytes(HELLO.size),
            "too long": hello(welcome) + (MOST_FRAME + 1).to_bytes(4, "little"),
        }[wrong]
        async with calling(welcome) as stream:
            await stream.send_all(said)
            assert await is_hung_up(stream)


async def test_a_call_that_was_heard_and_is_made_again_gets_nothing() -> None:
    async with streaming() as scene:
        welcome, said = welcome_of(scene), list[bytes]()
        async with calling(welcome) as stream:
            seal = await greet(stream, welcome)
            line, frame = HistoryConnection(stream, seal), seal.seal(ask(welcome))
            said.append(prefixed(frame))
            await stream.send_all(said[0])
            assert len(await line.receive_untrusted()) == 1
            async with calling(welcome) as again:
                await again.send_all(hello(welcome) + said[0])
                assert await is_hung_up(again)
            # Nor has it ended the call that was true.
            await line.send(ask(welcome))
            assert len(await line.receive_untrusted()) == 1


async def test_of_one_receiver_the_newest_call_is_answered() -> None:
    async with streaming() as scene:
        welcome = welcome_of(scene)
        async with calling(welcome) as first, calling(welcome) as second:
            old, new = await introduce(first, welcome), await introduce(second, welcome)
            for line in (old, new):
                await line.send(ask(welcome))
                assert len(await line.receive_untrusted()) == 1
            assert await is_hung_up(first)


async def test_who_has_left_gets_no_history_even_if_it_called_before() -> None:
    async with streaming() as scene:
        welcome = welcome_of(scene)
        async with calling(welcome) as early, calling(welcome) as busy, calling(welcome) as late:
            waiting = await introduce(early, welcome)
            talking = await introduce(busy, welcome)
            await talking.send(ask(welcome))
            assert len(await talking.receive_untrusted()) == 1
            await scene.leave()
            await until(lambda: len(scene.source.receivers) == 0)
            assert await is_hung_up(busy)
            await waiting.send(ask(welcome))
            assert await is_hung_up(early)
            await late.send_all(hello(welcome))
            assert await is_hung_up(late)


async def test_a_flood_of_calls_shuts_nobody_out() -> None:
    """They say nothing: the oldest make room, and who means well is quicker than that."""
    async with streaming() as scene, AsyncExitStack() as stack, opened() as third:
        await scene.source.send_many(range(100))
        callers = [
            await stack.enter_async_context(calling(welcome_of(scene)))
            for _ in range(4 * MOST_PENDING)
        ]
        # In less time than they would have been waited for.
        with trio.fail_after(PATIENCE / 2):
            async with third.subscribe(*scene.here.address, topic=TOPIC, late_join=True) as late:
                assert [await late.receive() for _ in range(100)] == list(range(100))
            await until(lambda: sum(map(is_open, callers)) <= MOST_PENDING)


def is_open(stream: trio.SocketStream) -> bool:
    """Whether nobody has hung up at the other end."""
    with stream.socket.dup() as own:
        plain = socket.socket(fileno=os.dup(own.fileno()))
    with plain:
        try:
            return bool(plain.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except ConnectionError:
            return False


async def test_a_caller_that_does_not_read_holds_nobody_up() -> None:
    settings = StreamSettings(repair_rate=1e9, local_datagram=1400)
    async with streaming(settings=settings) as scene, opened() as third:
        welcome = welcome_of(scene)
        for number in range(20):
            await scene.source.send(bytes([number]) * 500_000)
            assert (await scene.stream.receive())[0] == number
        async with calling(welcome) as stream:
            line = await introduce(stream, welcome)
            request_key = RequestKey(welcome.session, 0, 1)
            for _ in range(20):
                await line.send(encode_fetch(FetchRequest(request_key, [Span(0, 60_000)])))
            async with third.subscribe(*scene.here.address, topic=TOPIC, late_join=2) as late:
                assert [(await late.receive())[0] for _ in range(2)] == [18, 19]
            await scene.source.send("and on")
            assert await scene.stream.receive() == "and on"
            await scene.leave()
            assert await is_hung_up(stream)
