"""This library, by its public names only."""

from contextlib import AbstractAsyncContextManager

import trio

import sphtp
from sphtp.config import ChannelSettings
from sphtp.security import Security
from sphtp_benchmarks.catalog import PACKETS, SEALED
from sphtp_benchmarks.meters import say
from sphtp_benchmarks.process_task import ProcessTask

HOST = "127.0.0.1"
BURST = 1 << 20  # bytes per call of `send_many`
LIMIT = 1024  # messages per call of `receive_many`


def receive(part: ProcessTask) -> None:
    """Accept a channel and count."""
    trio.run(_receive, part)


def send(part: ProcessTask) -> None:
    """Open a channel and send."""
    trio.run(_send, part)


def echo(part: ProcessTask) -> None:
    """Accept a channel and send everything back."""
    trio.run(_echo, part)


def ping(part: ProcessTask) -> None:
    """Open a channel and time answers."""
    trio.run(_ping, part)


async def _receive(part: ProcessTask) -> None:
    tally = part.tally()
    async with sphtp.open_node(
        HOST, config=sphtp.Config(channel=_settings(part), security=_security(part))
    ) as node:
        say(port=node.address[1])
        channel = await node.accept()
        while not tally.take(await channel.receive_many(LIMIT)):
            pass
        await trio.sleep_forever()


async def _send(part: ProcessTask) -> None:
    source = part.source()
    async with _open_channel(part) as channel:
        for burst in source.bursts(max(1, min(LIMIT, BURST // part.size))):
            await channel.send_many(burst)
        source.done()
        await trio.sleep_forever()


async def _echo(part: ProcessTask) -> None:
    async with sphtp.open_node(
        HOST, config=sphtp.Config(channel=_settings(part), security=_security(part))
    ) as node:
        say(port=node.address[1])
        channel = await node.accept()
        async for message in channel:
            await channel.send(message)


async def _ping(part: ProcessTask) -> None:
    stopwatch = part.stopwatch()
    async with _open_channel(part) as channel:
        for message in stopwatch.pings():
            await channel.send(message)
            stopwatch.pong(await channel.receive())
        stopwatch.done()
        await trio.sleep_forever()


def _open_channel(part: ProcessTask) -> AbstractAsyncContextManager[sphtp.Channel]:
    settings, security = _settings(part), _security(part)
    return sphtp.open_channel(
        HOST, part.port, config=sphtp.Config(channel=settings, security=security)
    )


def _security(part: ProcessTask) -> Security | None:
    return Security() if part.system in (SEALED, PACKETS) else None


def _settings(part: ProcessTask) -> ChannelSettings:
    if part.max_datagram is not None:
        return ChannelSettings(max_datagram=part.max_datagram, shared_memory=0)
    return ChannelSettings(shared_memory=0) if part.system == PACKETS else ChannelSettings()
