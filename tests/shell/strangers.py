"""Somebody who speaks the bus by hand: as much of it as a test wants, and no more."""

from urllib.parse import urlsplit

import trio

PUB, SUB = 32, 33
"""The protocol numbers with which the two sorts of sockets greet."""


def greeting(protocol: int) -> bytes:
    """Return the eight bytes that begin a connection of the bus."""
    return b"\0SP\0" + protocol.to_bytes(2, "big") + bytes(2)


def frame(message: bytes) -> bytes:
    """Return a message as it crosses a connection."""
    return len(message).to_bytes(8, "big") + message


async def connect(url: str, source: str | None = None) -> trio.SocketStream:
    """Return a connection to an address of the bus on which nothing was said yet.

    ``source`` is the address that it comes from; on Linux every 127.x.y.z is one of this machine.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return await trio.open_tcp_stream(parts.hostname, parts.port, local_address=source)


async def greeted(url: str, protocol: int, source: str | None = None) -> trio.SocketStream:
    """Return a connection that has greeted, and was greeted."""
    stream = await connect(url, source)
    await stream.send_all(greeting(protocol))
    answer = b""
    while len(answer) < 8:
        answer += await stream.receive_some(8 - len(answer))
    return stream


async def is_ended(stream: trio.abc.ReceiveStream) -> None:
    """Wait until the other side has ended a connection."""
    try:
        while await stream.receive_some():
            pass
    except trio.BrokenResourceError:
        pass
