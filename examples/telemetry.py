"""Telemetry of a robot: to a recorder, to a display of the latest pose, to a reader that hangs."""

import trio

import sphtp
from sphtp.config import StreamSettings
from sphtp.streams import TopicMessage

SMALL = StreamSettings(flow_window=65_536, receive_buffer=65_536, patience=0.5)


async def drive(server: sphtp.ServerAddress) -> None:
    async with (
        sphtp.open_client(server, name="robot") as client,
        client.publish("robot/pose", settings=SMALL) as source,
    ):
        await source.wait_for_receivers(3)
        for step in range(2000):
            await source.send({"step": step, "x": 0.1 * step, "scan": bytes(500)})
        slowest = min(source.receivers, key=lambda receiver: receiver.room)
        print("robot: the slowest reader is", client.peers[slowest.peer_id].name)
        await source.send(None)


async def read(server: sphtp.ServerAddress, name: str, pause: float, latest: bool = False) -> None:
    steps: list[int] = []
    async with (
        sphtp.open_client(server, name=name) as client,
        client.subscribe("robot/*", latest=latest, settings=SMALL) as poses,
    ):
        async for item in poses:
            if isinstance(item, TopicMessage):
                if item.value is None:
                    break
                steps.append(item.value["step"])
                await trio.sleep(pause)
    print(f"{name}: {len(steps)} poses up to step {steps[-1]}, {poses.overtaken} passed over")


async def main() -> None:
    async with (
        sphtp.open_server("tcp://127.0.0.1:0", new_cluster=True) as server,
        trio.open_nursery() as hanging,
    ):
        hanging.start_soon(read, server.address, "hanging", 3600.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drive, server.address)
            nursery.start_soon(read, server.address, "recorder", 0.0)
            nursery.start_soon(read, server.address, "display", 0.04, True)
        hanging.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
