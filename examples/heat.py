"""Heat in a plate, in lock step: the members of each step divide the rows of the next one."""

import numpy as np
import trio
from numpy.typing import NDArray

import sphtp

Plate = NDArray[np.float64]
START = np.zeros((20, 64))
START[0, 8:24] = START[-1, 40:56] = 1.0  # Two edges are hot, and stay so.


def heated(plate: Plate, rows: slice) -> Plate:
    around = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
    return 0.2 * plate[1:-1, 1:-1][rows] + 0.2 * around[rows]


async def work(name: str, server: sphtp.ServerAddress, begun: trio.Event) -> None:
    plate, mine, members = START.copy(), None, 0
    async with (
        sphtp.open_client(server, name=name) as client,
        client.join("heat", size=3, state=lambda: plate) as group,
    ):
        if group.snapshot is not None:
            plate = group.snapshot  # the plate at this client's first step
            print(f"{name} comes in at step {group.step}")
        while group.step <= 200 or members < 4:
            got = await group.exchange(mine)  # None in the first step of a member
            shares = [rows for rows in got if rows is not None]
            for place, rows in enumerate(shares):
                plate[1:-1, 1:-1][place :: len(shares)] = rows
            members = len(got)
            mine = heated(plate, slice(got.rank, None, members))
            begun.set()
    alone = START.copy()
    for _ in range(group.step - 1):
        alone[1:-1, 1:-1] = heated(alone, slice(None))
    if name == "ada":
        print("\n".join("".join(" .:-=+*#%@"[int(9.99 * it)] for it in row) for row in plate))
    print(f"{name}: {group.step - 1} steps; as alone: {np.array_equal(plate, alone)}")


async def main() -> None:
    async with (
        sphtp.open_server("tcp://127.0.0.1:0", new_cluster=True) as server,
        trio.open_nursery() as nursery,
    ):
        begun = trio.Event()
        for name in ("ada", "bob", "cleo"):
            nursery.start_soon(work, name, server.address, begun)
        await begun.wait()
        nursery.start_soon(work, "late", server.address, begun)


if __name__ == "__main__":
    trio.run(main)
