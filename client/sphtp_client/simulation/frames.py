"""Frames: the state of a slab, published now and then for watchers.

A frame is a map: ``step``; ``skipped``, how many frames before it found no room; ``kinetic`` in J
and ``momentum`` in kg m/s of the slab's spheres; and columns of bytes, little-endian, in order of
ids: ``id`` has a u32 for each sphere, ``x`` in m and ``v`` in m/s have three f64. Radius and mass
follow from the id and the scenario, so they do not travel.

The simulation comes first. Frames leave at a bounded rate and take a small share of the time at
most; nothing waits for a watcher, and a frame that finds no room is skipped and counted.
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
"""JSON readers do not distinguish larger numbers."""


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
    """Return the frame in a message. Raises ``RemoteError`` if the message is no frame."""
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
    """Return the digest of the spheres in all these frames.

    Frames of all slabs after one step give the digest of the run's state.
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
"""Seconds between two frames, at least."""

SHARE: Final = 0.02
"""The share of the time that publishing may take."""

SLACK: Final = 0.6
"""Of a stride that is too long, in intervals; over a half, or it would be doubled again."""

FRAMES: Final = StreamSettings.lan(retention_count=1, window_age=10.0)
"""Settings of a stream of frames: late joiners need only the present state."""


class FrameSchedule:
    """The steps at which there is a frame: multiples of a stride, which is a power of two.

    Each slab goes by its own clock, but their strides divide each other: so slabs that are equally
    fast have frames of the same steps, which together show the whole state.
    """

    def __init__(self, every: float = EVERY) -> None:
        self._every = every
        self._interval = every
        self._stride = 1
        self._reported = float("-inf")

    def is_due(self, step: int, now: float) -> bool:
        """Return whether a frame is due.

        A step that is no multiple of the stride has a longer wait, which doubles with each factor
        of two that it has less than the stride.
        """
        power = min(step & -step, self._stride)
        if power < self._stride:
            return now - self._reported >= SLACK * self._interval * self._stride / power
        if now - self._reported >= self._interval:
            return True
        self._stride *= 2
        return False

    def note(self, step: int, now: float, cost: float) -> None:
        """Note a frame, and the seconds of work that it cost."""
        self._stride = min(step & -step, self._stride) or self._stride
        self._interval = max(self._every, cost / SHARE)
        self._reported = now


class FrameSink(Protocol):
    """The recipient of frames: a ``Source``."""

    def send_nowait(self, value: Any) -> object:
        """Send a message, or raise ``trio.WouldBlock`` when there is no room."""
        ...


class FramePublisher:
    """The publisher of a slab's state, at due steps and at the last one of ``steps``.

    ``work`` is a clock that stands still while the process waits for its turn.
    """

    def __init__(
        self,
        sink: FrameSink,
        steps: int,
        clock: Callable[[], float] = trio.current_time,
        work: Callable[[], float] = thread_time,
    ) -> None:
        self.skipped = 0
        """Frames that found no room."""
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
        """Publish the state, or skip it."""
        began = self._work()
        try:
            self._sink.send_nowait(frame_of(slab, self.skipped))
        except trio.WouldBlock:
            self.skipped += 1
        self._schedule.note(slab.step, self._clock(), self._work() - began)
