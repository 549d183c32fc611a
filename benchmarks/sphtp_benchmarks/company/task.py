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

    Each rate is measured for ``seconds``. Memory settles for ``interval`` seconds, in which every
    idle channel sends one keepalive, and the processor time of the idle channels is measured for as
    long: any shorter time has more of them, or fewer, than its share. With ``traced``, Python
    counts the memory that it allocates, which makes everything slower.
    """

    channels: int
    seconds: float = 1.0
    interval: float = ChannelSettings().keepalive_interval
    traced: bool = False
    port: int = 0
