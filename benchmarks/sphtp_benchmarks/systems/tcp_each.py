"""TCP as Trio has it, one message per call, each behind its length."""

from collections.abc import AsyncIterator

import trio

from sphtp_benchmarks.meters import say
from sphtp_benchmarks.process_task import ProcessTask
from sphtp_benchmarks.systems.framing import PREFIX, Unframer

HOST = "127.0.0.1"
CHUNK = 1 << 16  # bytes per read


def receive(part: ProcessTask) -> None:
    """Accept a connection and count."""
    trio.run(_receive, part)


def send(part: ProcessTask) -> None:
    """Connect and send."""
    trio.run(_send, part)


async def _receive(part: ProcessTask) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host=HOST)
    say(port=listener.socket.getsockname()[1])
    await part.tally().take_all(_messages(await listener.accept()))
    await trio.sleep_forever()


async def _messages(stream: trio.SocketStream) -> AsyncIterator[bytes]:
    unframer = Unframer()
    while piece := await stream.receive_some(CHUNK):
        for message in unframer.feed(piece):
            yield message


async def _send(part: ProcessTask) -> None:
    source = part.source()
    stream = await trio.open_tcp_stream(HOST, part.port)
    for message in source.messages():
        await stream.send_all(PREFIX.pack(len(message)) + message)
    await stream.send_all(PREFIX.pack(len(source.last)) + source.last)
    source.done()
    await trio.sleep_forever()
