"""Co-simulation: a weight on a spring and the oil around it, in step with the cluster's clock."""

from typing import Protocol

import trio

import sphtp

INTERVAL = 0.1


class Model(Protocol):
    def advance(self, theirs: float) -> float: ...


class Weight:
    height: float = 1.0
    speed: float = 0.0

    def advance(self, theirs: float) -> float:
        for _ in range(100):
            self.speed += (theirs - 9.0 * self.height) * INTERVAL / 100
            self.height += self.speed * INTERVAL / 100
        return self.speed


class Oil:
    def advance(self, theirs: float) -> float:
        return -0.8 * theirs


async def simulate(server: sphtp.ServerAddress, name: str, other: str, model: Model) -> None:
    async with (
        sphtp.open_client(server, name=name) as client,
        client.join("tank", size=2) as group,
    ):
        await client.clock.wait_synchronized()
        start = await group.reduce(client.clock.now() + 0.05, "max")
        theirs = 0.0
        for meeting in range(20):
            await client.clock.sleep_until(start + meeting * INTERVAL / 10)
            theirs = (await group.exchange(model.advance(theirs)))[other]
            if isinstance(model, Weight):
                print(f"{meeting * INTERVAL:4.1f} s", " " * round(20 + 20 * model.height), "o")
        print(f"{name}: the clock was wrong by {1e3 * client.clock.error:.1f} ms at most")


async def main() -> None:
    async with (
        sphtp.open_server("tcp://127.0.0.1:0", new_cluster=True) as server,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(simulate, server.address, "weight", "oil", Weight())
        nursery.start_soon(simulate, server.address, "oil", "weight", Oil())


if __name__ == "__main__":
    trio.run(main)
