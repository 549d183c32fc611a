"""Measure the cost of messages at a steady pace, and the cost of waiting for an answer.

Paced: one process sends messages of 64 bytes at a fixed rate, each with the time at which it was to
leave, and another one receives them one by one. The figures are the processor time of both sides
for a message, including the sender's timer, and the age of a message when it is read. Sealed
channels and TCP on Trio, with a length in front of each message, take turns.

Waiting: one process sends a message, and the other one answers after 10 ms. The figure is the share
of a core that the waiting process uses, when the channel has shared memory.
"""

import json
import struct
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median, quantiles
from subprocess import PIPE
from typing import Any, Final

import click
import trio

import sphtp

HOST: Final = "127.0.0.1"
SIZE: Final = 64
WARM_UP: Final = 200
THINKING: Final = 0.01
"""Seconds until an answer."""

STAMP: Final = struct.Struct("<d")
LENGTH: Final = struct.Struct("<I")


class TcpChannel:
    """Messages over TCP on Trio: a length, then as many bytes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._received = bytearray()

    async def send(self, message: bytes) -> None:
        """Send a message."""
        await self._stream.send_all(LENGTH.pack(len(message)) + message)

    async def receive(self) -> bytes:
        """Wait for a message. Raises ``trio.EndOfChannel`` at the end of the stream."""
        received = self._received
        while True:
            if len(received) >= LENGTH.size:
                end = LENGTH.size + LENGTH.unpack_from(received)[0]
                if len(received) >= end:
                    message = bytes(received[LENGTH.size : end])
                    del received[:end]
                    return message
            data = await self._stream.receive_some()
            if not data:
                raise trio.EndOfChannel
            received += data


@asynccontextmanager
async def _dialled(kind: str, port: int) -> AsyncIterator[Any]:
    if kind == "tcp":
        async with await trio.open_tcp_stream(HOST, port) as stream:
            yield TcpChannel(stream)
    else:
        async with sphtp.open_channel(HOST, port) as channel:
            yield channel


@asynccontextmanager
async def _accepted(kind: str, command: list[str]) -> AsyncIterator[tuple[Any, trio.Process]]:
    """Yield the channel that another process opens, and that process."""
    if kind == "tcp":
        (listener,) = await trio.open_tcp_listeners(0, host=HOST)
        async with listener:
            port = listener.socket.getsockname()[1]
            process = await trio.lowlevel.open_process([*command, str(port)], stdout=PIPE)
            async with await listener.accept() as stream:
                yield TcpChannel(stream), process
    else:
        async with sphtp.open_node(HOST) as node:
            port = node.address[1]
            process = await trio.lowlevel.open_process([*command, str(port)], stdout=PIPE)
            async with await node.accept() as channel:
                yield channel, process


async def _speak(kind: str, port: int, messages: int, rate: float) -> None:
    """Run the other side: send at a pace, print the processor time for a message, then answer."""
    async with _dialled(kind, port) as channel:
        began = 0.0
        due = time.perf_counter()
        for number in range(WARM_UP + messages):
            if number == WARM_UP:
                began = time.process_time()
            due += 1 / rate
            await trio.sleep(max(due - time.perf_counter(), 0))
            await channel.send(STAMP.pack(due).ljust(SIZE, b"\0"))
        print((time.process_time() - began) / messages, flush=True)
        while True:
            try:
                question = await channel.receive()
            except trio.EndOfChannel:
                break
            await trio.sleep(THINKING)
            await channel.send(question)


async def _measure(kind: str, messages: int, rate: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--messages", str(messages), "--rate", str(rate)]
    command += ["--kind", kind, "--port"]
    ages = list[float]()
    async with _accepted(kind, command) as (channel, process):
        began = 0.0
        for number in range(WARM_UP + messages):
            if number == WARM_UP:
                began = time.process_time()
            message = await channel.receive()
            ages.append(time.perf_counter() - STAMP.unpack_from(message)[0])
        received = (time.process_time() - began) / messages
        sent = float(await process.stdout.receive_some())
        waits = max(messages // 20, 10)
        for _ in range(WARM_UP):
            await channel.send(bytes(SIZE))
            await channel.receive()
        began, start = time.process_time(), time.perf_counter()
        for _ in range(waits):
            await channel.send(bytes(SIZE))
            await channel.receive()
        waiting = (time.process_time() - began) / (time.perf_counter() - start)
    await process.wait()
    return {
        "send_us": sent * 1e6,
        "receive_us": received * 1e6,
        "p50_us": median(ages[WARM_UP:]) * 1e6,
        "p99_us": quantiles(ages[WARM_UP:], n=100)[-1] * 1e6,
        "waiting_percent": waiting * 100,
    }


@click.command()
@click.option("--messages", type=click.IntRange(100), default=3000, show_default=True)
@click.option("--rate", type=click.FloatRange(1), default=1000.0, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@click.option("--kind", type=click.Choice(["sphtp", "tcp"]), hidden=True)
@click.option("--port", type=int, hidden=True)
def main(
    messages: int, rate: float, rounds: int, kind: str, port: int | None, *, as_json: bool
) -> None:
    """Measure paced messages and waits, over a channel and over TCP, in turns."""
    if port is not None:
        trio.run(_speak, kind, port, messages, rate)
        return
    taken: dict[str, list[dict[str, float]]] = {"sphtp": [], "tcp": []}
    for _ in range(rounds):
        for system, figures in taken.items():
            figures.append(trio.run(_measure, system, messages, rate))
    found = {
        system: {name: round(median([it[name] for it in figures]), 1) for name in figures[0]}
        for system, figures in taken.items()
    }
    ours, tcp = found["sphtp"], found["tcp"]
    ratios = {
        "cpu/tcp": (ours["send_us"] + ours["receive_us"]) / (tcp["send_us"] + tcp["receive_us"]),
        "p50/tcp": ours["p50_us"] / tcp["p50_us"],
    }
    ratios = {name: round(ratio, 2) for name, ratio in ratios.items()}
    if as_json:
        click.echo(json.dumps({**found, "ratios": ratios}))
        return
    for system, values in found.items():
        click.echo(f"{system:6} " + "  ".join(f"{name} {it:.1f}" for name, it in values.items()))
    click.echo(f"{'ratios':6} " + "  ".join(f"{name} {it:.2f}" for name, it in ratios.items()))


if __name__ == "__main__":
    main()
