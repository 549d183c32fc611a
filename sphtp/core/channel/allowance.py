"""What congestion control never holds back: the seed's pace, for a flow that is small.

Fiedler sends every message again that is not acked within 0.1 s. RFC 9002 finds out earlier what is
lost, but then waits: for a window that random losses have closed to two packets, for a pacer, for
a probe timeout that doubles. At 90 % loss both ways that is hours instead of seconds. So a few
packets each 0.1 s may always leave, those to be sent again first. Who sends as many anyway gains
nothing by it: what leaves within the window counts as well.

How many is a matter of evidence. Two (as many as a probe timeout sends, RFC 9002, section 6.2.4)
where nothing is known. Twenty-four (two initial windows, RFC 9002, section 7.2) where packets get
lost, acks come all the same, and no queue shows in the round trips: then it is not we who are too
many, for a bottleneck drops nothing before its queue is full. Where a queue does show, one: with
two, ten flows over 1 Mbit/s lost half of what they sent. On a path where an ack takes longer than
0.1 s, so long is the period.
"""

from typing import Final

from sphtp.core.channel.rtt import RoundTrip

FEW: Final = 2
MANY: Final = 24
MANY_BYTES: Final = MANY * 1472
"""Larger datagrams are fewer."""

FARTHEST: Final = 4 * MANY
"""Pieces from the oldest unacked one on, after which nothing new is allowed. What is new must not
take the line from what goes again for ever: where one of two packets passes, it may be the wrong
one each time, and a lane in order would stand still."""

LOSSY: Final = 0.05
"""The share of packets that get lost from which on it is not just a full queue now and then."""

SILENCE: Final = 1.0
"""Seconds without any ack after which a path may be dead, and is not flooded."""

INFINITY: Final = float("inf")


class ResendAllowance:
    """A token bucket of packets. Times in seconds; ``resend_time`` is the seed's 0.1 s."""

    __slots__ = ("_at", "_left", "_resend_time", "_used", "acked_at")

    def __init__(self, resend_time: float) -> None:
        # When anything was acked last.
        self.acked_at = -INFINITY
        self._resend_time = resend_time
        self._left = float(FEW)
        self._at = 0.0
        # Packets that left since the bucket was looked at.
        self._used = 0

    def number(self, now: float, trip: RoundTrip, loss: float, size: int) -> int:
        """How many packets of ``size`` bytes are allowed per period.

        ``trip`` and ``loss`` are what is known of the path: round trips, and the share of packets
        that get lost.
        """
        if trip.shows_queue:
            return 1
        if loss <= LOSSY or now - self.acked_at > SILENCE:
            return FEW
        return max(FEW, min(MANY, MANY_BYTES // size))

    def ready_at(self, now: float, number: int, patience: float) -> float:
        """When the next packet may leave; ``patience`` is how long an ack may take."""
        rate = number / max(self._resend_time, patience)
        earned = max(now - self._at, 0.0) * rate
        self._left = min(max(self._left + earned - self._used, 0.0), 2.0 * FEW)
        self._at, self._used = now, 0
        # A rounding error must not make anyone wait for a fraction of a packet.
        return now if self._left > 0.999 else now + (1 - self._left) / rate

    def sent(self, number: int) -> None:
        """Packets with messages left, whoever allowed them."""
        self._used += number

    def probe(self, number: int) -> None:
        """A probe timeout has come: what a probe may send leaves at once."""
        self._left, self._used = max(self._left, float(min(number, FEW))), 0
