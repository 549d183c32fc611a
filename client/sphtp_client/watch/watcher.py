"""A client that simulates nothing: it subscribes to every slab, until enough was seen."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

import trio

from sphtp import Client, Loss
from sphtp.errors import RemoteError, SphtpError, UnreachableError
from sphtp.shell.lifetime import running
from sphtp_client.connection import ConnectionSettings
from sphtp_client.simulation.frames import read_frame_untrusted, topic_of
from sphtp_client.watch.display import WatchDisplay
from sphtp_client.watch.events import WatchEvent, WatchOutcome
from sphtp_client.watch.view import PublishedSlab, RunIdentity, SimulationView, published_slab_of


@dataclass(frozen=True)
class StopCondition:
    """What is enough: so many steps or seconds since the first state, or each slab seen once.

    Without any of them, the end of the simulation.
    """

    steps: int | None = None
    seconds: float | None = None
    once: bool = False

    def is_reached(self, scene: SimulationView) -> bool:
        """Whether enough has been seen, as far as that does not depend on time."""
        if not scene.is_complete or scene.first is None:
            return False
        is_far = self.steps is not None and min(scene.steps) - scene.first >= self.steps
        return self.once or is_far


PAUSE: Final = 0.5
"""Seconds before a stream is joined again that ended too soon."""


class SlabFollower:
    """Subscribes to the slabs of a scene's run, and tells what is new to ``say``."""

    def __init__(
        self,
        client: Client,
        scene: SimulationView,
        goal: StopCondition,
        say: Callable[[WatchEvent], None],
    ) -> None:
        self._client = client
        self._scene = scene
        self._goal = goal
        self._say = say
        self._done = trio.Event()

    async def run(self) -> None:
        """Follow until enough has been seen, or no slab is left to follow."""
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
        """Follow the slabs of the run that have come; whatever else is here is not ours to see."""
        scene = self._scene
        for peer in self._client.peers.values():
            part = published_slab_of(peer)
            if part is not None and part.run == scene.run and part.slab not in scene.slabs:
                scene.expect(part.slab)
                nursery.start_soon(self._follow, part, peer.id)

    async def _follow(self, part: PublishedSlab, peer_id: int) -> None:
        """Follow a slab to its end; who was left behind joins again, and sees the present."""
        reason = await self._read_to_end(part, peer_id)
        while await self._goes_on(part, peer_id):
            reason = await self._read_to_end(part, peer_id)
        self._say(self._scene.end(part.slab, reason))
        if self._scene.is_over:
            self._done.set()

    async def _goes_on(self, part: PublishedSlab, peer_id: int) -> bool:
        """Say, after a while in which its peer may leave, whether a slab is to be joined again."""
        if self._scene.slabs[part.slab].step == part.steps:
            return False
        await trio.sleep(PAUSE)
        peer = self._client.peers.get(peer_id)
        return peer is not None and published_slab_of(peer) == part

    async def _read_to_end(self, part: PublishedSlab, peer_id: int) -> str:
        """Read one stream of a slab; return why it ended."""
        try:
            await self._read(part, peer_id)
        except (SphtpError, trio.BrokenResourceError) as error:
            return str(error)
        return "its stream ended"

    async def _read(self, part: PublishedSlab, peer_id: int) -> None:
        # Of the past only the last frame is there, and fetching one that is lost would bring none.
        topic = topic_of(part.slab)
        async with self._client.subscribe(peer_id, topic, late_join=True, recover=False) as stream:
            self._say(self._scene.join(part, peer_id))
            async for item in stream:
                for news in self._news_of(part.slab, item):
                    self._say(news)
                if self._goal.is_reached(self._scene):
                    self._done.set()

    def _news_of(self, slab: int, item: object) -> list[WatchEvent]:
        if isinstance(item, Loss):
            lost = self._scene.lose(slab, item)
            return [] if lost is None else [lost]
        try:
            frame = read_frame_untrusted(item)
        except RemoteError:
            self._scene.malformed += 1
            return []
        return [*self._scene.take(trio.current_time(), slab, frame)]


LOOK_EVERY: Final = 0.25
"""Seconds between two looks at a scene in which nothing happens."""

BYSTANDER: Final = {"watches": "slabs"}
"""What a watcher tells of itself: it has no slab, so no peer takes it for one of its own."""


class Watcher:
    """Watches one simulation; ``outcome`` says how that ended."""

    def __init__(
        self, reach: ConnectionSettings, goal: StopCondition, display: WatchDisplay
    ) -> None:
        self.outcome: WatchOutcome = "stopped"
        self._reach = reach
        self._goal = goal
        self._display = display

    async def run(self) -> None:
        """Register, find a simulation and follow it.

        Raises ``UnreachableError`` when none appears, or with ``once`` not all of it, and as
        ``open_client``.
        """
        async with self._reach.open(BYSTANDER) as client:
            scene = SimulationView(await self._find(client))
            try:
                await self._watch(client, scene)
            finally:
                self._display.finish(trio.current_time(), scene, scene.summary(self.outcome))
        if self._goal.once and not scene.is_complete:
            seen = f"{len(scene.steps)} of {scene.run.slabs} slabs were seen"
            raise UnreachableError(f"{seen} within {self._patience:g} s")

    async def _find(self, client: Client) -> RunIdentity:
        wait = self._reach.wait
        try:
            peer = await client.wait_for_peer(
                lambda peer: published_slab_of(peer) is not None, timeout=wait
            )
        except UnreachableError as error:
            text = f"waited {wait:g} s for a simulation, and none appeared"
            raise UnreachableError(text) from error
        part = published_slab_of(peer)
        assert part is not None, "that is what was waited for"
        return part.run

    async def _watch(self, client: Client, scene: SimulationView) -> None:
        follower = SlabFollower(client, scene, self._goal, self._display.say)
        with trio.move_on_after(self._patience) as patience:
            async with running(partial(self._keep_showing, scene)):
                await follower.run()
        is_enough = self._goal.is_reached(scene) or patience.cancelled_caught
        ending: WatchOutcome = "finished" if scene.is_finished else "broken off"
        self.outcome = "seen" if is_enough else ending

    @property
    def _patience(self) -> float:
        if self._goal.seconds is not None:
            return self._goal.seconds
        return self._reach.wait if self._goal.once else inf

    async def _keep_showing(self, scene: SimulationView) -> None:
        while True:
            self._display.show(trio.current_time(), scene)
            await trio.sleep(LOOK_EVERY)
