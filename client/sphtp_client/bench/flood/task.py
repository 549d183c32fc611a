"""What a process of this measurement is told to do."""

from dataclasses import dataclass
from enum import StrEnum

from sphtp_client.bench.told import Told


class Side(StrEnum):
    """Who answers and is flooded, who asks and measures, and who floods."""

    VICTIM = "victim"
    FRIEND = "friend"
    FLOOD = "flood"


@dataclass(frozen=True, kw_only=True)
class Task(Told):
    """Ask for ``seconds`` in quiet, and for as long while ``rate`` datagrams a second come.

    ``seed`` decides what they hold.
    """

    rate: int
    seconds: float
    seed: int
    port: int = 0
