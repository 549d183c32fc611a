"""The watcher: a client that takes part in nothing, and follows the slabs of a simulation."""

from functools import partial
from math import inf
from typing import Final

import trio

from sphtp import Client
from sphtp.errors import UnreachableError
from sphtp.shell.lifetime import running
from sphtp_client.connection import Reach
from sphtp_client.watch.display import Display
from sphtp_client.watch.events import Outcome
from sphtp_client.watch.follower import Follower
from sphtp_client.watch.goal import Goal
from sphtp_client.watch.part import Run, part_of
from sphtp_client.watch.scene import Scene

LOOK_EVERY: Final = 0.25
"""Seconds between two looks at a scene in which nothing happens."""

BYSTANDER: Final = {"watches": "slabs"}
"""What a watcher tells of itself: it has no slab, so no peer takes it for one of its own."""


class Watcher:
    """Watches one simulation; ``outcome`` says how that ended."""

    def __init__(self, reach: Reach, goal: Goal, display: Display) -> None:
        self.outcome: Outcome = "stopped"
        self._reach = reach
        self._goal = goal
        self._display = display

    async def run(self) -> None:
        """Register, find a simulation and follow it.

        Raises ``UnreachableError`` when none appears, or with ``once`` not all of it, and as
        ``open_client``.
        """
        async with self._reach.open(BYSTANDER) as client:
            scene = Scene(await self._find(client))
            try:
                await self._watch(client, scene)
            finally:
                self._display.finish(trio.current_time(), scene, scene.summary(self.outcome))
        if self._goal.once and not scene.is_complete:
            seen = f"{len(scene.steps)} of {scene.run.slabs} slabs were seen"
            raise UnreachableError(f"{seen} within {self._patience:g} s")

    async def _find(self, client: Client) -> Run:
        wait = self._reach.wait
        try:
            peer = await client.wait_for_peer(lambda peer: part_of(peer) is not None, timeout=wait)
        except UnreachableError as error:
            text = f"waited {wait:g} s for a simulation, and none appeared"
            raise UnreachableError(text) from error
        part = part_of(peer)
        assert part is not None, "that is what was waited for"
        return part.run

    async def _watch(self, client: Client, scene: Scene) -> None:
        follower = Follower(client, scene, self._goal, self._display.say)
        with trio.move_on_after(self._patience) as patience:
            async with running(partial(self._keep_showing, scene)):
                await follower.run()
        is_enough = self._goal.is_reached(scene) or patience.cancelled_caught
        ending: Outcome = "finished" if scene.is_finished else "broken off"
        self.outcome = "seen" if is_enough else ending

    @property
    def _patience(self) -> float:
        if self._goal.seconds is not None:
            return self._goal.seconds
        return self._reach.wait if self._goal.once else inf

    async def _keep_showing(self, scene: Scene) -> None:
        while True:
            self._display.show(trio.current_time(), scene)
            await trio.sleep(LOOK_EVERY)
