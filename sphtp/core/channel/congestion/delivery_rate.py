"""The inputs of congestion controllers: acks, losses, and the delivery rate.

Sizes are in bytes, times in seconds, rates in bytes/s. The inputs are named tuples, because each
received ack makes one, and a frozen dataclass takes several times as long.

The delivery rate is the rate at which packets arrive (draft-cheng-iccrg-delivery-rate-estimation).
Each packet has a snapshot of the bytes that had been delivered when it left. When it is acked, the
bytes delivered since then, divided by an interval, are a sample of the path's bandwidth. The
interval is the time of sending or the time of acking, whichever is longer, so that acks that arrive
in a bunch do not make the path look faster.

A sample is app-limited if the application had too little to send (section 3.4 of the draft): the
path may carry more. When the application runs out of messages, the sender is app-limited until the
bytes that are in flight at that moment are delivered.
"""

from typing import Final, NamedTuple


class Ack(NamedTuple):
    """The signal that a received header has acked new packets of ``size`` bytes in all.

    ``sent_at`` is the departure time of the newest of them. ``round_trip`` is its sample of the
    round trip, less the receiver's ack delay; None if there is no sample. ``smoothed`` and
    ``minimum`` are the estimates of the round trip (0 and infinity before the first sample).
    ``in_flight`` counts the bytes that remain in flight. ``limited`` is true if window or pacing
    held the sender back, and not a lack of messages: otherwise a window does not grow.
    ``delivered_rate`` is the sample of ``DeliveryRate``; None if there is none. ``busy_since`` is
    the last time at which a packet left while none was in flight.
    """

    size: int
    sent_at: float
    round_trip: float | None
    smoothed: float
    minimum: float
    in_flight: int
    limited: bool
    delivered_rate: float | None
    busy_since: float = 0.0


class Lost(NamedTuple):
    """The signal that packets of ``size`` bytes in all were declared lost together.

    ``newest_sent_at`` is the departure time of the newest of them. ``in_flight`` counts the bytes
    that remain in flight.
    """

    size: int
    newest_sent_at: float
    in_flight: int


class RateSnapshot(NamedTuple):
    """The delivery state at the departure of a packet; packets of one batch share one.

    ``delivered`` counts the bytes delivered until then, and ``delivered_at`` is the time of the
    last delivery. ``first_sent_at`` is the time at which the interval of sending begins.
    ``app_limited`` is true if the sender had too little to send.
    """

    sent_at: float
    delivered: int
    delivered_at: float
    first_sent_at: float
    app_limited: bool


class RateSample(NamedTuple):
    """A delivery rate in bytes/s; ``rate`` is None if the interval was too short to measure.

    ``limited`` is False if the sender had too little to send, so that the path may carry more.
    """

    rate: float | None
    limited: bool


class DeliveryRate:
    """The measurement of the delivery rate. Sizes are in bytes, times in seconds."""

    __slots__ = ("_app_limited_until", "_delivered_at", "_first_sent_at", "_latest", "busy_since",
                 "delivered")  # fmt: skip

    def __init__(self) -> None:
        self.delivered = 0
        # The last time at which a packet left while none was in flight.
        self.busy_since = 0.0
        self._delivered_at = 0.0
        self._first_sent_at = 0.0
        self._app_limited_until = -1
        self._latest: RateSnapshot | None = None

    def stamp(self, now: float, in_flight: int) -> RateSnapshot:
        """Return the snapshot for a packet that leaves now; ``in_flight`` does not count it yet."""
        if in_flight == 0:
            self._first_sent_at = self._delivered_at = self.busy_since = now
        latest = self._latest
        if latest is not None and latest.sent_at == now and latest.delivered == self.delivered:
            return latest
        self._latest = RateSnapshot(
            now,
            self.delivered,
            self._delivered_at,
            self._first_sent_at,
            self._app_limited_until >= 0,
        )
        return self._latest

    def set_app_limited(self, in_flight: int) -> None:
        """Mark the sender as app-limited, until the bytes in flight are delivered."""
        self._app_limited_until = self.delivered + in_flight
        self._latest = None

    def acked(
        self, now: float, newest: RateSnapshot, size: int, minimum: float = 0.0
    ) -> RateSample:
        """Count ``size`` acked bytes; return the sample of the newest acked packet.

        ``newest`` is the snapshot of that packet. An interval shorter than ``minimum``, the
        shortest round trip, gives no rate, because the rate would be noise.
        """
        sent_at, delivered, delivered_at, first_sent_at, app_limited = newest
        self.delivered += size
        self._delivered_at = now
        if self.delivered > self._app_limited_until:
            self._app_limited_until = -1
        interval = max(sent_at - first_sent_at, now - delivered_at)
        if sent_at > self._first_sent_at:
            self._first_sent_at = sent_at
        if interval <= 0 or interval < minimum:
            return RateSample(None, not app_limited)
        return RateSample((self.delivered - delivered) / interval, not app_limited)


ROUND_TRIPS: Final = 8
SHORTEST_PERIOD: Final = 0.1


class MaxBandwidth:
    """The highest delivery rate of this period and the last, in bytes/s; times are in seconds.

    A period is eight round trips, but at least 0.1 s. The highest sample counts, because single
    samples are too low when acks are late.
    """

    __slots__ = ("_last", "_present", "_until")

    def __init__(self) -> None:
        self._present: float | None = None
        self._last: float | None = None
        self._until = 0.0

    @property
    def rate(self) -> float | None:
        """The highest recent rate; None while there is no sample."""
        rates = [rate for rate in (self._present, self._last) if rate is not None]
        return max(rates, default=None)

    def note(self, now: float, rate: float, round_trip: float) -> None:
        """Add a sample of the rate; ``round_trip`` sets the length of a period that begins."""
        if now >= self._until:
            self._last, self._present = self._present, None
            self._until = now + max(ROUND_TRIPS * round_trip, SHORTEST_PERIOD)
        self._present = rate if self._present is None else max(self._present, rate)
