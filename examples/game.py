"""A game on a bad network: each shot must arrive, and of the positions only the newest matters.

Shots and positions are types of messages, packed into bits and checked on arrival.
"""

from dataclasses import dataclass
from typing import Annotated

import trio

import sphtp
from sphtp.config import Impairment
from sphtp.messages import BitMessage, Compressed, MessageFactory, Range


@dataclass
class Position(BitMessage):
    frame: Annotated[int, Range(0, 4095)] = 0
    x: Annotated[float, Compressed(-100.0, 100.0, 0.01)] = 0.0
    y: Annotated[float, Compressed(-100.0, 100.0, 0.01)] = 0.0


@dataclass
class Shot(BitMessage):
    power: Annotated[int, Range(0, 100)] = 0


Message = Position | Shot
TYPES = MessageFactory([Position, Shot])
BAD = sphtp.Config(messages=TYPES, impairment=Impairment(loss=0.2, reorder=0.1), seed=1)


async def watch(node: sphtp.Node) -> None:
    positions, shots = 0, 0
    channel: sphtp.Channel[Message]
    async with await node.accept() as channel:
        async for message in channel:
            if isinstance(message, Position):
                positions += 1
            else:
                shots += 1
    print(f"{positions} of 300 positions came, and {shots} of 30 shots")


async def main() -> None:
    async with sphtp.open_node(config=BAD) as node, trio.open_nursery() as nursery:
        nursery.start_soon(watch, node)
        channel: sphtp.Channel[Message]
        async with sphtp.open_channel(*node.address, config=BAD) as channel:
            for frame in range(300):
                position = Position(frame, 0.1 * frame, -0.1 * frame)
                channel.send_nowait(position, delivery=sphtp.Delivery.SEQUENCED)
                if frame % 10 == 0:
                    await channel.send(Shot(frame // 3))
                await trio.sleep(0.003)


if __name__ == "__main__":
    trio.run(main)
