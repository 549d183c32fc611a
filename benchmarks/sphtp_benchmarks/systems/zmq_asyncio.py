"""ZeroMQ on asyncio, one message per awaited call."""

import asyncio
from collections.abc import AsyncIterator

import zmq
import zmq.asyncio

from sphtp_benchmarks.meters import say
from sphtp_benchmarks.process_task import ProcessTask

HOST = "tcp://127.0.0.1"


def receive(part: ProcessTask) -> None:
    """Bind PULL and count."""
    asyncio.run(_receive(part))


def send(part: ProcessTask) -> None:
    """Connect PUSH and send."""
    asyncio.run(_send(part))


async def _receive(part: ProcessTask) -> None:
    socket = zmq.asyncio.Context.instance().socket(zmq.PULL)
    say(port=socket.bind_to_random_port(HOST))
    await part.tally().take_all(_messages(socket))
    await asyncio.Event().wait()


async def _messages(socket: zmq.asyncio.Socket) -> AsyncIterator[bytes]:
    while True:
        yield await socket.recv()


async def _send(part: ProcessTask) -> None:
    source = part.source()
    socket = zmq.asyncio.Context.instance().socket(zmq.PUSH)
    socket.connect(f"{HOST}:{part.port}")
    for message in source.messages():
        await socket.send(message)
    await socket.send(source.last)
    source.done()
    await asyncio.Event().wait()
