"""TCP as Trio has it: socket streams, and each message preceded by its length."""

import trio

from sphtp_benchmarks.meters import say
from sphtp_benchmarks.process_task import ProcessTask
from sphtp_benchmarks.systems.framing import Unframer, framed

HOST = "127.0.0.1"
CHUNK = 1 << 18  # bytes per read, and about as many per write


def receive(part: ProcessTask) -> None:
    """Accept a connection and count."""
    trio.run(_receive, part)


def send(part: ProcessTask) -> None:
    """Connect and send."""
    trio.run(_send, part)


def echo(_part: ProcessTask) -> None:
    """Accept a connection and send everything back."""
    trio.run(_echo)


def ping(part: ProcessTask) -> None:
    """Connect and time answers."""
    trio.run(_ping, part)


async def _receive(part: ProcessTask) -> None:
    tally, unframer = part.tally(), Unframer()
    stream = await _accept()
    while not tally.take(unframer.feed(await _some(stream))):
        pass
    await trio.sleep_forever()


async def _send(part: ProcessTask) -> None:
    source = part.source()
    stream = await trio.open_tcp_stream(HOST, part.port)
    for burst in source.bursts(max(1, CHUNK // part.size)):
        await stream.send_all(framed(burst))
    source.done()
    await trio.sleep_forever()


async def _echo() -> None:
    stream, unframer = await _accept(), Unframer()
    while True:
        await stream.send_all(framed(unframer.feed(await _some(stream))))


async def _ping(part: ProcessTask) -> None:
    stopwatch, unframer = part.stopwatch(), Unframer()
    stream = await trio.open_tcp_stream(HOST, part.port)
    for message in stopwatch.pings():
        await stream.send_all(framed([message]))
        while not (answers := unframer.feed(await _some(stream))):
            pass
        stopwatch.pong(answers[0])
    stopwatch.done()
    await trio.sleep_forever()


async def _accept() -> trio.SocketStream:
    listener = (await trio.open_tcp_listeners(0, host=HOST))[0]
    say(port=listener.socket.getsockname()[1])
    return await listener.accept()


async def _some(stream: trio.SocketStream) -> bytes:
    piece = bytes(await stream.receive_some(CHUNK))
    if not piece:
        raise EOFError("the other end has closed the connection")
    return piece
