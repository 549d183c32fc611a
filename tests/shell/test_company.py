"""What an idle channel takes of memory, with everything that programs hold of it."""

import gc
import tracemalloc
from contextlib import AsyncExitStack

import sphtp
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds

HOST = "127.0.0.1"
MOST_BYTES = 32_000
BRIEF = sphtp.config.ChannelSettings(linger=0)


async def test_an_idle_channel_takes_less_than_32_kilobytes() -> None:
    count = 12
    async with (
        sphtp.open_node(config=sphtp.Config(channel=BRIEF)) as here,
        sphtp.open_node(config=sphtp.Config(channel=BRIEF)) as there,
        AsyncExitStack() as stack,
    ):

        async def open_one() -> sphtp.Channel:
            await stack.enter_async_context(here.open_channel(HOST, there.address[1]))
            return await there.accept()

        accepted = [await open_one() for _ in range(3)]
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        accepted += [await open_one() for _ in range(count)]
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(accepted) == count + 3
        # Both ends are in this process.
        assert (after - before) / count / 2 < MOST_BYTES
        for channel in accepted:
            channel.abort()
