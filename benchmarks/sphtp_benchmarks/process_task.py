"""The task of one process of a measurement."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from sphtp_benchmarks.catalog import CHANNELS, Case
from sphtp_benchmarks.catalogs import CATALOGS
from sphtp_benchmarks.meters import MessageSource, MessageTally, Pauses, Stopwatch


class TaskRole(StrEnum):
    """The role of a process: the name of a function of the system's module."""

    RECEIVE = "receive"
    SEND = "send"
    ECHO = "echo"
    PING = "ping"
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    WORK = "work"


@dataclass(frozen=True, kw_only=True)
class ProcessTask:
    """A role in the measurement of one system in one case; times in seconds.

    ``number`` is that of a worker, from 0 on. A process that waits for another one has the port 0,
    and reports the port that it got; the task of the other process has this port.
    """

    system: str
    case: str
    role: TaskRole
    seconds: float
    warm_up: float
    port: int = 0
    number: int = 0
    catalog: str = CHANNELS.name

    @property
    def module(self) -> str:
        """The module of ``sphtp_benchmarks.systems`` that has the role."""
        return CATALOGS[self.catalog].systems[self.system].module or self.system

    @property
    def size(self) -> int:
        """The bytes of a message."""
        return self._case.size_for(self.system)

    @property
    def max_datagram(self) -> int | None:
        """The most bytes of a datagram; None leaves it to the system."""
        return self._case.max_datagram

    @property
    def receivers(self) -> int:
        """The number of receivers for which a sender waits."""
        return self._case.receivers

    @property
    def workers(self) -> int:
        """The number of processes that send to each other."""
        return self._case.workers

    def source(self) -> MessageSource:
        """Return the messages to send."""
        return MessageSource(self.size, self.warm_up + self.seconds)

    def tally(self) -> MessageTally:
        """Return a counter of messages received."""
        rate = self._case.reads_per_s
        return MessageTally(self.size, self.warm_up, None if rate is None else Pauses(rate))

    def stopwatch(self) -> Stopwatch:
        """Return the messages to send to and fro, with the times of their answers."""
        return Stopwatch(self.size, self.warm_up, self.seconds)

    @property
    def _case(self) -> Case:
        return CATALOGS[self.catalog].cases[self.case]

    def written(self) -> str:
        """Return the task as an argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the task that ``written`` has made an argument."""
        words = json.loads(text)
        return cls(**words | {"role": TaskRole(words["role"])})
