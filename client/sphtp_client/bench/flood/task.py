"""What a process of this measurement is told to do."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self


class Side(StrEnum):
    """Who answers and is flooded, who asks and measures, and who floods."""

    VICTIM = "victim"
    FRIEND = "friend"
    FLOOD = "flood"


@dataclass(frozen=True, kw_only=True)
class Task:
    """Ask for ``seconds`` in quiet, and for as long while ``rate`` datagrams a second come.

    ``seed`` decides what they hold.
    """

    side: Side
    rate: int
    seconds: float
    seed: int
    port: int = 0

    def written(self) -> str:
        """Return it as an argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return what was written."""
        words = json.loads(text)
        return cls(**words | {"side": Side(words["side"])})
