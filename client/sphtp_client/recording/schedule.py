"""The schedule of a replay: when each message of a recording is due, in seconds from its start.

It decides and performs nothing: no clock, no socket.
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
    Raises ``SettingsError``.
    """

    begin: int
    end: int
    speed: float | None = 1.0

    def __post_init__(self) -> None:
        if self.end < self.begin:
            raise SettingsError("the replay would end before it begins")
        if self.speed is not None and not self.speed > 0:
            raise SettingsError(f"speed is {self.speed}; allowed is more than 0")

    @property
    def seconds(self) -> float:
        """The seconds from the beginning of a lap to that of the next one."""
        return self._seconds(self.end - self.begin)

    def lap(self, number: int, messages: Iterable[M]) -> Iterator[Due[M]]:
        """Iterate over the messages of a lap, from 0 on, which begins where the former one ends.

        A message that was recorded before one that stands before it in the file is due with that:
        each source's messages stay in order.
        """
        start = latest = number * self.seconds
        for message in messages:
            latest = max(latest, start + self._seconds(message.time - self.begin))
            yield Due(latest, message)

    def _seconds(self, duration: int) -> float:
        return 0.0 if self.speed is None else duration / NANOSECONDS / self.speed
