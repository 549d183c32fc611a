"""The events of ``sphtp watch``: one JSON object per line with ``--json``."""

from typing import Literal

from sphtp_client.simulation.frames import Momentum
from sphtp_client.simulation.reports import EventRecord


class SlabJoined(EventRecord):
    """The event that the watcher has joined the stream of a slab."""

    event: Literal["joined"] = "joined"
    slab: int
    slabs: int
    steps: int
    id: int
    name: str = ""
    scenario: str


class SlabState(EventRecord):
    """The event of a slab's state after a step; energy in J, momentum in kg m/s.

    ``lag`` is the number of steps behind the newest state of any slab, and ``skipped`` the number
    of frames that the publisher has left out so far. ``sha256`` is a digest of ids, positions and
    velocities.
    """

    event: Literal["state"] = "state"
    slab: int
    step: int
    spheres: int
    kinetic: float
    momentum: Momentum
    sha256: str
    lag: int
    skipped: int


class WholeState(EventRecord):
    """The event of the state of all slabs after the same step.

    ``state_sha256`` is the digest that the simulation itself reports for this state.
    """

    event: Literal["whole"] = "whole"
    step: int
    spheres: int
    kinetic: float
    momentum: Momentum
    state_sha256: str


class FramesLost(EventRecord):
    """The event that frames are lost, with the numbers of their messages in the stream."""

    event: Literal["lost"] = "lost"
    slab: int
    first: int
    last: int
    reason: str
    text: str


class SlabEnded(EventRecord):
    """The event that a slab is no longer watched, with the reason.

    ``step`` is the step of its last frame; None without a frame.
    """

    event: Literal["ended"] = "ended"
    slab: int
    step: int | None
    reason: str


WatchOutcome = Literal["finished", "seen", "stopped", "broken off"]


class WatchSummary(EventRecord):
    """The event at the end of watching.

    ``outcome`` is "finished" if the simulation ended, "seen" if an option ended the command,
    "broken off" if the simulation stopped too early, and "stopped" after a signal.
    """

    event: Literal["summary"] = "summary"
    outcome: WatchOutcome
    step: int | None
    frames: int
    losses: int
    malformed: int


WatchEvent = SlabJoined | SlabState | WholeState | FramesLost | SlabEnded | WatchSummary
