"""The search for the peers of a run, and the channels between them.

The data of every peer has its slab and its run, by which the others find it.

Messages of bytes on a link belong to the simulation. A map reports a peer that is gone. A peer that
receives such a report sends it over all its links, so that every slab can name the missing peer.
Every slab receives from all its neighbours in every step, so every report is read.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import trio
from pydantic import ValidationError

from sphtp import Channel, Client, Peer
from sphtp.errors import SettingsError, SphtpError, UnreachableError
from sphtp_client.simulation.reports import LinkReport, PeerGone
from sphtp_client.simulation.scenario import Scenario

NOTICE_TIMEOUT = 1.0  # seconds to report a missing peer to a neighbour
REFUSAL_LINGER = 2.0  # seconds for which a client stays after it has rejected a peer
CLOSE_TIMEOUT = 5.0  # seconds for closing all links


@dataclass(frozen=True)
class SlabJob:
    """The job of a client: one slab of a run. By ``data``, the other peers find the client.

    Raises ``SettingsError`` if there is no slab of this number.
    """

    scenario: Scenario
    slab: int
    slabs: int
    steps: int
    run: str = ""
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.slab < self.slabs:
            raise SettingsError(
                f"--slab = {self.slab}: must be 0 to {self.slabs - 1}, because --slabs, the number "
                f"of them, is {self.slabs}"
            )
        text = self.scenario.model_dump_json()
        object.__setattr__(self, "digest", sha256(text.encode()).hexdigest())

    @property
    def data(self) -> dict[str, Any]:
        """The data of this peer, which the servers send to all others."""
        # Box and radius are for programs that draw the simulation.
        box, radius = list(self.scenario.box), self.scenario.largest_radius
        return {
            **self._common,
            "run": self.run,
            "slab": self.slab,
            "box": box,
            "radius": radius,
        }

    @property
    def others(self) -> tuple[int, ...]:
        """The numbers of all other slabs."""
        return tuple(slab for slab in range(self.slabs) if slab != self.slab)

    def has_peer(self, slab: int) -> Callable[[Peer], bool]:
        """Return a predicate for the peer that simulates a slab of this run."""

        def is_it(peer: Peer) -> bool:
            data = peer.data
            return (
                isinstance(data, dict)
                and data.get("slab") == slab
                and data.get("run", "") == self.run
            )

        return is_it

    def check(self, peer_id: int, data: dict[str, Any]) -> None:
        """Raise ``SettingsError``, naming the peer, if its scenario, slabs or steps differ."""
        for key, ours in self._common.items():
            if data.get(key) != ours:
                raise SettingsError(
                    f"slab {data.get('slab')} (id {peer_id:#010x}) runs something else: "
                    f"its {key} is {data.get(key)}, here it is {ours}"
                )

    @property
    def _common(self) -> dict[str, Any]:
        return {"slabs": self.slabs, "steps": self.steps, "scenario": self.digest}


class PeerGoneError(SphtpError):
    """A peer of this run is gone; ``event`` names the peer and the reason."""

    def __init__(self, event: PeerGone) -> None:
        super().__init__(str(event))
        self.event = event


class PeerLink:
    """A channel to another slab. ``opened`` is True if this side opened it, and closes it first."""

    def __init__(self, channel: Channel, slab: int, *, opened: bool) -> None:
        self.slab = slab
        self.opened = opened
        self.peer_id = channel.peer_id
        self._channel = channel
        self._left: PeerGoneError | None = None

    async def send(self, data: bytes) -> None:
        """Send one message. Raises ``PeerGoneError`` if the peer is gone."""
        try:
            await self._channel.send(data)
        except trio.BrokenResourceError:
            # A report that the other side sent before may name the cause.
            await self.wait_end()
            raise self._departure("closed its channel before the end") from None

    async def receive(self) -> bytes:
        """Wait for the next message.

        Raises ``PeerGoneError`` if a peer of the run is gone, or sent an invalid message. The
        channel's timeout ends the wait if the peer has vanished.
        """
        try:
            message = await self._channel.receive()
        except trio.EndOfChannel:
            raise self._departure("closed its channel before the end") from None
        except trio.BrokenResourceError as error:
            raise self._departure(str(error)) from error
        if isinstance(message, bytes):
            return message
        raise self._read_departure(message)

    async def notify(self, event: PeerGone) -> None:
        """Report a missing peer to the peer of this link; ignore a failure."""
        with (
            trio.move_on_after(NOTICE_TIMEOUT),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError),
        ):
            await self._channel.send(event.model_dump(mode="json"))

    async def wait_end(self) -> None:
        """Drop messages until the other side closes the channel, or reports a missing peer."""
        with suppress(PeerGoneError):
            while True:
                await self.receive()

    async def aclose(self) -> None:
        """Close the channel when all messages have arrived, or the peer is gone."""
        with suppress(trio.BrokenResourceError):
            await self._channel.aclose()

    def report(self) -> LinkReport:
        """Return the figures of the channel."""
        figures = self._channel.statistics()
        return LinkReport(
            peer=self.peer_id,
            slab=self.slab,
            sent=figures.sent,
            received=figures.received,
            lost=figures.lost,
            resent=figures.resent,
            rtt_ms=None if figures.rtt is None else round(figures.rtt * 1000, 3),
        )

    def _read_departure(self, message: object) -> PeerGoneError:
        try:
            self._left = PeerGoneError(PeerGone.model_validate(message))
        except ValidationError:
            return self._departure(f"sent an invalid message of type {type(message).__name__}")
        return self._left

    def _departure(self, reason: str) -> PeerGoneError:
        """Return the error that ended this link, the same for all waiting tasks."""
        if self._left is None:
            event = PeerGone(slab=self.slab, id=self.peer_id, reason=reason)
            self._left = PeerGoneError(event)
        return self._left


async def notify_all(links: Iterable[PeerLink], event: PeerGone) -> None:
    """Report a missing peer over all links, concurrently."""
    async with trio.open_nursery() as nursery:
        for link in links:
            nursery.start_soon(link.notify, event)


async def find_peers(client: Client, job: SlabJob, wait: float) -> dict[int, int]:
    """Wait for the peers of all other slabs; return their ids by slab.

    Raises ``UnreachableError`` for a peer that does not appear within ``wait`` seconds, and
    ``SettingsError`` for a peer that simulates something else; both name its slab.
    """
    roster: dict[int, int] = {}
    deadline = trio.current_time() + wait
    for slab in job.others:
        left = max(deadline - trio.current_time(), 0.001)
        try:
            with trio.fail_after(left):
                peer = await client.wait_for_peer(job.has_peer(slab))
        except trio.TooSlowError as error:
            text = f"waited {wait:g} s for slab {slab} of {job.slabs}, which did not appear"
            raise UnreachableError(text) from error
        await _check(job, peer)
        roster[slab] = peer.id
    return roster


@asynccontextmanager
async def open_peer_links(
    client: Client, roster: Mapping[int, int], wait: float
) -> AsyncIterator["PeerLinks"]:
    """Yield an object without links, and close all its links at the end of the block.

    If the block ends without an error, the side that opened a link closes it first, and the other
    side waits for that.
    """
    peer_links = PeerLinks(client, roster, wait)
    async with peer_links.opened:
        try:
            yield peer_links
        except BaseException:
            await peer_links.close_all(in_turn=False)
            raise
        await peer_links.close_all(in_turn=True)


class PeerLinks:
    """The links to other slabs, by slab; ``roster`` has the client ids of all other slabs."""

    def __init__(self, client: Client, roster: Mapping[int, int], wait: float) -> None:
        self.links: dict[int, PeerLink] = {}
        self.opened = AsyncExitStack()
        self._client = client
        self._slabs = {peer_id: slab for slab, peer_id in roster.items()}
        self.roster = roster
        self._wait = wait

    def reports(self) -> tuple[LinkReport, ...]:
        """Return the figures of all links, in order of slabs."""
        return tuple(self.links[slab].report() for slab in sorted(self.links))

    async def open(self, slab: int) -> PeerLink:
        """Open a link to a slab. Raises as ``Client.open_channel``."""
        opening = self._client.open_channel(self.roster[slab])
        channel = await self.opened.enter_async_context(opening)
        return self._add(channel, slab, opened=True)

    async def accept(self, slabs: Collection[int]) -> None:
        """Accept one link from each of these slabs, and close the channels of other peers.

        Raises ``UnreachableError`` if a slab opens none in time.
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

    async def close_all(self, *, in_turn: bool) -> None:
        """Close all links at the same time.

        With ``in_turn``, a side that accepted a link waits until the other side has closed it.
        """
        with trio.move_on_after(CLOSE_TIMEOUT):
            async with trio.open_nursery() as nursery:
                for link in self.links.values():
                    nursery.start_soon(_close, link, in_turn)

    def _add(self, channel: Channel, slab: int, *, opened: bool) -> PeerLink:
        link = self.links[slab] = PeerLink(channel, slab, opened=opened)
        return link


async def _close(link: PeerLink, in_turn: bool) -> None:
    if in_turn and not link.opened:
        await link.wait_end()
    await link.aclose()


async def _check(job: SlabJob, peer: Peer) -> None:
    try:
        job.check(peer.id, peer.data)
    except SettingsError:
        # The other side needs time to find and reject this client, too.
        await trio.sleep(REFUSAL_LINGER)
        raise
