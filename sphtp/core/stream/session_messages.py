"""Session messages: they announce the window of a stream that is silent for a while.

The first one leaves a minimum interval after the last data; then the interval doubles up to a
maximum. Repairs and NCFs do not change that. While receivers ask for repairs the interval does not
double: some of them may miss the end, too. While data flows there is one in every maximum interval.
"""

from math import inf
from typing import Final

from sphtp.core.stream.settings import StreamSettings

LAST_WORDS: Final = 3


class SessionSchedule:
    """The clock of session messages."""

    __slots__ = (
        "_forced",
        "_generation",
        "_held_until",
        "_ignore",
        "_interval",
        "_last",
        "_left",
        "_max",
        "_min",
        "due",
        "number",
    )

    def __init__(self, now: float, settings: StreamSettings) -> None:
        self.due: float | None = now
        """The time of the next session message; None if there will be none."""
        self.number = 0
        """The number of the next session message."""
        self._min = settings.session_min
        self._max = settings.session_max
        self._generation = settings.generation
        self._ignore = settings.ignore
        # What was waited for the one that is due.
        self._interval = 0.0
        self._last = now
        self._held_until = -inf
        self._forced = -inf
        self._left: int | None = None

    def handle_data(self, now: float) -> None:
        """Note that data left, which announces as much as a session message."""
        self._interval = self._min
        self.due = min(now + self._min, self._last + self._max)

    def handle_nak(self, now: float) -> None:
        """Note that a receiver misses something."""
        self._held_until = now + self._generation
        self._hasten(now + self._min)

    def handle_joined(self, now: float) -> None:
        """Note a new receiver, which needs the window."""
        self._interval = 0.0
        self._hasten(now)

    def handle_out_of_window(self, now: float) -> None:
        """Announce the trail, once in an ignore interval: a NAK named an evicted datagram."""
        if now - self._forced >= self._ignore:
            self._forced = now
            self._hasten(now)

    def handle_awaited(self, now: float, since: float, interval: float) -> None:
        """Ask for a report that is awaited since ``since``, once in every ``interval``."""
        # Most reports come by themselves within a round trip.
        self._hasten(max(self._last + interval, since + interval, now))

    def close(self, now: float) -> None:
        """Switch to the minimum interval: the source closes."""
        self._held_until = inf
        self._hasten(now)

    def finish(self, now: float) -> None:
        """Send the last few session messages, then no more."""
        self.close(now)
        self._left = LAST_WORDS

    def poll(self, now: float) -> int | None:
        """Return the number of a session message that leaves now, or None."""
        if self.due is None or now < self.due:
            return None
        number = self.number
        self.number += 1
        self._last = now
        is_held = now < self._held_until
        doubled = self._min if is_held else max(2 * self._interval, self._min)
        self._interval = min(doubled, self._max)
        self.due = now + self._interval
        if self._left is not None:
            self._left -= 1
            self.due = self.due if self._left else None
        return number

    def _hasten(self, due: float) -> None:
        if self.due is not None:
            self.due = min(self.due, due)
