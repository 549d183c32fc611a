"""The loop over the steps: of one slab with its neighbours, and of the whole box alone."""

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
    """The interface of a link to one neighbour: reliable messages, in order."""

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
    """Run a slab for ``steps`` steps. ``on_step`` is awaited after each step.

    ``statistics`` counts the steps and the waits for neighbours. Raises ``SettingsError`` if links
    and neighbours differ, ``RemoteError`` for an invalid message, ``SphereLostError`` if a sphere
    is too fast or outside the box, and the errors of the links.
    """
    given = {SlabSide.LEFT: left, SlabSide.RIGHT: right}
    links = {side: link for side, link in given.items() if link is not None}
    if set(links) != set(slab.sides):
        names = " and ".join(side.name for side in slab.sides) or "nobody"
        raise SettingsError(f"slab {slab.index} of {slab.count} needs links to {names}, no others")
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
        slab.drift()
        began = trio.current_time()
        received = await _exchange(slab, links)
        if statistics is not None:
            # The dict has the sides in the order in which their messages arrived.
            side = next(reversed(received), None)
            last = None if side is None else slab_name(slab.index + NEIGHBOUR[side])
            statistics.add(began, trio.current_time(), last)
        for side, data in received.items():
            slab.absorb_untrusted(side, data)
        slab.kick()
        if on_step is not None:
            await on_step(slab)


def run_whole_box(scenario: Scenario, steps: int) -> Spheres:
    """Return the spheres after ``steps`` steps in one slab, which every division must reproduce."""
    slab = Slab(scenario)
    for _ in range(steps):
        slab.drift()
        slab.kick()
    return slab.spheres


async def _exchange(slab: Slab, links: dict[SlabSide, NeighbourLink]) -> dict[SlabSide, bytes]:
    """Send to and receive from all neighbours at the same time, so that no cycle can deadlock."""
    received: dict[SlabSide, bytes] = {}

    async def receive(side: SlabSide, link: NeighbourLink) -> None:
        received[side] = await link.receive()

    try:
        async with trio.open_nursery() as nursery:
            for side, link in links.items():
                nursery.start_soon(link.send, slab.outgoing(side))
                nursery.start_soon(receive, side, link)
    except ExceptionGroup as group:
        # The caller catches the error of a link; the other errors are its consequences.
        raise group.exceptions[0] from group
    return received
