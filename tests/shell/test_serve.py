"""Handlers of channels: a task for each, as ``trio.serve_listeners`` has one for each stream."""

from contextlib import AsyncExitStack
from functools import partial

import pytest
import trio

from sphtp import Channel
from tests.deadline import within_20_seconds
from tests.shell.nodes import open_node

pytestmark = within_20_seconds


async def echo(channel: Channel[int]) -> None:
    """Answer one message."""
    await channel.send(await channel.receive())


async def test_many_are_served_at_once_and_each_channel_ends_with_its_handler() -> None:
    async with open_node() as here, open_node() as there, trio.open_nursery() as nursery:
        await nursery.start(there.serve_channels, echo)
        async with AsyncExitStack() as stack:
            channels = [
                await stack.enter_async_context(here.open_channel(*there.address)) for _ in range(5)
            ]
            for number, channel in reversed(list(enumerate(channels))):
                await channel.send(number)
                assert [answer async for answer in channel] == [number]
        nursery.cancel_scope.cancel()


async def test_an_error_of_a_handler_ends_all_of_them() -> None:
    ended: list[str] = []

    async def handle(channel: Channel[str]) -> None:
        if await channel.receive() == "fail":
            raise ValueError("mine")
        try:
            await trio.sleep_forever()
        finally:
            ended.append("the other one")

    async with open_node() as here, open_node() as there:
        with pytest.RaisesGroup(pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="mine"))):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(there.serve_channels, handle)
                for word in ("stay", "fail"):
                    channel = await stack_of(nursery, here.open_channel(*there.address))
                    await channel.send(word)
        assert ended == ["the other one"]


async def stack_of(nursery: trio.Nursery, opening: object) -> Channel[str]:
    """Open a channel in a task of its own, until that is cancelled."""

    async def keep(task_status: trio.TaskStatus[Channel[str]]) -> None:
        async with opening as channel:  # type: ignore[attr-defined]
            task_status.started(channel)
            await trio.sleep_forever()

    opened: Channel[str] = await nursery.start(keep)
    return opened


async def test_handlers_run_on_in_a_nursery_of_the_program_when_no_more_are_accepted() -> None:
    async with open_node() as here, open_node() as there, trio.open_nursery() as handlers:
        async with trio.open_nursery() as nursery:
            serve = partial(there.serve_channels, echo, handler_nursery=handlers)
            await nursery.start(serve)
            channel = await stack_of(handlers, here.open_channel(*there.address))
            while not handlers.child_tasks - {trio.lowlevel.current_task()}:
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        await channel.send("still there")
        assert await channel.receive() == "still there"
        handlers.cancel_scope.cancel()
