"""When an ack has to leave, and how late it then is."""

from typing import Final

from sphtp.core.channel.frames import AckDelay

EARLY: Final = 16
"""Packets after which an ack is made while others wait to be handled: half of what it covers."""

INFINITY: Final = float("inf")

SHORTEST_DELAY: Final = 0.0005
"""Seconds that a packet may have been here before it is worth telling that its ack is late."""


class AckTimer:
    """Watches the packets received that no ack has left for.

    An ack is owed at once after ``every`` packets and when a packet leaves or fills a gap, else
    ``delay`` seconds after the first. None of it depends on what the application sends.
    """

    __slots__ = ("_delay", "_every", "_first", "_heard_at", "_told_at", "_waiting", "due")

    def __init__(self, every: int, delay: float) -> None:
        self.due: float | None = None
        self._every = every
        self._delay = delay
        self._waiting = 0
        self._first: int | None = None
        self._heard_at = INFINITY
        self._told_at = -INFINITY

    def is_overdue(self, sequence: int) -> bool:
        """Whether, of packets handled many at a time, the first would fall off the ack bits."""
        return self._first is not None and sequence - self._first >= EARLY

    def heard(self, now: float, *, asks: bool) -> None:
        """The newest packet so far came; it is worth an ack, or not."""
        self._heard_at = now if asks else INFINITY

    def owe(self, now: float, sequence: int, count: int = 1, *, at_once: bool) -> None:
        """A packet asks for an ack, or several do that came in a row."""
        self._first = sequence if self._first is None else min(self._first, sequence)
        self._waiting += count
        if at_once or self._waiting >= self._every:
            self.due = now
        elif self.due is None:
            self.due = now + self._delay

    def owe_again(self, now: float) -> None:
        """A repeat came: the ack may have been what got lost."""
        self.due = now if self.due is None else min(now, self.due)

    def sent(self) -> None:
        """An ack left, as every packet carries one."""
        self.due, self._first, self._waiting = None, None, 0

    def is_due(self, now: float) -> bool:
        """Whether an ack has to leave by now."""
        return self.due is not None and self.due <= now

    def is_late(self, now: float) -> bool:
        """Whether it is worth telling how late an ack is; once is enough for what leaves now."""
        return now - self._heard_at > SHORTEST_DELAY and now != self._told_at

    def lateness(self, now: float) -> list[AckDelay]:
        """The frame that tells how late an ack is, if it is worth telling."""
        if not self.is_late(now):
            return []
        self._told_at = now
        return [AckDelay(now - self._heard_at)]
