"""The state of a watched simulation: its slabs, and the last state of all slabs together.

It has no I/O: ``watcher`` passes in the frames of peers, and ``display`` draws the state.
"""

from dataclasses import dataclass
from math import fsum
from typing import Final, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from sphtp import Loss, Peer
from sphtp.streams import LossReason
from sphtp_client.simulation.frames import Frame, frames_sha256, topic_of
from sphtp_client.simulation.reports import EventRecord
from sphtp_client.watch.events import (
    FramesLost,
    SlabEnded,
    SlabJoined,
    SlabState,
    WatchOutcome,
    WatchSummary,
    WholeState,
)


class RunIdentity(NamedTuple):
    """The identity of a simulation.

    It is the numbers of slabs and steps, the digest of the scenario, and the name of the run.
    """

    slabs: int
    steps: int
    scenario: str
    name: str = ""


class PublishedSlab(EventRecord):
    """The slab that a peer simulates, in the peer's data."""

    slab: int = Field(strict=True, ge=0)
    slabs: int = Field(strict=True, ge=1)
    steps: int = Field(strict=True, ge=0)
    scenario: str = Field(strict=True, max_length=64)
    name: str = Field("", strict=True, alias="run")

    @property
    def run(self) -> RunIdentity:
        """The identity of the simulation to which the slab belongs."""
        return RunIdentity(self.slabs, self.steps, self.scenario, self.name)

    @model_validator(mode="after")
    def _is_among_them(self) -> Self:
        if self.slab >= self.slabs:
            raise ValueError(f"slab {self.slab} of {self.slabs}")
        return self


def published_slab_of(peer: Peer) -> PublishedSlab | None:
    """Return the slab that a peer publishes; None if it publishes none."""
    try:
        published = PublishedSlab.model_validate(peer.data)
    except ValidationError:
        return None
    return published if topic_of(published.slab) in peer.topics else None


MOST_STEPS: Final = 8
"""The most incomplete steps whose frames are stored."""


class StepAssembly:
    """The assembly of complete steps from the frames of ``slabs`` slabs.

    It stores at most ``MOST_STEPS`` incomplete steps, and drops the oldest beyond that.
    """

    def __init__(self, slabs: int) -> None:
        self._slabs = slabs
        self._parts: dict[int, dict[int, Frame]] = {}
        self._done = -1

    def add(self, slab: int, frame: Frame) -> tuple[Frame, ...] | None:
        """Add a slab's frame; return the frames of all slabs if it completes its step."""
        if frame.step <= self._done:
            return None
        parts = self._parts.setdefault(frame.step, {})
        parts[slab] = frame
        if len(parts) < self._slabs:
            if len(self._parts) > MOST_STEPS:
                del self._parts[min(self._parts)]
            return None
        self._done = frame.step
        self._parts = {step: some for step, some in self._parts.items() if step > frame.step}
        return tuple(parts[number] for number in sorted(parts))


@dataclass(slots=True)
class SlabView:
    """The watched state of one slab. ``seen_at`` is the time at which its last frame arrived.

    ``past`` is the step of the last frame before the watcher joined its stream again.
    """

    frame: Frame | None = None
    past: int | None = None
    seen_at: float | None = None
    frames: int = 0
    losses: int = 0
    ended: str | None = None

    @property
    def step(self) -> int | None:
        """The step of the last frame; None without a frame."""
        return None if self.frame is None else self.frame.step


class SimulationView:
    """The state of a watched simulation. ``whole`` is the last state with frames of all slabs."""

    def __init__(self, run: RunIdentity) -> None:
        self.run = run
        self.slabs: dict[int, SlabView] = {}
        self.whole: WholeState | None = None
        self.malformed = 0
        """The number of malformed messages."""
        self.first: int | None = None
        """The step of the first frame."""
        self._assembly = StepAssembly(run.slabs)

    @property
    def steps(self) -> list[int]:
        """The step of the last frame of each slab that has a frame."""
        return [
            slab_view.frame.step for slab_view in self.slabs.values() if slab_view.frame is not None
        ]

    @property
    def newest(self) -> int | None:
        """The highest step in a frame of any slab; None without a frame."""
        return max(self.steps, default=None)

    @property
    def losses(self) -> int:
        """The number of losses in all slabs."""
        return sum(slab_view.losses for slab_view in self.slabs.values())

    @property
    def is_complete(self) -> bool:
        """True if there is a frame of every slab."""
        return len(self.steps) == self.run.slabs

    @property
    def is_finished(self) -> bool:
        """True if a frame of the last step arrived; a slab k places away lags at most k steps."""
        return self.newest == self.run.steps

    @property
    def is_over(self) -> bool:
        """True if the watching of every slab has ended."""
        slab_views = self.slabs.values()
        return bool(slab_views) and all(slab_view.ended is not None for slab_view in slab_views)

    def join(self, published: PublishedSlab, peer_id: int, name: str = "") -> SlabJoined:
        """Note that the watcher has joined a slab's stream, for the first time or again."""
        slab_view = self.slabs[published.slab]
        slab_view.past = slab_view.step
        return SlabJoined(
            slab=published.slab,
            slabs=published.slabs,
            steps=published.steps,
            id=peer_id,
            name=name,
            scenario=published.scenario,
        )

    def expect(self, slab: int) -> None:
        """Add a slab, whose stream the watcher is going to join."""
        self.slabs[slab] = SlabView()

    def take(self, now: float, slab: int, frame: Frame) -> list[SlabState | WholeState]:
        """Store a frame; return the events that it causes."""
        slab_view = self.slabs[slab]
        slab_view.seen_at = now
        if slab_view.step is not None and frame.step <= slab_view.step:
            return []  # a repetition after the stream was joined again
        slab_view.frame = frame
        slab_view.frames += 1
        self.first = frame.step if self.first is None else self.first
        frames = self._assembly.add(slab, frame)
        if frames is None:
            return [self._state(slab, frame)]
        self.whole = _whole(frames)
        return [self._state(slab, frame), self.whole]

    def lose(self, slab: int, loss: Loss) -> FramesLost | None:
        """Count a loss, and return its event.

        Return None, without counting, for a retained frame that a newer one has replaced.
        """
        slab_view = self.slabs[slab]
        if slab_view.step == slab_view.past and loss.reason is LossReason.GONE:
            return None
        slab_view.losses += 1
        reason, text = loss.reason.name.lower(), str(loss.reason.value)
        return FramesLost(slab=slab, first=loss.first, last=loss.last, reason=reason, text=text)

    def end(self, slab: int, reason: str) -> SlabEnded:
        """Note that the watching of a slab has ended."""
        slab_view = self.slabs[slab]
        slab_view.ended = reason
        return SlabEnded(slab=slab, step=slab_view.step, reason=reason)

    def summary(self, outcome: WatchOutcome) -> WatchSummary:
        """Return the event at the end of watching."""
        return WatchSummary(
            outcome=outcome,
            step=self.newest,
            frames=sum(slab_view.frames for slab_view in self.slabs.values()),
            losses=self.losses,
            malformed=self.malformed,
        )

    def lag_of(self, slab: int) -> int:
        """Return the number of steps by which a slab's last frame is behind the newest one."""
        step = self.slabs[slab].step
        return 0 if step is None else max(self.steps) - step

    def _state(self, slab: int, frame: Frame) -> SlabState:
        return SlabState(
            slab=slab,
            step=frame.step,
            spheres=len(frame),
            kinetic=frame.kinetic,
            momentum=frame.momentum,
            sha256=frames_sha256([frame]),
            lag=self.lag_of(slab),
            skipped=frame.skipped,
        )


def _whole(frames: tuple[Frame, ...]) -> WholeState:
    x, y, z = (fsum(frame.momentum[axis] for frame in frames) for axis in range(3))
    return WholeState(
        step=frames[0].step,
        spheres=sum(map(len, frames)),
        kinetic=fsum(frame.kinetic for frame in frames),
        momentum=(x, y, z),
        state_sha256=frames_sha256(frames),
    )
