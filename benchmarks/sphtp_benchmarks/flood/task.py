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
    """The task to time round trips for ``seconds`` in quiet, and at least as long under the flood.

    The flood is ``rate`` datagrams per second, whose bytes depend on ``seed``.
    """

    rate: int
    seconds: float
    seed: int
    port: int = 0
