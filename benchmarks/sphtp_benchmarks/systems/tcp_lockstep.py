"""Workers with a TCP connection to each other one, as Trio has it: arrays behind a length."""

from functools import partial
from typing import Final

import numpy
import trio

from sphtp_benchmarks.lockstep.steps import DTYPE, Array, Steps, meet
from sphtp_benchmarks.process_task import ProcessTask
from sphtp_benchmarks.systems.framing import PREFIX

HOST: Final = "127.0.0.1"
FITS: Final = 16_384
"""Bytes of an array that any socket buffer takes, even if the other end does not read."""


def work(part: ProcessTask) -> None:
    """Connect, and keep step."""
    trio.run(_work, part)


async def _work(part: ProcessTask) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host=HOST)
    awaited = part.workers - part.number - 1
    mine = listener.socket.getsockname()[1]
    ports = await trio.to_thread.run_sync(meet, part, [mine] * awaited)
    streams = [await trio.open_tcp_stream(HOST, port) for port in ports]
    streams += [await listener.accept() for _ in range(awaited)]
    steps = Steps(part)
    exchange = partial(_exchange_small if part.size <= FITS else _exchange_large, streams, steps)
    for array in steps:
        await exchange(array)
    steps.done()
    await trio.sleep_forever()


async def _exchange_small(streams: list[trio.SocketStream], steps: Steps, array: Array) -> None:
    for stream in streams:
        await _send(stream, array)
    for stream in streams:
        steps.take(await _receive(stream))


async def _exchange_large(streams: list[trio.SocketStream], steps: Steps, array: Array) -> None:
    async with trio.open_nursery() as nursery:
        for stream in streams:
            nursery.start_soon(_send, stream, array)
        for stream in streams:
            steps.take(await _receive(stream))


async def _send(stream: trio.SocketStream, array: Array) -> None:
    await stream.send_all(b"".join((PREFIX.pack(array.nbytes), array.data)))


async def _receive(stream: trio.SocketStream) -> Array:
    (size,) = PREFIX.unpack(await _exactly(stream, PREFIX.size))
    return numpy.frombuffer(await _exactly(stream, size), DTYPE)


async def _exactly(stream: trio.SocketStream, size: int) -> bytes | bytearray:
    piece = await stream.receive_some(size)
    if len(piece) == size:
        return piece
    buffer = bytearray(piece)
    while piece and len(buffer) < size:
        piece = await stream.receive_some(size - len(buffer))
        buffer += piece
    if not piece:
        raise EOFError("the other end has closed the connection")
    return buffer
