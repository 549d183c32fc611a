"""A member of a group that checks each array of each step, until it is killed or excluded.

Arguments: the address of a server, its name, the number of members and of steps, and ``views`` to
read arrays where others wrote them. It prints each hundredth step, and ``done`` or ``excluded``
with the number of mappings of shared memory that are left.
"""

import gc
import sys
from pathlib import Path
from typing import Final

import numpy as np
import trio

import sphtp
from sphtp import Config
from sphtp.config import ChannelSettings, ControlTimers
from sphtp.errors import ExcludedError

ITEMS: Final = 20_000
COMPUTING: Final = 0.002
NUMBER: Final = {name: number for number, name in enumerate("abcdefgh")}
TIMERS: Final = ControlTimers(heartbeat=0.2, expiry=30.0, announce_deadline=5.0)


def array_of(name: str, step: int) -> np.ndarray:
    return np.full(ITEMS, 100.0 * step + NUMBER[name])


async def take_part(address: str, name: str, size: int, steps: int, how: str) -> str:
    channel = ChannelSettings(timeout=1.0, linger=0.0, array_views=how == "views")
    config = Config(channel=channel, timers=TIMERS)
    try:
        async with (
            sphtp.open_client(address, name=name, config=config) as client,
            client.join("fluid", size=size, on_death="continue") as group,
        ):
            for step in range(steps):
                # The others are still at work when one that was frozen goes on.
                await trio.sleep(COMPUTING)
                got = await group.exchange(array_of(name, step))
                for member, array in got.items():
                    assert np.array_equal(array, array_of(member.name, step)), (name, step, member)
                if step % 100 == 0:
                    print(step, flush=True)
    except ExcludedError:
        return "excluded"
    return "done"


def main() -> None:
    address, name, size, steps, how = sys.argv[1:]
    end = trio.run(take_part, address, name, int(size), int(steps), how)
    gc.collect()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    print(end, maps.count("memfd:sphtp"), flush=True)


if __name__ == "__main__":
    main()
