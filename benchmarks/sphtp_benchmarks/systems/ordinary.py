"""Sealed channels of this library, one message per call."""

from collections.abc import Iterator

import trio

import sphtp
from sphtp_benchmarks.meters import say
from sphtp_benchmarks.ordinary.catalog import NOWAIT, SENDERS, TASKS
from sphtp_benchmarks.process_task import ProcessTask

HOST = "127.0.0.1"


def receive(part: ProcessTask) -> None:
    """Accept a channel and count."""
    trio.run(_receive, part)


def send(part: ProcessTask) -> None:
    """Open a channel and send."""
    trio.run(_send, part)


async def _receive(part: ProcessTask) -> None:
    async with sphtp.open_node(HOST) as node:
        say(port=node.address[1])
        channel = await node.accept()
        await part.tally().take_all(channel)
        await trio.sleep_forever()


async def _send(part: ProcessTask) -> None:
    source = part.source()
    async with sphtp.open_channel(HOST, part.port) as channel:
        messages = source.messages()
        send_each = _send_each_nowait if part.case == NOWAIT else _send_each
        async with trio.open_nursery() as nursery:
            for _ in range(SENDERS if part.case == TASKS else 1):
                nursery.start_soon(send_each, channel, messages)
        # The last one leaves when no task has a message left to send.
        await channel.send(source.last)
        source.done()
        await trio.sleep_forever()


async def _send_each(channel: sphtp.Channel, messages: Iterator[bytes]) -> None:
    for message in messages:
        await channel.send(message)


async def _send_each_nowait(channel: sphtp.Channel, messages: Iterator[bytes]) -> None:
    for message in messages:
        try:
            channel.send_nowait(message)
        except trio.WouldBlock:
            await channel.send(message)
