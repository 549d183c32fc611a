"""A recorded run in lock step, repeated with a changed program to find where the two differ."""

import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import trio

import sphtp

STEPS = 40
PLACES = {"ada": 0.0, "bob": 1.0, "cleo": 3.0}


async def work(name: str, server: sphtp.ServerAddress, *, is_changed: bool = False) -> None:
    """Move one of three bodies, which pull at each other."""
    place, speed = np.float64(PLACES[name]), np.float64(0.0)
    async with (
        sphtp.open_client(server, name=name) as client,
        client.join("bodies", size=3) as group,
    ):
        for step in range(STEPS):
            for other in await group.exchange(place):
                speed += 0.01 * (other - place)
            if is_changed and step == 24:
                speed *= 1.001
            place += 0.1 * speed


async def main(recording: Path) -> None:
    async with sphtp.open_server("tcp://127.0.0.1:0", new_cluster=True) as server:
        sphtp_ = [sys.executable, "-m", "sphtp"]
        options = [str(recording), "--group", "bodies", "--server", str(server.address)]
        recorder = await trio.lowlevel.open_process(
            [*sphtp_, "record", *options], stdout=subprocess.DEVNULL
        )
        async with sphtp.open_client(server.address, name="waiter") as client:
            # The recorder watches the group now, so that the file has every step.
            await client.wait_for_peer(lambda peer: "bodies (watched)" in peer.groups)
        async with trio.open_nursery() as nursery:
            for name in PLACES:
                nursery.start_soon(work, name, server.address)
        recorder.send_signal(signal.SIGINT)
        await recorder.wait()

        # The replay sends what ada and cleo sent then; bob is the changed program.
        replay = [*sphtp_, "replay", *options, "--changed", "bob"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.run_process, replay, check=False))
            await work("bob", server.address, is_changed=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trio.run(main, Path(folder) / "run.mcap")
