"""One of three workers that estimate pi in lock step, each with random points of its own."""

import os
import random
import sys
from math import hypot

import trio

import sphtp

ROUNDS = int(os.environ["ROUNDS"])
POINTS = 200


async def main(name: str, number: str) -> None:
    draw = random.Random(number).random
    inside = 0
    # Servers and their secret are in the environment, too.
    async with sphtp.open_client(name=name) as client, client.join("pi", size=3) as group:
        for _ in range(ROUNDS):
            hits = sum(hypot(draw(), draw()) < 1 for _ in range(POINTS))
            inside += sum(await group.exchange(hits))
    print(f"pi is about {4 * inside / (3 * ROUNDS * POINTS):.3f}")


trio.run(main, sys.argv[1], sys.argv[2])
