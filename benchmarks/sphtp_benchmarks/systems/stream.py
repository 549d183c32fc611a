"""Streams of this library, by its public names only."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

import sphtp
from sphtp import Loss
from sphtp.config import StreamSettings
from sphtp.security import Security
from sphtp_benchmarks.meters import MessageTally, say
from sphtp_benchmarks.process_task import ProcessTask
from sphtp_benchmarks.stream.catalog import CLEAR, UNHELD

HOST = "127.0.0.1"
TOPIC = "measured"
BURST = 1 << 20  # bytes per call of `send_many`
LIMIT = 1024  # messages per call of `receive_many`


def publish(part: ProcessTask) -> None:
    """Open a source, wait for its receivers, and send."""
    trio.run(_publish, part)


def subscribe(part: ProcessTask) -> None:
    """Subscribe, and count messages and losses."""
    trio.run(_subscribe, part)


async def _publish(part: ProcessTask) -> None:
    source = part.source()
    async with _open_node(part) as node:
        async with node.open_source(TOPIC, settings=_settings(part)) as stream:
            say(port=node.address[1])
            await stream.wait_for_receivers(part.receivers)
            for burst in source.bursts(max(1, min(LIMIT, BURST // part.size))):
                await stream.send_many(burst)
            source.done()
        await trio.sleep_forever()


async def _subscribe(part: ProcessTask) -> None:
    tally = part.tally()
    async with _open_node(part) as node, node.subscribe(HOST, part.port, topic=TOPIC) as stream:
        try:
            while not tally.take(without_losses(await stream.receive_many(LIMIT), tally)):
                pass
        except trio.EndOfChannel:
            tally.end()
        await trio.sleep_forever()


def without_losses(items: list[Any], tally: MessageTally) -> list[bytes]:
    """Return the messages among the items, and count the losses.

    The last message may be lost.
    """
    if Loss not in set(map(type, items)):
        return items
    losses = [item for item in items if type(item) is Loss]
    tally.lose(sum(loss.last - loss.first + 1 for loss in losses))
    return [item for item in items if type(item) is not Loss]


def _open_node(part: ProcessTask) -> AbstractAsyncContextManager[sphtp.Node]:
    return sphtp.open_node(
        HOST, config=sphtp.Config(security=None if part.system == CLEAR else Security())
    )


def _settings(part: ProcessTask) -> StreamSettings:
    changes: dict[str, Any] = {"flow_window": 0} if part.system == UNHELD else {}
    if part.max_datagram is not None:
        changes |= {"max_datagram": part.max_datagram, "local_datagram": part.max_datagram}
    return StreamSettings(**changes)
