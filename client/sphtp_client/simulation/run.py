"""Runs: one slab among neighbours, and the whole box alone as the reference."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import trio

from sphtp.core.group.steps import StepStatistics
from sphtp.errors import SettingsError
from sphtp_client.simulation.scenario import Scenario
from sphtp_client.simulation.slabs import Slab, SlabSide
from sphtp_client.simulation.state import Spheres

NEIGHBOUR: Final = {SlabSide.LEFT: -1, SlabSide.RIGHT: 1}


def slab_name(slab: int) -> str:
    """Return the name of the client that simulates a slab."""
    return f"slab-{slab}"


class NeighbourLink(Protocol):
    """The link to one neighbour: reliable, in order, one message at a time."""

    async def send(self, data: bytes) -> None:
        """Send one message."""
        ...

    async def receive(self) -> bytes:
        """Return the next message."""
        ...


async def run_slab(
    slab: Slab,
    left: NeighbourLink | None,
    right: NeighbourLink | None,
    steps: int,
    on_step: Callable[[Slab], Awaitable[None]] | None = None,
    statistics: StepStatistics[str] | None = None,
) -> None:
    """Run a slab for that many steps; ``on_step`` is awaited after each, ``statistics`` count.

    Raises ``RemoteError`` for a message that makes no sense, ``SphereLostError`` when the physics
    leaves its bounds, and whatever the links raise.
    """
    given = {SlabSide.LEFT: left, SlabSide.RIGHT: right}
    links = {side: link for side, link in given.items() if link is not None}
    if set(links) != set(slab.sides):
        names = " and ".join(side.name for side in slab.sides) or "nobody"
        raise SettingsError(f"slab {slab.index} of {slab.count} has links to {names}, no others")
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
        slab.drift()
        began = trio.current_time()
        received = await _exchange(slab, links)
        if statistics is not None:
            # The last one is the one that came last.
            side = next(reversed(received), None)
            last = None if side is None else slab_name(slab.index + NEIGHBOUR[side])
            statistics.add(began, trio.current_time(), last)
        for side, data in received.items():
            slab.absorb_untrusted(side, data)
        slab.kick()
        if on_step is not None:
            await on_step(slab)


def run_whole_box(scenario: Scenario, steps: int) -> Spheres:
    """Return the state after that many steps in one slab, which every split must reproduce."""
    slab = Slab(scenario)
    for _ in range(steps):
        slab.drift()
        slab.kick()
    return slab.spheres


async def _exchange(slab: Slab, links: dict[SlabSide, NeighbourLink]) -> dict[SlabSide, bytes]:
    """Send to and receive from all neighbours at once, so that no order among peers can block."""
    received: dict[SlabSide, bytes] = {}

    async def receive(side: SlabSide, link: NeighbourLink) -> None:
        received[side] = await link.receive()

    try:
        async with trio.open_nursery() as nursery:
            for side, link in links.items():
                nursery.start_soon(link.send, slab.outgoing(side))
                nursery.start_soon(receive, side, link)
    except ExceptionGroup as group:
        # A caller wants to catch what a link raises; the other failures follow from the first.
        raise group.exceptions[0] from group
    return received
