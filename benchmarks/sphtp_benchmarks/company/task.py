"""The task of each process of this measurement."""

from dataclasses import dataclass
from enum import StrEnum

from sphtp_benchmarks.side_task import SideTask


class CompanySide(StrEnum):
    """The two processes: one dials and is measured, the other one answers."""

    HOST = "host"
    GUEST = "guest"


@dataclass(frozen=True, kw_only=True)
class CompanyTask(SideTask):
    """Open this many idle channels beside a busy one.

    ``seconds`` is for each rate, ``settling`` for memory to settle: in that time every idle channel
    says that it is alive, and is answered. ``traced`` counts what Python allocates, which makes
    everything slower.
    """

    channels: int
    seconds: float = 1.0
    settling: float = 2.5
    traced: bool = False
    port: int = 0
