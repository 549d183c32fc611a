"""One of the processes: ``python -m sphtp_benchmarks.flood.side TASK``."""

import gc
import os
import sys
import threading
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Final

import trio

import sphtp
from sphtp_benchmarks.flood.junk import flood
from sphtp_benchmarks.flood.task import FloodSide, FloodTask
from sphtp_benchmarks.meters import end_with_stdin, say

HOST: Final = "127.0.0.1"
REPORT: Final = "report"
PAUSE: Final = 0.002
"""Seconds between an answer and the next message, so that the channel is mostly idle."""


def main() -> None:
    """Perform the task in the argument."""
    threading.Thread(target=end_with_stdin, daemon=True).start()
    task = FloodTask.read(sys.argv[1])
    {FloodSide.VICTIM: be_victim, FloodSide.FRIEND: be_friend, FloodSide.FLOOD: be_flood}[
        FloodSide(task.side)
    ](task)


def be_flood(task: FloodTask) -> None:
    """Send junk until the end."""
    flood(HOST, task.port, task.rate, task.seed)


def be_victim(task: FloodTask) -> None:
    """Answer every message, and report the figures of this process on request."""
    trio.run(_answer, task)


def be_friend(task: FloodTask) -> None:
    """Time round trips in quiet, report the end of that, and time them again under the flood."""
    trio.run(_compare, task)


async def _answer(_: FloodTask) -> None:
    async with sphtp.open_node(HOST) as node:
        say(port=node.address[1])
        channel = await node.accept()
        async for message in channel:
            await channel.send(figures(node, channel) if message == REPORT else message)


async def _compare(task: FloodTask) -> None:
    async with sphtp.open_channel(HOST, task.port) as channel:
        await ask(channel, task.seconds / 4)
        quiet = await ask(channel, task.seconds)
        before = await report(channel)
        say(quiet=1)
        await _flooded(channel, before["junk"] + task.rate / 10)
        begins, began = await report(channel), perf_counter()
        loud, after = await ask(channel, task.seconds), await report(channel)
        # On a busy machine the flood is late; without it there is nothing to measure.
        while after["junk"] - begins["junk"] < task.rate * task.seconds / 2:
            loud += await ask(channel, task.seconds / 4)
            after = await report(channel)
        seconds = perf_counter() - began
        say(
            quiet_p50=median(quiet),
            quiet_p99=quantiles(quiet, n=100)[-1],
            loud_p50=median(loud),
            loud_p99=quantiles(loud, n=100)[-1],
            questions=len(loud),
            rate=(after["junk"] - begins["junk"]) / seconds,
            growth=after["bytes"] - before["bytes"],
        )
        await trio.sleep_forever()


async def ask(channel: sphtp.Channel, seconds: float) -> list[float]:
    """Send numbers and wait for each to come back; return the seconds that each took."""
    took, number, until = [], 0, perf_counter() + seconds
    while perf_counter() < until:
        began = perf_counter()
        await channel.send(number)
        answer = await channel.receive()
        took.append(perf_counter() - began)
        if answer != number:
            raise AssertionError(f"{answer} came in place of {number}")
        number += 1
        await trio.sleep(PAUSE)
    return took


async def report(channel: sphtp.Channel) -> dict[str, int]:
    """Return the figures of the victim."""
    await channel.send(REPORT)
    figures: dict[str, int] = await channel.receive()
    return figures


async def _flooded(channel: sphtp.Channel, junk: float) -> None:
    """Wait until the victim has received this many junk datagrams."""
    while (await report(channel))["junk"] < junk:
        pass


def figures(node: sphtp.Node, channel: sphtp.Channel) -> dict[str, int]:
    """Return the datagrams that were not the channel's, and the memory in use, in bytes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    junk = node.statistics().received - channel.statistics().received
    return {"junk": junk, "bytes": pages * os.sysconf("SC_PAGE_SIZE")}


if __name__ == "__main__":
    main()
