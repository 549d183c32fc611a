"""How fast a slab goes, told now and then."""

from collections.abc import Callable

import trio

from sphtp_client.events import LinkReport, Progress
from sphtp_client.reporter import Reporter
from sphtp_client.slab import Slab

TELL_EVERY = 0.5  # seconds


class Pace:
    """Counts steps from its making on; ``on_step`` is for ``run_slab``."""

    def __init__(
        self,
        steps: int,
        reporter: Reporter,
        links: Callable[[], tuple[LinkReport, ...]] = tuple,
        servers: Callable[[], tuple[int, ...]] = tuple,
    ) -> None:
        self._steps = steps
        self._reporter = reporter
        self._links = links
        self._servers = servers
        self._began = self._told = trio.current_time()
        self._told_step = 0

    @property
    def seconds(self) -> float:
        """Time since the first step."""
        return trio.current_time() - self._began

    async def on_step(self, slab: Slab) -> None:
        """Tell how far it is, unless that was done a moment ago."""
        # Without neighbours nothing else lets the heartbeats through.
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        if now - self._told < TELL_EVERY and slab.step > 1:
            return
        speed = (slab.step - self._told_step) / max(now - self._told, 1e-9)
        self._told, self._told_step = now, slab.step
        self._reporter.say(
            Progress(
                step=slab.step,
                steps=self._steps,
                steps_per_s=round(speed, 1),
                servers=self._servers(),
                links=self._links(),
            )
        )
