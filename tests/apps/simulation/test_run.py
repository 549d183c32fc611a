"""Slabs that run at the same time and talk through links."""

from dataclasses import dataclass

import pytest
import trio

from sphtp.errors import RemoteError, SettingsError
from sphtp_client.simulation.run import run_slab, run_whole_box
from sphtp_client.simulation.slabs import Slab
from sphtp_client.simulation.state import concat, state_sha256


@dataclass
class MemoryLink:
    """One end of a link without a buffer: a send waits for its receive."""

    out: trio.MemorySendChannel[bytes]
    back: trio.MemoryReceiveChannel[bytes]

    async def send(self, data: bytes) -> None:
        await self.out.send(data)

    async def receive(self) -> bytes:
        return await self.back.receive()


def linked() -> tuple[MemoryLink, MemoryLink]:
    there, here = trio.open_memory_channel[bytes](0), trio.open_memory_channel[bytes](0)
    return MemoryLink(there[0], here[1]), MemoryLink(here[0], there[1])


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_slabs_over_links_end_in_the_state_of_one(world, count):
    scenario = world()
    slabs = [Slab(scenario, index, count) for index in range(count)]
    pairs = [linked() for _ in range(count - 1)]
    rights = [*(pair[0] for pair in pairs), None]
    lefts = [None, *(pair[1] for pair in pairs)]
    async with trio.open_nursery() as nursery:
        for slab, left, right in zip(slabs, lefts, rights, strict=True):
            nursery.start_soon(run_slab, slab, left, right, 40)
    state = concat(slab.spheres for slab in slabs)
    assert state_sha256(state) == state_sha256(run_whole_box(scenario, 40))


async def test_each_step_is_told(world):
    reported = []

    async def on_step(slab: Slab) -> None:
        reported.append(slab.step)

    await run_slab(Slab(world()), None, None, 5, on_step)
    assert reported == [1, 2, 3, 4, 5]


async def test_a_run_alone_lets_others_run_and_can_be_cancelled(world):
    slab = Slab(world())

    async def on_step(slab: Slab) -> None:
        if slab.step == 3:
            scope.cancel()

    with trio.CancelScope() as scope:
        await run_slab(slab, None, None, 10**9, on_step)
    assert scope.cancelled_caught
    assert slab.step in (3, 4)


async def test_a_broken_link_is_raised_as_it_is(world):
    here, there = linked()
    await there.out.aclose()
    await there.back.aclose()
    with pytest.raises((trio.BrokenResourceError, trio.EndOfChannel)):
        await run_slab(Slab(world(), 0, 2), None, here, 1)


async def test_waiting_for_a_neighbour_can_be_cancelled(world, autojump_clock):
    here, _ = linked()
    with trio.move_on_after(10) as scope:
        await run_slab(Slab(world(), 0, 2), None, here, 1)
    assert scope.cancelled_caught


async def test_a_neighbour_at_another_step_is_noticed(world):
    scenario = world()
    ahead = Slab(scenario, 1, 2)
    ahead.step = 1
    here, there = linked()

    async def run_ahead() -> None:
        with pytest.raises(RemoteError, match="at step 1, not 2"):
            await run_slab(ahead, there, None, 1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_ahead)
        with pytest.raises(RemoteError, match="at step 2, not 1"):
            await run_slab(Slab(scenario, 0, 2), None, here, 1)


@pytest.mark.parametrize(("index", "count"), [(0, 1), (0, 3), (1, 3), (2, 3)])
async def test_links_must_be_those_of_the_place(world, index, count):
    slab = Slab(world(), index, count)
    here, there = linked()
    left, right = (here, there) if index != 1 else (here, None)
    with pytest.raises(SettingsError, match=f"slab {index} of {count} needs links to"):
        await run_slab(slab, left, right, 1)
