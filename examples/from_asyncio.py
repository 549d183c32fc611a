"""An asyncio program: a gateway replies on each channel, and a task prints peers that come and go.

`sphtp.aio` has the functions and classes of `sphtp`. Their calls can be cancelled like any others
of asyncio.
"""

import asyncio

from sphtp import aio
from sphtp.events import PeerEntered, PeerLeft


async def answer(channel: aio.Channel[float]) -> None:
    async for celsius in channel:
        await channel.send(celsius + 273.15)


async def show_presence(client: aio.Client) -> None:
    with client.events() as events:
        async for event in events:
            if isinstance(event, PeerEntered):
                print(event.peer.name, "enters")
            elif isinstance(event, PeerLeft):
                print(event.peer.name, "leaves")
                return


async def main() -> None:
    async with (
        aio.open_server("tcp://127.0.0.1:0", new_cluster=True) as server,
        aio.open_client(server.address, name="gateway") as gateway,
    ):
        serving = asyncio.create_task(gateway.serve_channels(answer))
        watching = asyncio.create_task(show_presence(gateway))
        async with aio.open_client(server.address, name="sensor") as sensor:
            channel: aio.Channel[float]
            async with sensor.open_channel("gateway") as channel, asyncio.timeout(10):
                for celsius in (-40.0, 0.0, 36.6):
                    await channel.send(celsius)
                    print(f"{celsius:.1f} C are {await channel.receive():.2f} K")
            try:
                async with asyncio.timeout(0.1):
                    await sensor.wait_for_peer("nobody")
            except TimeoutError:
                print("nobody did not come")
        await watching
        serving.cancel()


if __name__ == "__main__":
    asyncio.run(main())
