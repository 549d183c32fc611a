"""Following: a subscription to each slab of a simulation, as soon as its peer is there."""

from collections.abc import Callable
from typing import Final

import trio

from sphtp import Client, Loss
from sphtp.errors import RemoteError, SphtpError
from sphtp_client.simulation.frames import read_frame_untrusted, topic_of
from sphtp_client.watch.events import News
from sphtp_client.watch.goal import Goal
from sphtp_client.watch.part import Part, part_of
from sphtp_client.watch.scene import Scene

PAUSE: Final = 0.5
"""Seconds before a stream is joined again that ended too soon."""


class Follower:
    """Subscribes to the slabs of a scene's run, and tells what is new to ``say``."""

    def __init__(
        self, client: Client, scene: Scene, goal: Goal, say: Callable[[News], None]
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
            part = part_of(peer)
            if part is not None and part.run == scene.run and part.slab not in scene.slabs:
                scene.expect(part.slab)
                nursery.start_soon(self._follow, part, peer.id)

    async def _follow(self, part: Part, peer_id: int) -> None:
        """Follow a slab to its end; who was left behind joins again, and sees the present."""
        reason = await self._read_to_end(part, peer_id)
        while await self._goes_on(part, peer_id):
            reason = await self._read_to_end(part, peer_id)
        self._say(self._scene.end(part.slab, reason))
        if self._scene.is_over:
            self._done.set()

    async def _goes_on(self, part: Part, peer_id: int) -> bool:
        """Say, after a while in which its peer may leave, whether a slab is to be joined again."""
        if self._scene.slabs[part.slab].step == part.steps:
            return False
        await trio.sleep(PAUSE)
        peer = self._client.peers.get(peer_id)
        return peer is not None and part_of(peer) == part

    async def _read_to_end(self, part: Part, peer_id: int) -> str:
        """Read one stream of a slab; return why it ended."""
        try:
            await self._read(part, peer_id)
        except (SphtpError, trio.BrokenResourceError) as error:
            return str(error)
        return "its stream ended"

    async def _read(self, part: Part, peer_id: int) -> None:
        # Of the past only the last frame is there, and fetching one that is lost would bring none.
        topic = topic_of(part.slab)
        async with self._client.subscribe(peer_id, topic, late_join=True, recover=False) as stream:
            self._say(self._scene.join(part, peer_id))
            async for item in stream:
                for news in self._news_of(part.slab, item):
                    self._say(news)
                if self._goal.is_reached(self._scene):
                    self._done.set()

    def _news_of(self, slab: int, item: object) -> list[News]:
        if isinstance(item, Loss):
            lost = self._scene.lose(slab, item)
            return [] if lost is None else [lost]
        try:
            frame = read_frame_untrusted(item)
        except RemoteError:
            self._scene.malformed += 1
            return []
        return [*self._scene.take(trio.current_time(), slab, frame)]
