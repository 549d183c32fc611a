"""Those who join a source by the dozen, say nonsense, say nothing, or come and go."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from sphtp.core.stream.membership import STREAMS, Join, Welcome, encode_member
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.wire import Window
from sphtp.errors import RefusedError
from sphtp.shell.channel import Channel
from sphtp.shell.node import Node
from sphtp.shell.streams.admission import (
    MOST_PENDING,
    PATIENCE,
    receive_message_untrusted,
    send_message,
)
from tests.attack.stream.wire import TOPIC, opened, streaming
from tests.deadline import until, within_20_seconds

pytestmark = within_20_seconds


async def knock(stack: AsyncExitStack, node: Node, at: Node) -> Channel:
    """Open a channel of the kind by which receivers join."""
    return await stack.enter_async_context(node._open([at.address], 0, None, STREAMS))


async def works(scene: Any, *values: Any) -> None:
    """The source and its receiver notice nothing."""
    for value in values or ("well",):
        await scene.source.send(value)
        assert await scene.stream.receive() == value


def count_channels(node: Node) -> int:
    return len(node._endpoint.connections)


@pytest.mark.soak
async def test_a_flood_of_those_who_say_nothing_is_bounded_and_shuts_nobody_out() -> None:
    async with (
        streaming(security=None) as scene,
        opened(None) as mallory,
        AsyncExitStack() as stack,
    ):
        # In less time than they would have been waited for.
        with trio.fail_after(PATIENCE / 2):
            for _ in range(3 * MOST_PENDING):
                await knock(stack, mallory, scene.here)
            await until(lambda: count_channels(scene.here) <= MOST_PENDING + 1)
        async with scene.there.subscribe(*scene.here.address, topic=TOPIC) as other:
            await works(scene)
            assert await other.receive() == "well"
        assert len(scene.source.receivers) <= 2
        mallory._close()


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
    async with streaming() as scene, opened() as mallory, AsyncExitStack() as stack:
        channel = await knock(stack, mallory, scene.here)
        await channel.send(said)
        with pytest.raises((trio.EndOfChannel, trio.BrokenResourceError)):
            await receive_message_untrusted(channel)
        await works(scene)
        assert len(scene.source.receivers) == 1


async def test_who_is_in_and_then_says_nonsense_is_out() -> None:
    async with streaming() as scene, opened() as mallory, AsyncExitStack() as stack:
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
        opened() as mallory,
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
    async with streaming() as scene, opened() as mallory:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(works, scene, *range(300))
            for _ in range(10):
                async with AsyncExitStack() as stack:
                    channel = await knock(stack, mallory, scene.here)
                    await send_message(channel, Join(TOPIC))
                    assert isinstance(await receive_message_untrusted(channel), Welcome)
                    channel.abort()
        await until(lambda: len(scene.source.receivers) == 1)
        await works(scene)
        key = scene.source._hosted._seal.key
        assert key is not None
        # Those who leave at about the same time are answered with one key.
        assert 0 < key.number <= 10


async def test_those_who_join_and_report_nothing_hold_a_source_up_for_its_patience() -> None:
    settings = StreamSettings(flow_window=65_536, patience=0.2)
    async with (
        streaming(settings=settings) as scene,
        opened() as mallory,
        AsyncExitStack() as stack,
    ):
        for _ in range(8):
            channel = await knock(stack, mallory, scene.here)
            await send_message(channel, Join(TOPIC))
            assert isinstance(await receive_message_untrusted(channel), Welcome)
        # Three windows: were each message held up, they would outlast this test.
        await works(scene, *(bytes([n % 256]) * 1000 for n in range(200)))
        assert scene.source.statistics().left_behind >= 8
