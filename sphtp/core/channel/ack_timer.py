"""When an ack has to leave, how often, and how late it then is.

In the seed each side sends many packets a second, so that each ack travels in 32 of them. Here a
side that only listens sends nothing but its acks, and where most packets get lost most acks do. So
an ack is said again while many are missing of the packets that it covers: once for each
``MISSING_PER_REPEAT`` of them, 10 ms apart, in packets of a few bytes. At 90 % loss both ways the
sender needs 1,200 packets for 100 messages instead of 3,300.
"""

from typing import Final

from sphtp.core.channel.frames import AckDelay

EARLY: Final = 16
"""Packets after which an ack is made while others wait to be handled: half of what it covers."""

MISSING_PER_REPEAT: Final = 4
"""At 12 % loss an ack is said twice, at 90 % eight times; a loss now and then changes nothing."""

REPEAT_AFTER: Final = 0.01
"""Seconds between two packets with the same ack."""

INFINITY: Final = float("inf")

SHORTEST_DELAY: Final = 0.0005
"""Seconds that a packet may have been here before it is worth telling that its ack is late."""


class AckTimer:
    """Watches the packets received that no ack has left for.

    An ack is owed at once after ``every`` packets and when a packet leaves or fills a gap, else
    ``delay`` seconds after the first. None of it depends on what the application sends.
    """

    __slots__ = ("_delay", "_every", "_first", "_heard_at", "_repeats", "_told_at", "_waiting",
                 "due")  # fmt: skip

    def __init__(self, every: int, delay: float) -> None:
        self.due: float | None = None
        self._every = every
        self._delay = delay
        self._waiting = 0
        # How often the ack that leaves next is said again.
        self._repeats = 0
        self._first: int | None = None
        self._heard_at = INFINITY
        self._told_at = -INFINITY

    def is_overdue(self, sequence: int) -> bool:
        """Whether, of packets handled many at a time, the first would fall off the ack bits."""
        return self._first is not None and sequence - self._first >= EARLY

    def heard(self, now: float, *, asks: bool) -> None:
        """The newest packet so far came; it is worth an ack, or not."""
        self._heard_at = now if asks else INFINITY

    def owe(
        self, now: float, sequence: int, count: int = 1, *, at_once: bool, missing: int = 0
    ) -> None:
        """A packet asks for an ack, or several do that came in a row.

        ``missing`` are the packets that the ack covers and that did not come.
        """
        self._repeats = missing // MISSING_PER_REPEAT
        self._first = sequence if self._first is None else min(self._first, sequence)
        self._waiting += count
        at = now if at_once or self._waiting >= self._every else now + self._delay
        # An ack that is said again may be due later than that.
        self.due = at if self.due is None else min(at, self.due)

    def owe_again(self, now: float) -> None:
        """A repeat came: the ack may have been what got lost."""
        self.due = now if self.due is None else min(now, self.due)

    def sent(self, now: float) -> None:
        """An ack left, as every packet carries one."""
        self.due, self._first, self._waiting = None, None, 0
        if self._repeats:
            self._repeats -= 1
            self.due = now + REPEAT_AFTER

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
