"""One of the two processes: ``python -m sphtp_benchmarks.company.side TASK``."""

import gc
import os
import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

import trio

import sphtp
from sphtp_benchmarks.company.task import CompanySide, CompanyTask
from sphtp_benchmarks.meters import end_with_stdin, say

HOST: Final = "127.0.0.1"
BURST: Final = (bytes(64),) * 1024
END: Final = b"end"


def main() -> None:
    """Perform the task in the argument."""
    threading.Thread(target=end_with_stdin, daemon=True).start()
    task = CompanyTask.read(sys.argv[1])
    trio.run({CompanySide.HOST: be_host, CompanySide.GUEST: be_guest}[CompanySide(task.side)], task)


async def be_guest(task: CompanyTask) -> None:
    """Accept every channel; the first one is the busy one."""
    settings = sphtp.config.ChannelSettings(backlog=task.channels + 1)
    async with (
        sphtp.open_node(HOST, config=sphtp.Config(channel=settings)) as node,
        trio.open_nursery() as nursery,
    ):
        say(port=node.address[1])
        nursery.start_soon(count, await node.accept())
        idle = list[sphtp.Channel]()
        while True:
            idle.append(await node.accept())


async def count(channel: sphtp.Channel) -> None:
    """Answer each ``END`` with the number of messages up to it since the last one, and the
    processor time of this process.
    """
    received = 0
    while True:
        messages = await channel.receive_many(len(BURST))
        received += len(messages)
        if messages[-1] == END:
            await channel.send([received, process_time()])
            received = 0


async def be_host(task: CompanyTask) -> None:
    """Measure alone, open the idle channels, measure again, and report."""
    async with sphtp.open_node(HOST) as node, node.open_channel(HOST, task.port) as busy:
        alone = await rate(busy, task.seconds)
        before = await settled_memory(task)
        async with company(node, task):
            after = await settled_memory(task)
            idle = await idle_share(busy, task.interval)
            beside = await rate(busy, task.seconds)
            bytes_per_channel = (after - before) / task.channels
            say(bytes=bytes_per_channel, alone=alone, beside=beside, idle=idle)
            await trio.sleep_forever()


@asynccontextmanager
async def company(node: sphtp.Node, task: CompanyTask) -> AsyncIterator[None]:
    """Open idle channels for the length of the block."""
    async with AsyncExitStack() as stack:
        for _ in range(task.channels):
            await stack.enter_async_context(node.open_channel(HOST, task.port))
        yield


async def idle_share(channel: sphtp.Channel, seconds: float) -> float:
    """Return the number of processors that both processes use together while nothing is sent."""
    await trio.sleep(1 / 8)  # for the last acknowledgements of the busy channel
    began = perf_counter()
    used = process_time() + (await _end(channel))[1]
    await trio.sleep(seconds)
    used = process_time() + (await _end(channel))[1] - used
    return used / (perf_counter() - began)


async def rate(channel: sphtp.Channel, seconds: float) -> float:
    """Return the number of messages of 64 bytes that arrive per second, after a warm-up."""
    await _send(channel, seconds / 4)
    began = perf_counter()
    return await _send(channel, seconds) / (perf_counter() - began)


async def _send(channel: sphtp.Channel, seconds: float) -> int:
    until = perf_counter() + seconds
    while perf_counter() < until:
        await channel.send_many(BURST)
    return (await _end(channel))[0]


async def _end(channel: sphtp.Channel) -> tuple[int, float]:
    """Return the number of messages since the last ``END``, and the other's processor time."""
    await channel.send(END)
    received, used = await channel.receive()
    return received, used


async def settled_memory(task: CompanyTask) -> int:
    """Return the bytes in use once everything is quiet."""
    await trio.sleep(2 * task.interval)
    gc.collect()
    return _traced() if task.traced else _resident()


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _traced() -> int:
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    return tracemalloc.get_traced_memory()[0]


if __name__ == "__main__":
    main()
