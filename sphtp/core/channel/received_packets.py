"""Records of received packets, and the time of their acks (Fiedler; RFC 9000, section 13.2).

The only record of a received packet is that it arrived, so the sequence buffer is one integer:
bit n stands for the packet n before the newest. Its low 32 bits are the ack bits of each header.

In Fiedler's article each side sends many packets a second, so that each ack travels in 32 of them.
Here a side that only receives sends only acks, and if most packets get lost, most of the acks do,
too. So an ack is repeated while many of the packets that it covers are missing: once for each
``MISSING_PER_REPEAT`` of them, 10 ms apart, in packets of a few bytes. At 90 % loss both ways the
sender needs 1,200 packets for 100 messages instead of 3,300.

Nevertheless the first ack that arrives may leave long after the arrival of the packet that it
names: 372 s later in one run at 99 % loss both ways. If the sender takes such a time for its round
trip, it waits as long before it repeats anything, so that hardly any ack comes to correct the
estimate. In that run it found its peer dead after a day.

So a packet carries the delay of its ack, and the sender subtracts it. Packets that leave together
in a batch contain only messages, so they cannot carry the delay; they follow a packet that does. If
many packets get lost, that packet may be lost, too. Then such a batch may leave only while the
delay is too short to mislead the sender (``LONGEST_UNSAID``).
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from sphtp.core.channel.frames import ACK_BITS, ALL_BITS, BUFFER, AckDelay
from sphtp.core.serial import HALF, MASK
from sphtp.core.timers import INFINITY

FULL_WINDOW = (1 << BUFFER) - 1

MOST_UNACKED: Final = 16
"""The number of packets after which an ack is due, whatever their size: half of the packets that an
ack covers."""

MISSING_PER_REPEAT: Final = 4
"""Missing packets for each repetition of an ack. At 12 % loss an ack leaves twice, at 90 % eight
times; an occasional loss changes nothing."""

FULL_SIZE: Final = 1200
"""The fewest bytes that count as a full packet when acks are due by bytes: the size that QUIC
requires of any path (RFC 9000, section 14). On a smaller path, a window of two packets waits for
the ack delay."""

REPEAT_AFTER: Final = 0.01
"""Seconds between two packets with the same ack."""

SHORTEST_DELAY: Final = 0.0005
"""The shortest delay of an ack, in seconds, that is worth a frame."""

LONGEST_UNSAID: Final = 0.1
"""The longest delay of an ack, in seconds, that the packets of a batch may omit if many packets get
lost: Fiedler's time, after which a sender repeats unacked messages."""

NEVER: Final = 1 << 80
"""A number higher than any sequence."""


class Arrival(Enum):
    """The result of comparing a sequence with those received before."""

    FRESH = "fresh"
    DUPLICATE = "duplicate"
    TOO_OLD = "too old"


class ReceivedPackets:
    """The packets that arrived, and their ack bits."""

    __slots__ = ("_first", "_window", "highest", "missing")

    def __init__(self, first: int) -> None:
        self._first = first
        # The newest packet received.
        self.highest = first - 1
        self._window = 0
        # The number of missing packets among those that the next ack covers.
        self.missing = 0

    def ack(self) -> tuple[int, int]:
        """Return ack and ack bits of the next header."""
        return self.highest & MASK, self._window & ALL_BITS

    def late_ack(self, sequence: int) -> tuple[int, int]:
        """Return ack and ack bits that name a packet out of reach of the next header."""
        return sequence & MASK, self._window >> self.highest - sequence & ALL_BITS

    def is_out_of_reach(self, sequence: int) -> bool:
        """Return True if a packet is too old for the ack bits of the next header."""
        return self.highest - sequence >= ACK_BITS

    def restore(self, short: int) -> int:
        """Return the full sequence for the 16 bits of a received header."""
        # ``SerialNumber.unwrap`` inlined, to save a call for each packet.
        return self.highest + ((short - self.highest + HALF) & MASK) - HALF

    def arrival(self, sequence: int) -> Arrival:
        """Compare a sequence with those received; this records nothing."""
        behind = self.highest - sequence
        if behind < 0:
            return Arrival.FRESH
        if behind >= BUFFER or sequence < 0:
            return Arrival.TOO_OLD
        return Arrival.DUPLICATE if self._window >> behind & 1 else Arrival.FRESH

    def received(self, sequence: int, count: int = 1) -> bool:
        """Record accepted packets; return True if they leave or fill a gap.

        If there are several, they must be consecutive, and newer than all before.
        """
        ahead = sequence - self.highest
        if ahead > 0:
            last = ahead + count - 1
            self._window = (self._window << min(last, BUFFER) | (1 << count) - 1) & FULL_WINDOW
            self.highest = sequence + count - 1
        else:
            self._window |= 1 << -ahead
        seen = self._window & ALL_BITS
        if seen == ALL_BITS:
            self.missing = 0
        else:
            self.missing = min(self.highest + 1 - self._first, ACK_BITS) - seen.bit_count()
        return ahead != 1


class AckTimer:
    """Counts the received packets for which no ack has left, and decides when one is due.

    An ack is due ``delay`` seconds after the first packet that it covers. It is due at once when a
    packet leaves or fills a gap, with every 16th packet, and with packet number ``every`` if these
    are full, as in TCP (RFC 5681, section 4.2).

    Packets that are not full count by their bytes: an ack is due when the waiting bytes exceed
    those of ``every`` full packets less one. A sender needs an ack before ``delay`` only if its
    window, which counts bytes, is full, or if ``send_buffer`` allows it only a few unacked
    messages; in the second case it waits for ``delay``. A small message needs no ack for itself,
    and an ack costs both sides as much as a message. While packets are missing, each packet counts
    as full, because the sender detects a loss by the acks of later packets. The messages that this
    side sends have no influence.
    """

    __slots__ = ("_delay", "_delay_sent_at", "_every", "_full_size", "_is_lossy", "_repeats",
                 "_waiting", "_waiting_bytes", "due", "newest_at", "overdue_from")  # fmt: skip

    def __init__(self, every: int, delay: float) -> None:
        self.due: float | None = None
        # The arrival time of the newest packet, if that is ack-eliciting.
        self.newest_at = INFINITY
        # An ack has to be encoded before this sequence is recorded. Otherwise the oldest waiting
        # packet would fall off the ack bits.
        self.overdue_from = NEVER
        self._every = every
        self._delay = delay
        # The received packets for which no ack has left, and their bytes; and the size that counts
        # as full: ``FULL_SIZE``, or that of the largest of them if it is larger.
        self._waiting = self._waiting_bytes = 0
        self._full_size = FULL_SIZE
        # How often the next ack is repeated.
        self._repeats = 0
        # True if so many packets are missing that acks are repeated.
        self._is_lossy = False
        self._delay_sent_at = -INFINITY

    def owe(
        self, now: float, sequence: int, count: int, size: int, missing: int = 0, *, at_once: bool
    ) -> None:
        """Make an ack due for a packet of ``size`` bytes, or for several consecutive ones.

        ``missing`` is the number of missing packets that the ack covers.
        """
        self._repeats = missing // MISSING_PER_REPEAT
        self._is_lossy = self._repeats > 0
        if sequence + MOST_UNACKED < self.overdue_from:
            self.overdue_from = sequence + MOST_UNACKED
        self._waiting += count
        self._waiting_bytes += count * size
        if size > self._full_size:
            self._full_size = size
        is_due = (
            at_once
            or self._waiting >= (self._every if missing else MOST_UNACKED)
            or self._waiting_bytes > (self._every - 1) * self._full_size
        )
        at = now if is_due else now + self._delay
        # The repetition of an ack may be due later than this one.
        if self.due is None or at < self.due:
            self.due = at

    def owe_again(self, now: float) -> None:
        """Make an ack due at once, because the last one may be lost or the peer sent a PING."""
        self.due = now if self.due is None else min(now, self.due)

    def sent(self, now: float) -> None:
        """Record that a packet left; every packet carries an ack."""
        self.due, self.overdue_from = None, NEVER
        self._waiting = self._waiting_bytes = 0
        self._full_size = FULL_SIZE
        if self._repeats:
            self._repeats -= 1
            self.due = now + REPEAT_AFTER

    def is_late(self, now: float) -> bool:
        """Return True if an ack sent now has to carry its delay."""
        delay = now - self.newest_at
        if self._is_lossy and delay > LONGEST_UNSAID:
            return True
        return delay > SHORTEST_DELAY and now != self._delay_sent_at

    def lateness(self, now: float) -> Sequence[AckDelay]:
        """Return the frame with the delay of an ack; empty if the delay is too short for one."""
        delay = now - self.newest_at
        if delay <= SHORTEST_DELAY:
            return ()
        self._delay_sent_at = now
        return (AckDelay(delay),)
