"""The task of each process of this measurement."""

from dataclasses import dataclass
from enum import StrEnum

from sphtp_benchmarks.side_task import SideTask


class FloodSide(StrEnum):
    """The three processes: one answers and is flooded, one asks and measures, one floods."""

    VICTIM = "victim"
    FRIEND = "friend"
    FLOOD = "flood"


@dataclass(frozen=True, kw_only=True)
class FloodTask(SideTask):
    """Ask for ``seconds`` in quiet, and for as long while ``rate`` datagrams a second come.

    ``seed`` decides what they hold.
    """

    rate: int
    seconds: float
    seed: int
    port: int = 0
