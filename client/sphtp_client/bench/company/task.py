"""What a process of this measurement is told to do."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self


class Side(StrEnum):
    """Who dials, and is measured; and who answers."""

    HOST = "host"
    GUEST = "guest"


@dataclass(frozen=True, kw_only=True)
class Task:
    """Open this many idle channels beside a busy one.

    ``seconds`` is for each rate, ``settling`` for memory to settle: in that time every idle channel
    says that it is alive, and is answered. ``traced`` counts what Python allocates, which makes
    everything slower.
    """

    side: Side
    channels: int
    seconds: float = 1.0
    settling: float = 2.5
    traced: bool = False
    port: int = 0

    def written(self) -> str:
        """Return it as an argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return what was written."""
        words = json.loads(text)
        return cls(**words | {"side": Side(words["side"])})
