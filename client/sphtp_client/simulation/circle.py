"""The circle of a peer: it meets the other slabs, and keeps the links to some of them."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from sphtp import Channel, Client, Peer
from sphtp.errors import SettingsError, UnreachableError
from sphtp_client.simulation.events import LinkReport
from sphtp_client.simulation.job import SlabJob
from sphtp_client.simulation.peer_links import PeerLink

BE_SEEN = 2.0  # seconds that a client stays which has refused another one
PARTING = 5.0  # seconds for closing all links


async def meet(client: Client, job: SlabJob, wait: float) -> dict[int, int]:
    """Wait for the peers of all other slabs; return their ids by slab.

    Raises ``UnreachableError`` for one that does not appear within ``wait`` seconds, and
    ``SettingsError`` for one that runs something else; both name it.
    """
    roster: dict[int, int] = {}
    deadline = trio.current_time() + wait
    for slab in job.others:
        left = max(deadline - trio.current_time(), 0.001)
        try:
            peer = await client.wait_for_peer(_has_slab(slab), timeout=left)
        except UnreachableError as error:
            text = f"waited {wait:g} s for slab {slab} of {job.slabs}, which did not appear"
            raise UnreachableError(text) from error
        await _check(job, peer)
        roster[slab] = peer.id
    return roster


@asynccontextmanager
async def open_circle(
    client: Client, roster: Mapping[int, int], wait: float
) -> AsyncIterator["Circle"]:
    """Open a circle without links; whichever it has at the end of the block are closed.

    A good end takes turns: who opened a link closes it, and the other side waits for that.
    """
    circle = Circle(client, roster, wait)
    async with circle.opened:
        try:
            yield circle
        except BaseException:
            await circle.part(in_turn=False)
            raise
        await circle.part(in_turn=True)


class Circle:
    """Links to other slabs by their number; ``roster`` has the ids of them all."""

    def __init__(self, client: Client, roster: Mapping[int, int], wait: float) -> None:
        self.links: dict[int, PeerLink] = {}
        self.opened = AsyncExitStack()
        self._client = client
        self._slabs = {peer_id: slab for slab, peer_id in roster.items()}
        self.roster = roster
        self._wait = wait

    def reports(self) -> tuple[LinkReport, ...]:
        """Return the figures of all links, in order of their slabs."""
        return tuple(self.links[slab].report() for slab in sorted(self.links))

    async def open(self, slab: int) -> PeerLink:
        """Open a link. Raises what ``open_channel`` raises."""
        opening = self._client.open_channel(self.roster[slab])
        channel = await self.opened.enter_async_context(opening)
        return self._add(channel, slab, opened=True)

    async def accept(self, slabs: Collection[int]) -> None:
        """Accept one link from each of these slabs; whoever else comes is turned away.

        Raises ``UnreachableError`` for a slab that opens none in time.
        """
        missing = set(slabs)
        with trio.move_on_after(self._wait):
            while missing:
                await self._accept_one(missing)
        if not missing:
            return
        slab = min(missing)
        who = f"slab {slab} (id {self.roster[slab]:#010x})"
        raise UnreachableError(f"waited {self._wait:g} s for {who}, which opened no channel")

    async def _accept_one(self, missing: set[int]) -> None:
        channel = await self._client.accept()
        slab = self._slabs.get(channel.peer_id)
        if slab in missing:
            missing.remove(slab)
            self._add(channel, slab, opened=False)
        else:
            await channel.aclose()

    async def part(self, *, in_turn: bool) -> None:
        """Close all links side by side; ``in_turn`` waits for those that opened one to close it."""
        with trio.move_on_after(PARTING):
            async with trio.open_nursery() as nursery:
                for link in self.links.values():
                    nursery.start_soon(_part, link, in_turn)

    def _add(self, channel: Channel, slab: int, *, opened: bool) -> PeerLink:
        link = self.links[slab] = PeerLink(channel, slab, opened=opened)
        return link


async def _part(link: PeerLink, in_turn: bool) -> None:
    if in_turn and not link.opened:
        await link.wait_end()
    await link.aclose()


async def _check(job: SlabJob, peer: Peer) -> None:
    try:
        job.check(peer.id, peer.data)
    except SettingsError:
        await trio.sleep(BE_SEEN)  # so that the other side can refuse us too, and need not wait
        raise


def _has_slab(slab: int) -> Callable[[Peer], bool]:
    return lambda peer: isinstance(peer.data, dict) and peer.data.get("slab") == slab
