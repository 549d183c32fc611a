"""The task of each process of this measurement."""

from dataclasses import dataclass
from enum import StrEnum

from sphtp.config import ChannelSettings
from sphtp_benchmarks.side_task import SideTask


class CompanySide(StrEnum):
    """The two processes: one dials and is measured, the other one answers."""

    HOST = "host"
    GUEST = "guest"


@dataclass(frozen=True, kw_only=True)
class CompanyTask(SideTask):
    """The task to open ``channels`` idle channels beside a busy one.

    Each rate is measured for ``seconds``. In ``interval`` seconds, every idle channel sends one
    keepalive. Their processor time is measured for one interval, because a shorter time has more
    keepalives than its share, or fewer. Before that, memory and timers settle for two intervals.
    With ``traced``, Python counts the memory that it allocates, which makes everything slower.
    """

    channels: int
    seconds: float = 1.0
    interval: float = ChannelSettings().keepalive_interval
    traced: bool = False
    port: int = 0
