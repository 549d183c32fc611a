"""Lanes, and the kinds of delivery that a message can ask for."""

from dataclasses import dataclass
from enum import Enum, auto

from sphtp.errors import SettingsError

MOST_LANES = 64
# The high bit of a frame's lane byte: messages need not wait for those before them, or, of
# unreliable ones, those overtaken are dropped.
FLAG = 0x80


class Delivery(Enum):
    """What the channel promises for a message."""

    RELIABLE = auto()
    """It arrives, in the lane's order."""
    UNRELIABLE = auto()
    """It is sent once, and may be lost, or overtaken."""
    SEQUENCED = auto()
    """It is sent once; if a later one of its lane came first, it is dropped: latest only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One of a channel's lanes. Each has an order of its own, so that none blocks another.

    What waits in a lane of higher ``priority`` leaves first; lanes of equal priority share by
    ``weight``. In a lane that is not ``ordered``, reliable messages are delivered as they arrive.
    """

    priority: int = 0
    weight: float = 1.0
    ordered: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise SettingsError(f"a lane's weight is {self.weight}; allowed is more than 0")


def check_lanes(lanes: tuple[Lane, ...]) -> None:
    """Raise ``SettingsError`` for too few or too many lanes."""
    if not 1 <= len(lanes) <= MOST_LANES:
        raise SettingsError(f"lanes has {len(lanes)} entries; allowed is 1 to {MOST_LANES}")
