"""The inputs of congestion controllers. Sizes in bytes, times in seconds, rates in bytes/s.

They are named tuples, because each received ack makes one, and a frozen dataclass takes three times
as long.
"""

from typing import NamedTuple


class Ack(NamedTuple):
    """The signal that a received header has acked new packets.

    ``sent_at`` is when the newest of them left. ``round_trip`` is its sample, less the receiver's
    ack delay, or None. ``smoothed`` and ``minimum`` are the estimates (0 and infinity before the
    first sample). ``in_flight`` is what remains. ``limited`` is true if window or pacing held the
    sender back, and not a lack of messages: otherwise a window does not grow. ``delivered_rate`` is
    the sample of ``delivery_rate``. ``busy_since`` is when a packet last left while none was in
    flight.
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
    """Packets that were declared lost together; the newest of them left at ``newest_sent_at``.

    ``in_flight`` is what remains.
    """

    size: int
    newest_sent_at: float
    in_flight: int
