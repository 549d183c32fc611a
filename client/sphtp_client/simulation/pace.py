"""How fast a slab goes, told now and then."""

from collections.abc import Callable

import trio

from sphtp_client.simulation.events import LinkReport, Progress
from sphtp_client.simulation.reporter import Reporter
from sphtp_client.simulation.slabs import Slab


class Pace:
    """Counts steps from its making on; ``on_step`` is for ``run_slab``.

    It tells the reporter of the first step, and from then on as often as that one wants to hear.
    """

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
        self._began = trio.current_time()
        self._told: tuple[float, int] | None = None  # when, and which step

    @property
    def seconds(self) -> float:
        """Time since the first step."""
        return trio.current_time() - self._began

    async def on_step(self, slab: Slab) -> None:
        """Tell how far it is, unless that was done a moment ago."""
        # Without neighbours nothing else lets the heartbeats through.
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        if self._told is not None and now - self._told[0] < self._reporter.progress_every:
            return
        speed = None if self._told is None else self._speed_since(*self._told, now, slab.step)
        self._told = now, slab.step
        self._reporter.say(
            Progress(
                step=slab.step,
                steps=self._steps,
                steps_per_s=speed,
                servers=self._servers(),
                links=self._links(),
            )
        )

    @staticmethod
    def _speed_since(then: float, before: int, now: float, step: int) -> float:
        return round((step - before) / max(now - then, 1e-9), 1)
