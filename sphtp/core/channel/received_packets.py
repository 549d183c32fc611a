"""The record of received packets, and the timer of their acks (Fiedler; RFC 9000, section 13.2).

The only fact to record of a received packet is its arrival, so the sequence buffer is one integer:
bit n stands for the packet n before the newest. Its low 32 bits are the ack bits of the next
header.

In Fiedler's article each side sends many packets a second, so that each ack travels in 32 of them.
Here a side that only receives sends only acks, and if most packets get lost, most of the acks do,
too. So an ack is repeated while many of the packets that it covers are missing: once for each
``MISSING_PER_REPEAT`` of them, 10 ms apart, in packets of a few bytes. At 90 % loss both ways the
sender needs 1,200 packets for 100 messages instead of 3,300.

Nevertheless the first ack of a packet that reaches its sender may leave long after the packet
arrived: 372 s later in one run at 99 % loss both ways. If the sender took this time for the round
trip, it would wait as long before it repeats anything, and would hardly get an ack that corrects
the estimate: in that run it declared its peer dead after a day. So a packet carries the delay of
its ack if the delay is above 0.5 ms, and the sender subtracts the delay.

A batch of several packets has only messages in them, and cannot carry the delay. It leaves right
behind a single packet that does. On a path that loses many packets, that single packet may be lost,
so that batches leave only while the delay is too short to mislead the sender.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from sphtp.core.channel.frames import ACK_BITS, ALL_BITS, BUFFER, AckDelay
from sphtp.core.serial import HALF, MASK
from sphtp.core.timers import INFINITY

FULL_WINDOW = (1 << BUFFER) - 1

MOST_UNACKED: Final = 16
"""The number of waiting packets from which on an ack is due at once, and the most packets recorded
in one step: half as many as an ack covers, so that it covers the packets that wait and a step."""

MISSING_PER_REPEAT: Final = 4
"""Missing packets, among the 32 that an ack covers, for each repetition of the ack. At 12.5 % loss
an ack leaves twice, at 90 % eight times; an occasional loss changes nothing."""

FULL_SIZE: Final = 1200
"""The fewest bytes that count as a full packet when acks are due by bytes: as many as QUIC requires
of any path (RFC 9000, section 14). The ack of two packets of at most 600 bytes waits for the ack
delay."""

REPEAT_AFTER: Final = 0.01
"""Seconds between two packets with the same ack."""

SHORTEST_DELAY: Final = 0.0005
"""The longest delay of an ack, in seconds, that is not worth a frame."""

LONGEST_UNSAID: Final = 0.1
"""The longest delay of an ack, in seconds, that a batch of packets may leave out on a path that
loses many packets: Fiedler's time, after which a sender repeats unacked messages."""

NEVER: Final = 1 << 80
"""A number higher than any sequence."""


class Arrival(Enum):
    """The result of the comparison of a sequence with the sequences received before."""

    FRESH = "fresh"
    DUPLICATE = "duplicate"
    TOO_OLD = "too old"


class ReceivedPackets:
    """The packets that arrived, and their ack bits."""

    __slots__ = ("_first", "_window", "highest", "missing")

    def __init__(self, first: int) -> None:
        self._first = first
        # The sequence of the newest packet received.
        self.highest = first - 1
        self._window = 0
        # The number of missing packets among those that the next ack covers.
        self.missing = 0

    def ack(self) -> tuple[int, int]:
        """Return ``ack`` and ``ack_bits`` of the next header."""
        return self.highest & MASK, self._window & ALL_BITS

    def late_ack(self, sequence: int) -> tuple[int, int]:
        """Return ``ack`` and ``ack_bits`` for a packet that is too old for the next header."""
        return sequence & MASK, self._window >> self.highest - sequence & ALL_BITS

    def is_out_of_reach(self, sequence: int) -> bool:
        """Return True if a packet is too old for the ack bits of the next header."""
        return self.highest - sequence >= ACK_BITS

    def restore(self, short: int) -> int:
        """Return the full sequence for the 16 bits of a received header."""
        # ``SerialNumber.unwrap`` inlined, to save a call for each packet.
        return self.highest + ((short - self.highest + HALF) & MASK) - HALF

    def arrival(self, sequence: int) -> Arrival:
        """Compare a sequence with those received before, without recording it."""
        behind = self.highest - sequence
        if behind < 0:
            return Arrival.FRESH
        if behind >= BUFFER or sequence < 0:
            return Arrival.TOO_OLD
        return Arrival.DUPLICATE if self._window >> behind & 1 else Arrival.FRESH

    def received(self, sequence: int, count: int = 1) -> bool:
        """Record accepted packets; return True if they leave or fill a gap.

        Several packets have to be consecutive and newer than all before.
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
    """The timer of acks: it counts the received packets that wait for an ack.

    If the packets are full, an ack is due at once when ``every`` of them wait, as in TCP (RFC 5681,
    section 4.2). It is also due at once when a packet leaves or fills a gap, and when 16 packets
    wait. Otherwise it is due ``delay`` seconds after the arrival of the first packet that waits.

    Packets that are not full count by their bytes: an ack is due when more bytes wait than
    ``every - 1`` full packets hold. A small message needs no ack of its own, and an ack costs both
    sides as much as a message. An earlier ack helps a sender only if its window, which counts
    bytes, is full. A sender whose ``send_buffer`` allows only a few unacked messages waits for
    ``delay``. While packets are missing, each packet counts as full, because the sender detects a
    loss by the acks of later packets.
    """

    __slots__ = ("_delay", "_delay_sent_at", "_every", "_full_size", "_is_lossy", "_repeats",
                 "_waiting", "_waiting_bytes", "due", "newest_at", "overdue_from")  # fmt: skip

    def __init__(self, every: int, delay: float) -> None:
        self.due: float | None = None
        # The arrival time of the newest packet; infinity if it is not ack-eliciting.
        self.newest_at = INFINITY
        # Before this sequence is recorded, an ack has to be encoded, so that the oldest waiting
        # packet is still among those that the ack bits cover.
        self.overdue_from = NEVER
        self._every = every
        self._delay = delay
        # The number of packets for which no ack has left, their bytes, and the size of a full
        # packet: that of the largest of them, but at least ``FULL_SIZE``.
        self._waiting = self._waiting_bytes = 0
        self._full_size = FULL_SIZE
        # The number of times that the next ack is repeated.
        self._repeats = 0
        # True if so many packets are missing that acks are repeated.
        self._is_lossy = False
        self._delay_sent_at = -INFINITY

    def owe(
        self, now: float, sequence: int, count: int, size: int, missing: int = 0, *, at_once: bool
    ) -> None:
        """Make an ack due for ``count`` consecutive packets of ``size`` bytes from ``sequence`` on.

        ``missing`` is the number of missing packets that the ack covers. The ack is due ``at_once``
        or by the rules of this class.
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
        # If only the repetition of an earlier ack is due, this ack may be due before it.
        if self.due is None or at < self.due:
            self.due = at

    def owe_again(self, now: float) -> None:
        """Make an ack due at once: the last one may be lost, or a PING or a CLOSE requests one."""
        self.due = now if self.due is None else min(now, self.due)

    def sent(self, now: float) -> None:
        """Record that an ack left, in any packet; set the timer for its repetition, if any."""
        self.due, self.overdue_from = None, NEVER
        self._waiting = self._waiting_bytes = 0
        self._full_size = FULL_SIZE
        if self._repeats:
            self._repeats -= 1
            self.due = now + REPEAT_AFTER

    def is_late(self, now: float) -> bool:
        """Return True if an ack that leaves now has to carry its delay."""
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
