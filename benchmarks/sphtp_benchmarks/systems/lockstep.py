"""Workers with a channel to each other one: ordinary calls, an array per call."""

from contextlib import AsyncExitStack

import trio

import sphtp
from sphtp_benchmarks.lockstep.catalog import CLEAR
from sphtp_benchmarks.lockstep.steps import Steps, meet
from sphtp_benchmarks.process_task import ProcessTask

HOST = "127.0.0.1"


def work(part: ProcessTask) -> None:
    """Open channels, and keep step."""
    trio.run(_work, part)


async def _work(part: ProcessTask) -> None:
    security = None if part.system == CLEAR else sphtp.security.Security()
    async with (
        sphtp.open_node(HOST, config=sphtp.Config(security=security)) as node,
        AsyncExitStack() as stack,
    ):
        awaited = part.workers - part.number - 1
        ports = await trio.to_thread.run_sync(meet, part, [node.address[1]] * awaited)
        channels = [
            await stack.enter_async_context(node.open_channel(HOST, port)) for port in ports
        ]
        channels += [await node.accept() for _ in range(awaited)]
        steps = Steps(part)
        for array in steps:
            for channel in channels:
                await channel.send(array)
            for channel in channels:
                steps.take(await channel.receive())
        steps.done()
        await trio.sleep_forever()
