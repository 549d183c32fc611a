"""At what rate packets arrive (draft-cheng-iccrg-delivery-rate-estimation).

A packet carries a stamp of what had been delivered when it left. When it is acked, what was
delivered in between, divided by the time it took, is a sample of what the path carries. The time
is the longer of sending and acking: acks that come in a bunch do not make the path faster.
"""

from typing import NamedTuple


class Stamp(NamedTuple):
    """What was true when a packet left; packets of one batch share one."""

    sent_at: float
    delivered: int
    delivered_at: float
    first_sent_at: float
    starved: bool


class Sample(NamedTuple):
    """A rate in bytes/s, or None when it took no time worth measuring.

    ``limited`` is False when the sender had too little to send: the path may carry more than that.
    """

    rate: float | None
    limited: bool


class Delivery:
    """Counts bytes delivered. Sizes in bytes, times in seconds."""

    __slots__ = ("_delivered_at", "_first_sent_at", "_latest", "_starved_until", "delivered")

    def __init__(self) -> None:
        self.delivered = 0
        self._delivered_at = 0.0
        self._first_sent_at = 0.0
        self._starved_until = -1
        self._latest: Stamp | None = None

    def stamp(self, now: float, in_flight: int) -> Stamp:
        """Return what a packet that leaves now must carry; ``in_flight`` is without it."""
        if in_flight == 0:
            self._first_sent_at = self._delivered_at = now
        latest = self._latest
        if latest is not None and latest.sent_at == now and latest.delivered == self.delivered:
            return latest
        self._latest = Stamp(
            now, self.delivered, self._delivered_at, self._first_sent_at, self._starved_until >= 0
        )
        return self._latest

    def starve(self, in_flight: int) -> None:
        """There is room to send and nothing to send: packets tell little until these are acked."""
        self._starved_until = self.delivered + in_flight
        self._latest = None

    def acked(self, now: float, newest: Stamp, size: int, minimum: float = 0.0) -> Sample:
        """Take ``size`` newly acked bytes in, with the stamp of the newest packet among them.

        A sample over less than ``minimum``, the shortest round trip, is none: it would be noise.
        """
        self.delivered += size
        self._delivered_at = now
        if self.delivered > self._starved_until:
            self._starved_until = -1
        interval = max(newest.sent_at - newest.first_sent_at, now - newest.delivered_at)
        self._first_sent_at = max(self._first_sent_at, newest.sent_at)
        if interval <= 0 or interval < minimum:
            return Sample(None, not newest.starved)
        return Sample((self.delivered - newest.delivered) / interval, not newest.starved)
