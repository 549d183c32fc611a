"""The schedule of a replay: the time at which each message of a recording is due.

Times are in seconds from the start of the replay. This module has no clock and no socket.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from sphtp.errors import SettingsError

NANOSECONDS = 1e9


class Timed(Protocol):
    """A message with its time in nanoseconds."""

    @property
    def time(self) -> int:
        """The time at which it was recorded."""


M = TypeVar("M", bound=Timed)


class Due(NamedTuple, Generic[M]):
    """A message, and the seconds from the start of the replay after which it is due."""

    at: float
    message: M


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The times of the messages from ``begin`` to ``end``, in nanoseconds of the recording.

    ``speed`` is the factor by which the replay is faster, or None if each message is due at once.
    Raises ``SettingsError`` if ``end`` is before ``begin``, or ``speed`` is not positive.
    """

    begin: int
    end: int
    speed: float | None = 1.0

    def __post_init__(self) -> None:
        if self.end < self.begin:
            raise SettingsError("the end of the replay is before its beginning")
        if self.speed is not None and not self.speed > 0:
            raise SettingsError(f"speed is {self.speed}; allowed is more than 0")

    @property
    def seconds(self) -> float:
        """The length of a lap, in seconds."""
        return self._seconds(self.end - self.begin)

    def lap(self, number: int, messages: Iterable[M]) -> Iterator[Due[M]]:
        """Iterate over the messages of a lap; each lap begins where the one before ends.

        Laps are numbered from 0. If a message has an earlier time than one before it in the file,
        both are due at the same time, so that the order of the file is kept.
        """
        start = latest = number * self.seconds
        for message in messages:
            latest = max(latest, start + self._seconds(message.time - self.begin))
            yield Due(latest, message)

    def _seconds(self, duration: int) -> float:
        return 0.0 if self.speed is None else duration / NANOSECONDS / self.speed
