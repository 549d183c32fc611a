"""Those who join a source by the dozen, say nonsense, say nothing, or come and go."""

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from math import inf
from typing import Any

import pytest
import trio

from sphtp import Channel, Node, RefusedError
from sphtp.config import StreamSettings
from sphtp.core.stream.membership import STREAMS, Join, Welcome, encode_member
from sphtp.core.stream.wire import Window
from sphtp.messages import PlainMessages
from sphtp.security import Security
from sphtp.shell import stream_admission
from sphtp.shell.stream_admission import MOST_PENDING, receive_message_untrusted, send_message
from tests.attack.stream.wire import SEALED, TOPIC, Scene, opened, streaming
from tests.deadline import until, within_20_seconds
from tests.shell.streams.joined import overheard

pytestmark = within_20_seconds


async def knock(stack: AsyncExitStack, node: Node, at: Node) -> Channel:
    """Open a channel of the kind by which receivers join."""
    return await stack.enter_async_context(node.open_channel(*at.address))


class Membership(PlainMessages):
    """The messages of somebody who says that his are those by which receivers join."""

    def describe(self) -> list[str]:
        return [STREAMS]


def opened_mallory(security: Security | None = SEALED) -> AbstractAsyncContextManager[Node]:
    return opened(security, messages=Membership())


async def works(scene: Any, *values: Any) -> None:
    """The source and its receiver notice nothing."""
    for value in values or ("well",):
        await scene.source.send(value)
        assert await scene.stream.receive() == value


def is_open(channel: Channel) -> bool:
    """Whether the other side has not ended it yet."""
    try:
        channel.receive_nowait()
    except trio.WouldBlock:
        return True
    except (trio.EndOfChannel, trio.BrokenResourceError):
        return False
    raise AssertionError("it says something")


@pytest.mark.soak
async def test_a_flood_of_those_who_say_nothing_is_bounded_and_shuts_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nobody is dropped for having waited: only those who come later can end a channel.
    monkeypatch.setattr(stream_admission, "PATIENCE", inf)
    async with (
        streaming(security=None) as scene,
        opened_mallory(None) as mallory,
        AsyncExitStack() as stack,
    ):
        crowd = [await knock(stack, mallory, scene.here) for _ in range(3 * MOST_PENDING)]
        await until(lambda: sum(map(is_open, crowd)) <= MOST_PENDING)
        async with scene.there.subscribe(*scene.here.address, topic=TOPIC) as other:
            await works(scene)
            assert await other.receive() == "well"
        assert len(scene.source.receivers) <= 2
        for channel in crowd:
            channel.abort()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0",
        b"\xff" * 100,
        encode_member(Join(TOPIC))[:-1],
        encode_member(Join(TOPIC)) + b"?",
        b"\x01\x01" + encode_member(Join(TOPIC))[2:],
        encode_member(Welcome(1, 2, 0, Window(5, 3), 0)),
        "text",
        {"topic": TOPIC},
    ],
    ids=["nothing", "zero", "noise", "cut", "long", "version", "welcome", "text", "table"],
)
async def test_whoever_says_nonsense_is_hung_up_on(said: Any) -> None:
    async with streaming() as scene, opened_mallory() as mallory, AsyncExitStack() as stack:
        channel = await knock(stack, mallory, scene.here)
        await channel.send(said)
        with pytest.raises((trio.EndOfChannel, trio.BrokenResourceError)):
            await receive_message_untrusted(channel)
        await works(scene)
        assert len(scene.source.receivers) == 1


async def test_who_is_in_and_then_says_nonsense_is_out() -> None:
    async with streaming() as scene, opened_mallory() as mallory, AsyncExitStack() as stack:
        channel = await knock(stack, mallory, scene.here)
        await send_message(channel, Join(TOPIC))
        assert isinstance(await receive_message_untrusted(channel), Welcome)
        await until(lambda: len(scene.source.receivers) == 2)
        await channel.send(b"\xff")
        await until(lambda: len(scene.source.receivers) == 1)
        await works(scene)


async def test_no_more_are_let_in_than_there_may_be_and_those_who_are_stay() -> None:
    settings = StreamSettings(max_receivers=4)
    async with (
        streaming(settings=settings) as scene,
        opened_mallory() as mallory,
        AsyncExitStack() as stack,
    ):
        crowd = [await knock(stack, mallory, scene.here) for _ in range(20)]
        answers = list[Any]()
        for channel in crowd:
            await send_message(channel, Join(TOPIC))
            answers.append(await receive_message_untrusted(channel))
        assert sum(isinstance(it, Welcome) for it in answers) == 3
        with pytest.raises(RefusedError, match="all receivers"):
            async with scene.there.subscribe(*scene.here.address, topic=TOPIC):
                pass
        await works(scene)
        for channel in crowd:
            channel.abort()
        await until(lambda: len(scene.source.receivers) == 1)
        async with scene.there.subscribe(*scene.here.address, topic=TOPIC) as other:
            await works(scene)
            assert await other.receive() == "well"


async def test_those_who_come_and_go_all_the_time_cost_the_others_no_message() -> None:
    """Each time one leaves, the others get another key."""
    async with streaming() as scene, opened_mallory() as mallory:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(works, scene, *range(120))
            for _ in range(10):
                async with AsyncExitStack() as stack:
                    channel = await knock(stack, mallory, scene.here)
                    await send_message(channel, Join(TOPIC))
                    assert isinstance(await receive_message_untrusted(channel), Welcome)
                    channel.abort()
        await until(lambda: len(scene.source.receivers) == 1)
        await works(scene)
        # Those who leave at about the same time are answered with one key.
        assert 0 < await key_number(scene) <= 10 + 1


async def key_number(scene: Scene) -> int:
    """The number of the key that the source seals with, which is not its first."""
    with overheard() as joined:
        while True:
            async with scene.there.subscribe(*scene.here.address, topic=TOPIC):
                key = joined[-1].welcome.key
                if key is not None and key.number:
                    return key.number


async def test_those_who_join_and_report_nothing_hold_a_source_up_for_its_patience() -> None:
    settings = StreamSettings(flow_window=65_536, patience=0.2)
    async with (
        streaming(settings=settings) as scene,
        opened_mallory() as mallory,
        AsyncExitStack() as stack,
    ):
        for _ in range(8):
            channel = await knock(stack, mallory, scene.here)
            await send_message(channel, Join(TOPIC))
            assert isinstance(await receive_message_untrusted(channel), Welcome)
        # Three windows: were each message held up, they would outlast this test.
        await works(scene, *(bytes([n % 256]) * 1000 for n in range(200)))
        assert scene.source.statistics().left_behind >= 8
