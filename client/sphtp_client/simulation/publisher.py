"""The publisher of a slab: frames now and then, for whoever watches.

The simulation comes first. Frames leave at a bounded rate and take a small share of the time at
most; nothing waits for a watcher, and a frame that finds no room is skipped and counted.
"""

from collections.abc import Callable
from time import thread_time
from typing import Any, Final, Protocol

import trio

from sphtp import StreamSettings
from sphtp_client.simulation.frames import frame_of
from sphtp_client.simulation.slabs import Slab

EVERY: Final = 0.1
"""Seconds between two frames, at least."""

SHARE: Final = 0.02
"""Of the time, what publishing may take."""

SLACK: Final = 0.6
"""Of a stride that is too long, in intervals; over a half, or it would be doubled again."""

FRAMES: Final = StreamSettings.lan(retention_count=1, window_age=10.0)
"""Of a stream of frames: whoever comes late wants the present state and nothing before."""


class Rhythm:
    """Says at which steps there is a frame: at multiples of a stride, which is a power of two.

    Each slab goes by its own clock, but their strides divide each other: so slabs that are equally
    fast have frames of the same steps, which together show the whole state.
    """

    def __init__(self, every: float = EVERY) -> None:
        self._every = every
        self._interval = every
        self._stride = 1
        self._told = float("-inf")

    def is_due(self, step: int, now: float) -> bool:
        """Say whether it is time for a frame; the fewer twos divide a step, the longer it waits."""
        power = min(step & -step, self._stride)
        if power < self._stride:
            return now - self._told >= SLACK * self._interval * self._stride / power
        if now - self._told >= self._interval:
            return True
        self._stride *= 2
        return False

    def note(self, step: int, now: float, cost: float) -> None:
        """Take it that there was a frame, at the cost of so many seconds' work."""
        self._stride = min(step & -step, self._stride) or self._stride
        self._interval = max(self._every, cost / SHARE)
        self._told = now


class Outlet(Protocol):
    """What takes frames: a ``Source``."""

    def send_nowait(self, value: Any) -> object:
        """Send a message, or raise ``trio.WouldBlock`` when there is no room."""
        ...


class Publisher:
    """Publishes a slab's state: when it is due, and at the last one of ``steps``.

    ``work`` is a clock that stands still while the process waits for its turn.
    """

    def __init__(
        self,
        outlet: Outlet,
        steps: int,
        clock: Callable[[], float] = trio.current_time,
        work: Callable[[], float] = thread_time,
    ) -> None:
        self.skipped = 0
        """Frames that found no room."""
        self._outlet = outlet
        self._steps = steps
        self._clock = clock
        self._work = work
        self._rhythm = Rhythm()

    def on_step(self, slab: Slab) -> None:
        """Publish the state if it is time to."""
        if slab.step == self._steps or self._rhythm.is_due(slab.step, self._clock()):
            self.publish(slab)

    def publish(self, slab: Slab) -> None:
        """Publish the state, or skip it."""
        began = self._work()
        try:
            self._outlet.send_nowait(frame_of(slab, self.skipped))
        except trio.WouldBlock:
            self.skipped += 1
        self._rhythm.note(slab.step, self._clock(), self._work() - began)
