"""The watched part of a simulation: its slabs, and the last state of all of them together.

It performs nothing: ``watcher`` brings what peers publish, ``display`` draws what is here.
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
    """A simulation: its numbers of slabs and of steps, and the digest of its scenario."""

    slabs: int
    steps: int
    scenario: str


class PublishedSlab(EventRecord):
    """The slab that a peer simulates."""

    slab: int = Field(strict=True, ge=0)
    slabs: int = Field(strict=True, ge=1)
    steps: int = Field(strict=True, ge=0)
    scenario: str = Field(strict=True, max_length=64)

    @property
    def run(self) -> RunIdentity:
        """The identity of the run to which the frame belongs."""
        return RunIdentity(self.slabs, self.steps, self.scenario)

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
"""Steps whose frames wait for those of other slabs."""


class StepAssembly:
    """Puts together frames of ``slabs`` slabs, and waits for few steps at a time."""

    def __init__(self, slabs: int) -> None:
        self._slabs = slabs
        self._parts: dict[int, dict[int, Frame]] = {}
        self._done = -1

    def add(self, slab: int, frame: Frame) -> tuple[Frame, ...] | None:
        """Take a slab's frame; return those of all slabs if it was the last one of its step."""
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
    """The watched state of one slab; ``seen_at`` is the time of its last frame.

    ``past`` is the step of the last frame before its stream was joined anew.
    """

    frame: Frame | None = None
    past: int | None = None
    seen_at: float | None = None
    frames: int = 0
    losses: int = 0
    ended: str | None = None

    @property
    def step(self) -> int | None:
        """The last step seen."""
        return None if self.frame is None else self.frame.step


class SimulationView:
    """A simulation as it is watched: its slabs, and the last state that was seen of all of them."""

    def __init__(self, run: RunIdentity) -> None:
        self.run = run
        self.slabs: dict[int, SlabView] = {}
        self.whole: WholeState | None = None
        self.malformed = 0
        """Messages that were no frames."""
        self.first: int | None = None
        """The step of the first frame."""
        self._assembly = StepAssembly(run.slabs)

    @property
    def steps(self) -> list[int]:
        """The last steps of the slabs of which there is a frame."""
        return [
            slab_view.frame.step for slab_view in self.slabs.values() if slab_view.frame is not None
        ]

    @property
    def newest(self) -> int | None:
        """The last step seen of any slab."""
        return max(self.steps, default=None)

    @property
    def losses(self) -> int:
        """The number of losses."""
        return sum(slab_view.losses for slab_view in self.slabs.values())

    @property
    def is_complete(self) -> bool:
        """True if there is a frame of every slab."""
        return len(self.steps) == self.run.slabs

    @property
    def is_finished(self) -> bool:
        """True if the last step was seen; the other slabs cannot be more than one step behind."""
        return self.newest == self.run.steps

    @property
    def is_over(self) -> bool:
        """True if no slab is watched any more."""
        slab_views = self.slabs.values()
        return bool(slab_views) and all(slab_view.ended is not None for slab_view in slab_views)

    def join(self, published: PublishedSlab, peer_id: int, name: str = "") -> SlabJoined:
        """Note that a slab's stream was joined, for the first time or again."""
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
        """Note that a slab is going to be watched."""
        self.slabs[slab] = SlabView()

    def take(self, now: float, slab: int, frame: Frame) -> list[SlabState | WholeState]:
        """Take a frame; return the events that it causes."""
        slab_view = self.slabs[slab]
        slab_view.seen_at = now
        if slab_view.step is not None and frame.step <= slab_view.step:
            return []  # what it saw before it joined again
        slab_view.frame = frame
        slab_view.frames += 1
        self.first = frame.step if self.first is None else self.first
        frames = self._assembly.add(slab, frame)
        if frames is None:
            return [self._state(slab, frame)]
        self.whole = _whole(frames)
        return [self._state(slab, frame), self.whole]

    def lose(self, slab: int, loss: Loss) -> FramesLost | None:
        """Note a loss; return None for an old frame that a newer one has replaced."""
        slab_view = self.slabs[slab]
        if slab_view.step == slab_view.past and loss.reason is LossReason.GONE:
            return None
        slab_view.losses += 1
        reason, text = loss.reason.name.lower(), str(loss.reason.value)
        return FramesLost(slab=slab, first=loss.first, last=loss.last, reason=reason, text=text)

    def end(self, slab: int, reason: str) -> SlabEnded:
        """Note that a slab is not watched any more."""
        slab_view = self.slabs[slab]
        slab_view.ended = reason
        return SlabEnded(slab=slab, step=slab_view.step, reason=reason)

    def summary(self, outcome: WatchOutcome) -> WatchSummary:
        """Return the summary that is printed when watching ends."""
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
