"""Bare UDP on Trio: the cost of a round trip without reliability."""

import trio

from sphtp_benchmarks.meters import say
from sphtp_benchmarks.process_task import ProcessTask

HOST = "127.0.0.1"
LARGEST = 65_535


def echo(_part: ProcessTask) -> None:
    """Send every datagram back."""
    trio.run(_echo)


def ping(part: ProcessTask) -> None:
    """Time answers."""
    trio.run(_ping, part)


async def _echo() -> None:
    socket = await _bound()
    say(port=socket.getsockname()[1])
    while True:
        datagram, address = await socket.recvfrom(LARGEST)
        await socket.sendto(datagram, address)


async def _ping(part: ProcessTask) -> None:
    stopwatch = part.stopwatch()
    socket = await _bound()
    address = (HOST, part.port)
    for message in stopwatch.pings():
        await socket.sendto(message, address)
        answer, _ = await socket.recvfrom(LARGEST)
        stopwatch.pong(answer)
    stopwatch.done()
    await trio.sleep_forever()


async def _bound() -> trio.socket.SocketType:
    socket = trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM)
    await socket.bind((HOST, 0))
    return socket
