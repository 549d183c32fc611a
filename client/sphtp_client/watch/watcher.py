"""The watcher: a client that subscribes to the frames of every slab, and simulates nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

import trio

from sphtp import Client, Loss
from sphtp.config import StreamSettings
from sphtp.errors import RemoteError, SphtpError, UnreachableError
from sphtp.shell.lifetime import running
from sphtp_client.connection import ConnectionSettings
from sphtp_client.simulation.frames import read_frame_untrusted, topic_of
from sphtp_client.watch.display import WatchDisplay
from sphtp_client.watch.events import WatchEvent, WatchOutcome
from sphtp_client.watch.view import PublishedSlab, RunIdentity, SimulationView, published_slab_of


@dataclass(frozen=True)
class StopCondition:
    """The condition that ends the watching before the end of the simulation.

    The watching ends when every slab is ``steps`` steps after the first state, ``seconds`` seconds
    after the simulation was found, or with ``once`` when a state of every slab has arrived. In any
    case it ends with the simulation.
    """

    steps: int | None = None
    seconds: float | None = None
    once: bool = False

    def is_reached(self, view: SimulationView) -> bool:
        """Return True if the condition on steps or slabs is met."""
        if not view.is_complete or view.first is None:
            return False
        is_far = self.steps is not None and min(view.steps) - view.first >= self.steps
        return self.once or is_far


PAUSE: Final = 0.5
"""Seconds from a stream's early end to the attempt to join it again."""


class SlabFollower:
    """Subscribes to the slabs of a run, and calls ``show_event`` with each event."""

    def __init__(
        self,
        client: Client,
        view: SimulationView,
        stop: StopCondition,
        show_event: Callable[[WatchEvent], None],
    ) -> None:
        self._client = client
        self._view = view
        self._stop = stop
        self._show_event = show_event
        self._done = trio.Event()

    async def run(self) -> None:
        """Follow the slabs until the condition is met, or all slabs have ended."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_out, nursery)
            await self._done.wait()
            nursery.cancel_scope.cancel()

    async def _look_out(self, nursery: trio.Nursery) -> None:
        with self._client.events() as events:
            self._begin_new(nursery)
            async for _ in events:
                self._begin_new(nursery)

    def _begin_new(self, nursery: trio.Nursery) -> None:
        """Follow the new slabs of the run, and ignore all other peers."""
        view = self._view
        for peer in self._client.peers.values():
            published = published_slab_of(peer)
            if (
                published is not None
                and published.run == view.run
                and published.slab not in view.slabs
            ):
                view.expect(published.slab)
                nursery.start_soon(self._follow, published, peer.id)

    async def _follow(self, published: PublishedSlab, peer_id: int) -> None:
        """Follow a slab to its end, and join its stream again after an early end."""
        reason = await self._read_to_end(published, peer_id)
        while await self._goes_on(published, peer_id):
            reason = await self._read_to_end(published, peer_id)
        self._show_event(self._view.end(published.slab, reason))
        if self._view.is_over:
            self._done.set()

    async def _goes_on(self, published: PublishedSlab, peer_id: int) -> bool:
        """Return True if the slab is unfinished and its peer is still there after a pause."""
        if self._view.slabs[published.slab].step == published.steps:
            return False
        await trio.sleep(PAUSE)
        peer = self._client.peers.get(peer_id)
        return peer is not None and published_slab_of(peer) == published

    async def _read_to_end(self, published: PublishedSlab, peer_id: int) -> str:
        """Read one stream of a slab; return the reason of its end."""
        try:
            await self._read(published, peer_id)
        except (SphtpError, trio.BrokenResourceError) as error:
            return str(error)
        return "its stream ended"

    async def _read(self, published: PublishedSlab, peer_id: int) -> None:
        # The publisher retains only the last frame, so lost frames cannot be fetched.
        topic = topic_of(published.slab)
        async with self._client.subscribe_to(
            peer_id, topic, late_join=True, settings=StreamSettings(recover=False)
        ) as stream:
            peer = self._client.peers.get(peer_id)
            name = "" if peer is None else peer.name
            self._show_event(self._view.join(published, peer_id, name))
            async for item in stream:
                for event in self._events_of(published.slab, item):
                    self._show_event(event)
                if self._stop.is_reached(self._view):
                    self._done.set()

    def _events_of(self, slab: int, item: object) -> list[WatchEvent]:
        if isinstance(item, Loss):
            lost = self._view.lose(slab, item)
            return [] if lost is None else [lost]
        try:
            frame = read_frame_untrusted(item)
        except RemoteError:
            self._view.malformed += 1
            return []
        return [*self._view.take(trio.current_time(), slab, frame)]


LOOK_EVERY: Final = 0.25
"""Seconds between two drawings."""

BYSTANDER: Final = {"watches": "slabs"}
"""The data of a watcher. It has no slab, so that peers ignore the watcher."""


class Watcher:
    """The watching of one simulation; ``outcome`` is its result."""

    def __init__(
        self, connection: ConnectionSettings, stop: StopCondition, display: WatchDisplay
    ) -> None:
        self.outcome: WatchOutcome = "stopped"
        self._connection = connection
        self._stop = stop
        self._display = display

    async def run(self) -> None:
        """Register, find a simulation, and follow it to its end or to the condition.

        Raises ``UnreachableError`` if no simulation appears, or with ``once`` not every slab
        arrives in time, and as ``open_client``.
        """
        async with self._connection.open(BYSTANDER, name="watch") as client:
            view = SimulationView(await self._find(client))
            try:
                await self._watch(client, view)
            finally:
                self._display.finish(trio.current_time(), view, view.summary(self.outcome))
        if self._stop.once and not view.is_complete:
            seen = f"{len(view.steps)} of {view.run.slabs} slabs were seen"
            raise UnreachableError(f"{seen} within {self._time_limit:g} s")

    async def _find(self, client: Client) -> RunIdentity:
        wait = self._connection.wait
        try:
            with trio.fail_after(wait):
                peer = await client.wait_for_peer(lambda it: published_slab_of(it) is not None)
        except trio.TooSlowError as error:
            text = f"waited {wait:g} s for a simulation, and none appeared"
            raise UnreachableError(text) from error
        published = published_slab_of(peer)
        assert published is not None, "that is what was waited for"
        return published.run

    async def _watch(self, client: Client, view: SimulationView) -> None:
        follower = SlabFollower(client, view, self._stop, self._display.show_event)
        with trio.move_on_after(self._time_limit) as time_limit:
            async with running(partial(self._keep_showing, view)):
                await follower.run()
        is_enough = self._stop.is_reached(view) or time_limit.cancelled_caught
        ending: WatchOutcome = "finished" if view.is_finished else "broken off"
        self.outcome = "seen" if is_enough else ending

    @property
    def _time_limit(self) -> float:
        if self._stop.seconds is not None:
            return self._stop.seconds
        return self._connection.wait if self._stop.once else inf

    async def _keep_showing(self, view: SimulationView) -> None:
        while True:
            self._display.show(trio.current_time(), view)
            await trio.sleep(LOOK_EVERY)
