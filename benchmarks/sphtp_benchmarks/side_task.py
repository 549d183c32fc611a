"""The task of a process of a measurement, as an argument of its command."""

import json
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, kw_only=True)
class SideTask:
    """The base of tasks whose fields JSON can carry; ``side`` is the role of the process."""

    side: str

    def written(self) -> str:
        """Return the task as an argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the task that ``written`` has made an argument."""
        return cls(**json.loads(text))
