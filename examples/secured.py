"""A cluster with a secret and a list of members: strangers can neither register nor read messages.

`sphtp keygen` makes the same keys as files; `sphtp.security` reads them.
"""

from random import SystemRandom
from secrets import token_bytes

import trio

import sphtp
from sphtp.security import ClusterSecurity, Security, allow_only

SECRET = token_bytes(32)
ADA, BOB, EVE = (sphtp.Identity.draw(SystemRandom()) for _ in range(3))


def config_of(identity: sphtp.Identity, secret: bytes = SECRET) -> sphtp.Config:
    cluster = ClusterSecurity(secret=secret)
    return sphtp.Config(security=Security(identity=identity), cluster=cluster)


async def answer(client: sphtp.Client) -> None:
    async with await client.accept() as channel:
        async for question in channel:
            await channel.send(f"{question} Yes, Ada.")


async def enter(server: sphtp.ServerAddress, who: str, config: sphtp.Config) -> None:
    try:
        async with sphtp.open_client(server, config=config):
            print(who, "is in")
    except (sphtp.RefusedError, sphtp.UnreachableError) as error:
        print(f"{who}: {error}")


async def main() -> None:
    async with (
        sphtp.open_server(
            "tcp://127.0.0.1:0",
            new_cluster=True,
            admit=allow_only({ADA.public, BOB.public}),
            config=sphtp.Config(cluster=ClusterSecurity(secret=SECRET)),
        ) as server,
        sphtp.open_client(server.address, name="ada", config=config_of(ADA)) as ada,
        sphtp.open_client(server.address, name="bob", config=config_of(BOB)) as bob,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(answer, bob)
        async with ada.open_channel("bob") as channel:
            await channel.send("Is it you, Bob?")
            print(await channel.receive())
            print("Bob's key is his own:", channel.peer_key == BOB.public)
        await enter(server.address, "Eve, who has the secret", config_of(EVE))
        await enter(server.address, "Eve, who guesses it", config_of(EVE, token_bytes(32)))


if __name__ == "__main__":
    trio.run(main)
