"""The events of ``sphtp watch``: one JSON object per line with ``--json``."""

from typing import Literal

from sphtp_client.simulation.frames import Momentum
from sphtp_client.simulation.reports import EventRecord


class SlabJoined(EventRecord):
    """The event that the stream of a slab was joined."""

    event: Literal["joined"] = "joined"
    slab: int
    slabs: int
    steps: int
    id: int
    name: str = ""
    scenario: str


class SlabState(EventRecord):
    """A slab's state after a step; energy in J, momentum in kg m/s.

    ``lag`` is how many steps it is behind the newest state of any slab, ``skipped`` how many frames
    its publisher has left out so far, ``sha256`` a digest of ids, positions and velocities.
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
    """The state of all slabs after the same step; ``state_sha256`` is that of the simulation."""

    event: Literal["whole"] = "whole"
    step: int
    spheres: int
    kinetic: float
    momentum: Momentum
    state_sha256: str


class FramesLost(EventRecord):
    """Frames that are lost, by the numbers of their parts in the stream."""

    event: Literal["lost"] = "lost"
    slab: int
    first: int
    last: int
    reason: str
    text: str


class SlabEnded(EventRecord):
    """A slab that is not watched any more, and the reason; ``step`` is the last one seen."""

    event: Literal["ended"] = "ended"
    slab: int
    step: int | None
    reason: str


WatchOutcome = Literal["finished", "seen", "stopped", "broken off"]


class WatchSummary(EventRecord):
    """The end: ``outcome`` is "finished" for the simulation's end, "seen" if enough was seen."""

    event: Literal["summary"] = "summary"
    outcome: WatchOutcome
    step: int | None
    frames: int
    losses: int
    malformed: int


WatchEvent = SlabJoined | SlabState | WholeState | FramesLost | SlabEnded | WatchSummary
