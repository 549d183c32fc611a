"""The packets that arrived, and the time of their ack (Fiedler; RFC 9000, section 13.2).

Of a received packet nothing has to be known but that it came, so the sequence buffer is one
integer: bit n stands for the packet n before the newest. Its low 32 bits are the ack bits that each
header carries.

In the seed each side sends many packets a second, so that each ack travels in 32 of them. Here a
side that only listens sends nothing but its acks, and where most packets get lost most acks do. So
an ack is repeated while many are missing of the packets that it covers: once for each
``MISSING_PER_REPEAT`` of them, 10 ms apart, in packets of a few bytes. At 90 % loss both ways the
sender needs 1,200 packets for 100 messages instead of 3,300.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from sphtp.core.channel.frames import ACK_BITS, ALL_BITS, BUFFER, AckDelay
from sphtp.core.serial import HALF, MASK
from sphtp.core.timers import INFINITY

FULL_WINDOW = (1 << BUFFER) - 1

MOST_UNACKED: Final = 16
"""Packets after which an ack is made while others wait to be handled: half of what it covers."""

MISSING_PER_REPEAT: Final = 4
"""At 12 % loss an ack leaves twice, at 90 % eight times; a loss now and then changes nothing."""

REPEAT_AFTER: Final = 0.01
"""Seconds between two packets with the same ack."""

SHORTEST_DELAY: Final = 0.0005
"""Seconds that a packet may have been here before the delay of its ack is worth a frame."""

NEVER: Final = 1 << 80
"""Higher than any sequence."""


class Arrival(Enum):
    """The comparison of a sequence with those received before."""

    FRESH = "fresh"
    DUPLICATE = "duplicate"
    TOO_OLD = "too old"


class ReceivedPackets:
    """The packets that came, and the ack bits that say so."""

    __slots__ = ("_first", "_window", "highest", "missing")

    def __init__(self, first: int) -> None:
        self._first = first
        # The newest packet received.
        self.highest = first - 1
        self._window = 0
        # How many did not come of the packets that the next header acks.
        self.missing = 0

    def ack(self) -> tuple[int, int]:
        """The ack and the ack bits of the next header: all that can be acked by now."""
        return self.highest & MASK, self._window & ALL_BITS

    def late_ack(self, sequence: int) -> tuple[int, int]:
        """The same for a packet that came so late that no other header names it any more."""
        return sequence & MASK, self._window >> self.highest - sequence & ALL_BITS

    def is_out_of_reach(self, sequence: int) -> bool:
        """True if a packet is too old for the ack bits of the next header."""
        return self.highest - sequence >= ACK_BITS

    def restore(self, short: int) -> int:
        """Return the full sequence of a received header's 16 bits."""
        # As ``SerialNumber.unwrap``: this runs for each packet.
        return self.highest + ((short - self.highest + HALF) & MASK) - HALF

    def arrival(self, sequence: int) -> Arrival:
        """Compare a sequence with those received, changing nothing."""
        behind = self.highest - sequence
        if behind < 0:
            return Arrival.FRESH
        if behind >= BUFFER or sequence < 0:
            return Arrival.TOO_OLD
        return Arrival.DUPLICATE if self._window >> behind & 1 else Arrival.FRESH

    def received(self, sequence: int, count: int = 1) -> bool:
        """Record packets whose content was accepted; true when they leave or fill a gap.

        More than one come in a row, behind all that came before.
        """
        ahead = sequence - self.highest
        if ahead > 0:
            last = ahead + count - 1
            self._window = (self._window << min(last, BUFFER) | (1 << count) - 1) & FULL_WINDOW
            self.highest = sequence + count - 1
        else:
            self._window |= 1 << -ahead
        covered = min(self.highest + 1 - self._first, ACK_BITS)
        self.missing = covered - (self._window & ALL_BITS).bit_count()
        return ahead != 1


class AckTimer:
    """Counts the packets received for which no ack has left, and says when one has to.

    An ack is owed at once after ``every`` packets and when a packet leaves or fills a gap, else
    ``delay`` seconds after the first. None of it depends on what the application sends.
    """

    __slots__ = ("_delay", "_delay_sent_at", "_every", "_repeats", "_waiting", "due",
                 "newest_at", "overdue_from")  # fmt: skip

    def __init__(self, every: int, delay: float) -> None:
        self.due: float | None = None
        # When the newest packet came, if it asks for an ack.
        self.newest_at = INFINITY
        # The packet that must not be recorded before an ack is made for those that wait, or the
        # first of them would fall off the ack bits.
        self.overdue_from = NEVER
        self._every = every
        self._delay = delay
        self._waiting = 0
        # How often the ack that leaves next is repeated.
        self._repeats = 0
        self._delay_sent_at = -INFINITY

    def owe(
        self, now: float, sequence: int, count: int = 1, *, at_once: bool, missing: int = 0
    ) -> None:
        """A packet asks for an ack, or several do that came in a row.

        ``missing`` are the packets that the ack covers and that did not come.
        """
        self._repeats = missing // MISSING_PER_REPEAT
        self.overdue_from = min(self.overdue_from, sequence + MOST_UNACKED)
        self._waiting += count
        at = now if at_once or self._waiting >= self._every else now + self._delay
        # An ack that is repeated may be due later than that.
        self.due = at if self.due is None else min(at, self.due)

    def owe_again(self, now: float) -> None:
        """A duplicate came: the ack may have been what got lost."""
        self.due = now if self.due is None else min(now, self.due)

    def sent(self, now: float) -> None:
        """An ack left, as every packet carries one."""
        self.due, self.overdue_from, self._waiting = None, NEVER, 0
        if self._repeats:
            self._repeats -= 1
            self.due = now + REPEAT_AFTER

    def is_late(self, now: float) -> bool:
        """True if the delay of an ack is worth a frame; once is enough for what leaves now."""
        return now - self.newest_at > SHORTEST_DELAY and now != self._delay_sent_at

    def lateness(self, now: float) -> Sequence[AckDelay]:
        """The frame with the delay of an ack, if it is worth one."""
        delay = now - self.newest_at
        if delay <= SHORTEST_DELAY or now == self._delay_sent_at:
            return ()
        self._delay_sent_at = now
        return (AckDelay(delay),)
