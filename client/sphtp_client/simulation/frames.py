"""Frames: the state of a slab, published at intervals for watchers.

A frame is a map: ``step``; ``skipped``, the number of frames skipped so far; ``kinetic`` energy in
J and ``momentum`` in kg m/s of the slab's spheres; and columns of bytes, little-endian, in order of
ids: ``id`` has a u32 for each sphere, ``x`` in m and ``v`` in m/s have three f64. Radius and mass
are determined by the id and the scenario, so frames do not contain them.

The simulation has priority. Frames leave at a bounded rate and take at most a small share of the
time. The simulation never waits for a watcher: it skips and counts a frame for which the stream has
no room.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite
from time import thread_time
from typing import Any, Final, Protocol

import numpy as np
import trio

from sphtp.config import StreamSettings
from sphtp.errors import WireError, untrusted
from sphtp_client.simulation.observables import observe_motion
from sphtp_client.simulation.slabs import Slab
from sphtp_client.simulation.state import Floats, Ids, columns_sha256

Momentum = tuple[float, float, float]

MOST_STEPS: Final = 2**53
"""The largest numbers of steps and of skipped frames: readers of JSON may round larger numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A slab's state after ``step`` steps; ``x`` in m, ``v`` in m/s, in order of ids."""

    step: int
    skipped: int
    kinetic: float
    momentum: Momentum
    id: Ids
    x: Floats
    v: Floats

    def __len__(self) -> int:
        return len(self.id)


def topic_of(slab: int) -> str:
    """Return the topic on which a slab's frames are published."""
    return f"slab/{slab}"


def frame_of(slab: Slab, skipped: int) -> dict[str, Any]:
    """Return the frame of a slab's present state, as a message."""
    spheres = slab.spheres
    kinetic, momentum = observe_motion(spheres)
    return {
        "step": slab.step,
        "skipped": skipped,
        "kinetic": kinetic,
        "momentum": momentum,
        "id": spheres.id.astype("<u4").tobytes(),
        "x": spheres.x.astype("<f8").tobytes(),
        "v": spheres.v.astype("<f8").tobytes(),
    }


@untrusted
def read_frame_untrusted(message: object) -> Frame:
    """Return the frame in a message. Raises ``RemoteError`` if the message is malformed."""
    if not isinstance(message, dict):
        raise WireError(f"a frame is a map, not {type(message).__name__}")
    ids = np.frombuffer(_bytes(message, "id", 4), "<u4").astype(np.uint32)
    if np.any(ids[1:] <= ids[:-1]):
        raise WireError("the ids of a frame are not in order")
    return Frame(
        step=_count(message, "step"),
        skipped=_count(message, "skipped"),
        kinetic=_finite(message.get("kinetic")),
        momentum=_momentum(message.get("momentum")),
        id=ids,
        x=_vectors(message, "x", len(ids)),
        v=_vectors(message, "v", len(ids)),
    )


def frames_sha256(frames: Iterable[Frame]) -> str:
    """Return the digest of the spheres in all frames.

    For the frames of all slabs after the same step, it is the digest of the run's state.
    """
    listed = list(frames)
    ids = np.concatenate([frame.id for frame in listed])
    order = np.argsort(ids)
    x = np.concatenate([frame.x for frame in listed])[order]
    v = np.concatenate([frame.v for frame in listed])[order]
    return columns_sha256(ids[order], x, v)


def _count(message: dict[Any, Any], key: str) -> int:
    value = message.get(key)
    if type(value) is not int or not 0 <= value <= MOST_STEPS:
        raise WireError(f"{key} of a frame is {value!r:.40}")
    return value


def _bytes(message: dict[Any, Any], key: str, grain: int) -> bytes:
    value = message.get(key)
    if not isinstance(value, bytes) or len(value) % grain:
        raise WireError(f"{key} of a frame is no column")
    return value


def _vectors(message: dict[Any, Any], key: str, count: int) -> Floats:
    values = np.frombuffer(_bytes(message, key, 8), "<f8").astype(np.float64)
    if len(values) != 3 * count or not np.isfinite(values).all():
        raise WireError(f"{key} of a frame is no column of {count} vectors")
    return values.reshape(count, 3)


def _momentum(value: object) -> Momentum:
    if not isinstance(value, list) or len(value) != 3:
        raise WireError("the momentum of a frame is no vector")
    x, y, z = map(_finite, value)
    return x, y, z


def _finite(value: object) -> float:
    if not isinstance(value, float) or not isfinite(value):
        raise WireError(f"a frame has {value!r:.40} where a number belongs")
    return value


EVERY: Final = 0.25
"""The shortest time between two frames, in seconds; the last frame may come earlier."""

SHARE: Final = 0.02
"""The largest share of the time for publishing."""

SLACK: Final = 0.6
"""A step that is no multiple of the stride waits for this many intervals, times the factor by which
it falls short. The figure is over a half, since the stride would otherwise be doubled again."""

FRAMES: Final = StreamSettings.lan(retention_count=1, window_age=10.0)
"""The settings of a stream of frames, which retains only the last frame for late joiners."""


class FrameSchedule:
    """The choice of the steps with a frame: multiples of a stride, which is a power of two.

    Each slab chooses its stride by its own clock. Since strides are powers of two, slabs of about
    equal speed publish frames of common steps, which together show the whole state.
    """

    def __init__(self, every: float = EVERY) -> None:
        self._every = every
        self._interval = every
        self._stride = 1
        self._reported = float("-inf")

    def is_due(self, step: int, now: float) -> bool:
        """Return True if a frame is due.

        For a step that is not a multiple of the stride, the wait is longer: it doubles with each
        factor of two by which the step falls short of the stride.
        """
        power = min(step & -step, self._stride)
        if power < self._stride:
            return now - self._reported >= SLACK * self._interval * self._stride / power
        if now - self._reported >= self._interval:
            return True
        self._stride *= 2
        return False

    def note(self, step: int, now: float, cost: float) -> None:
        """Note a frame of ``step`` at the time ``now``; ``cost`` is its processor time in s."""
        self._stride = min(step & -step, self._stride) or self._stride
        self._interval = max(self._every, cost / SHARE)
        self._reported = now


class FrameSink(Protocol):
    """The interface of a recipient of frames, which ``Source`` has."""

    def send_nowait(self, value: Any) -> object:
        """Send a message. Raises ``trio.WouldBlock`` if there is no room."""
        ...


class FramePublisher:
    """The publisher of a slab's state, at due steps and at the last step.

    ``steps`` is the number of the last step. ``work`` is a clock of the thread's processor time.
    """

    def __init__(
        self,
        sink: FrameSink,
        steps: int,
        clock: Callable[[], float] = trio.current_time,
        work: Callable[[], float] = thread_time,
    ) -> None:
        self.skipped = 0
        """The number of skipped frames."""
        self._sink = sink
        self._steps = steps
        self._clock = clock
        self._work = work
        self._schedule = FrameSchedule()

    def on_step(self, slab: Slab) -> None:
        """Publish the state if a frame is due."""
        if slab.step == self._steps or self._schedule.is_due(slab.step, self._clock()):
            self.publish(slab)

    def publish(self, slab: Slab) -> None:
        """Publish the state, or skip it if the stream has no room."""
        began = self._work()
        try:
            self._sink.send_nowait(frame_of(slab, self.skipped))
        except trio.WouldBlock:
            self.skipped += 1
        self._schedule.note(slab.step, self._clock(), self._work() - began)
