"""The delay of small messages by a large transfer on another lane, in packets on real sockets.

The simulated figures are in docs/reference/latency.md. Here there is no slow line, and small
messages wait for the work of both processes instead; docs/explanation/performance.md has the
results. It needs two cores for itself, because a process answers nothing while it is not running.
"""

import json
import subprocess
import sys
from contextlib import suppress
from statistics import median
from time import perf_counter
from typing import Final

import click
import trio

import sphtp
from sphtp_benchmarks.meters import percentile

HOST: Final = "127.0.0.1"
BULK, URGENT = range(2)
LANES: Final = (sphtp.config.Lane(), sphtp.config.Lane(priority=1))
TRANSFER: Final = 64_000_000
SIZE: Final = 64
INTERVAL: Final = 0.002
ALL: Final = b"all of it"


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
@click.option("--part", type=click.IntRange(1000), default=1_000_000, show_default=True)
@click.option("--max-window", type=click.IntRange(131_014), default=4_194_304, show_default=True)
@click.option("--congestion", default="cubic", show_default=True)
@click.option("--echo", is_flag=True, hidden=True)
def main(rounds: int, part: int, max_window: int, congestion: str, *, echo: bool) -> None:
    """Time round trips of small messages alone, and beside 64 MB in messages of PART bytes."""
    settings = sphtp.config.ChannelSettings(
        lanes=LANES, max_window=max_window, congestion=congestion, shared_memory=0
    )
    if echo:
        trio.run(answer, settings)
        return
    other = [sys.executable, *sys.argv, "--echo"]
    with subprocess.Popen(other, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = json.loads(process.stdout.readline())["port"]
            trio.run(ask, port, settings, rounds, part)
        finally:
            process.kill()


async def answer(settings: sphtp.config.ChannelSettings) -> None:
    """Send small messages back, and send a message when a transfer is complete."""
    async with sphtp.open_node(HOST, config=sphtp.Config(channel=settings)) as node:
        print(json.dumps({"port": node.address[1]}), flush=True)
        channel = await node.accept()
        received = 0
        while True:
            for message in await channel.receive_many():
                if len(message) == SIZE:
                    await channel.send(message, lane=URGENT)
                    continue
                received += len(message)
                if received >= TRANSFER:
                    received = 0
                    await channel.send(ALL, lane=URGENT)


async def ask(port: int, settings: sphtp.config.ChannelSettings, rounds: int, part: int) -> None:
    """Time round trips alone and beside transfers, and print the figures."""
    async with sphtp.open_channel(HOST, port, config=sphtp.Config(channel=settings)) as channel:
        clock = Clock(channel)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(clock.listen)
            await clock.transfer(part)  # until datagrams are as large as they get
            nursery.start_soon(clock.tick)
            await trio.sleep(0.3)
            alone, beside, took = list[float](), list[float](), list[float]()
            for _ in range(rounds):
                clock.times.clear()
                await trio.sleep(0.3)
                alone += clock.times
                clock.times.clear()
                took.append(await clock.transfer(part))
                beside += clock.times
            show(alone, beside, median(took))
            nursery.cancel_scope.cancel()
        channel.abort()


class Clock:
    """A sender of small messages at fixed times, even without answers, which times the answers."""

    def __init__(self, channel: sphtp.Channel) -> None:
        self.times: list[float] = []
        self._channel = channel
        self._sent: dict[int, float] = {}
        self._all = trio.Event()

    async def tick(self) -> None:
        """Send a message at each interval."""
        due, number = trio.current_time(), 0
        while True:
            self._sent[number] = perf_counter()
            await self._channel.send(number.to_bytes(SIZE, "little"), lane=URGENT)
            number, due = number + 1, due + INTERVAL
            await trio.sleep_until(due)

    async def listen(self) -> None:
        """Receive answers, and record their times."""
        with suppress(trio.ClosedResourceError):
            async for message in self._channel:
                if message == ALL:
                    self._all.set()
                    continue
                number = int.from_bytes(message, "little")
                self.times.append(perf_counter() - self._sent.pop(number))

    async def transfer(self, part: int) -> float:
        """Send a large transfer, and return the seconds that it took."""
        self._all, began, left = trio.Event(), perf_counter(), TRANSFER
        while left > 0:
            await self._channel.send(bytes(min(part, left)), lane=BULK)
            left -= part
        await self._all.wait()
        return perf_counter() - began


def show(alone: list[float], beside: list[float], took: float) -> None:
    """Print the figures."""
    for name, times in ("alone", sorted(alone)), ("beside a transfer", sorted(beside)):
        p50, p99 = (percentile(times, share) * 1e6 for share in (0.5, 0.99))
        print(f"{name}: round trip p50 {p50:,.0f} us, p99 {p99:,.0f} us")
    print(f"times as long: {median(beside) / median(alone):.1f}")
    print(f"the transfer: {took * 1e3:,.0f} ms, {TRANSFER / took / 1e6:,.0f} MB/s")


if __name__ == "__main__":
    main()
