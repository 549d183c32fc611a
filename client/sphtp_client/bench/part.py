"""What one process of a measurement is told to do."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from sphtp_client.bench.catalog import CASES
from sphtp_client.bench.meters import Source, Stopwatch, Tally


class Role(StrEnum):
    """Which half of a measurement: a function of the system's module."""

    RECEIVE = "receive"
    SEND = "send"
    ECHO = "echo"
    PING = "ping"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A role in the measurement of one system in one case; times in seconds.

    The half that waits has port 0, says which one it was given, and the other half gets that.
    """

    system: str
    case: str
    role: Role
    seconds: float
    warm_up: float
    port: int = 0

    @property
    def size(self) -> int:
        """The bytes of a message."""
        return CASES[self.case].size_for(self.system)

    @property
    def max_datagram(self) -> int | None:
        """The bytes that a datagram may have; None leaves it to the system."""
        return CASES[self.case].max_datagram

    def source(self) -> Source:
        """Return the messages to send."""
        return Source(self.size, self.warm_up + self.seconds)

    def tally(self) -> Tally:
        """Return a counter of messages received."""
        return Tally(self.size, self.warm_up)

    def stopwatch(self) -> Stopwatch:
        """Return the messages to send to and fro."""
        return Stopwatch(self.size, self.warm_up, self.seconds)

    def written(self) -> str:
        """Return it as an argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return what was written."""
        words = json.loads(text)
        return cls(**words | {"role": Role(words["role"])})
