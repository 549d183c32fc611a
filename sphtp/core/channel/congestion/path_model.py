"""What the loss-tolerant controller believes of the path: how fast, how long, how lossy."""

from sphtp.core.channel.congestion.signals import Ack

# Processes wake late: what the path holds is reckoned for that much more than its round trip.
GRAIN = 0.002


class PathModel:
    """Filters over rounds; a round ends when a packet sent after its start is acked."""

    __slots__ = (
        "_bunches",
        "_delivered",
        "_holds",
        "_lost",
        "_rates",
        "_round_start",
        "loss_share",
        "shortest",
        "shortest_at",
    )

    def __init__(self) -> None:
        self.shortest = float("inf")
        self.shortest_at = 0.0
        self.loss_share = 0.0
        self._rates = (0.0, 0.0)
        self._bunches = (0, 0)
        self._holds = (0.0, 0.0)
        self._round_start = 0.0
        self._delivered = 0
        self._lost = 0

    @property
    def rate(self) -> float:
        """The highest delivery rate of this cycle and the last one; 0 while unknown."""
        return max(self._rates)

    def holds(self, gain: float) -> float:
        """Bytes that fill the path ``gain`` times; infinite while it is unknown."""
        if not self.rate or self.shortest == float("inf"):
            return float("inf")
        return gain * self.rate * (self.shortest + GRAIN)

    def held(self, gain: float) -> float:
        """Bytes that are in flight beside those only because their acks are held."""
        return max(*self._bunches, gain * self.rate * max(self._holds))

    def acked(self, now: float, ack: Ack) -> bool:
        """Take an ack in; True when it ends a round."""
        self._delivered += ack.size
        self._bunches = (self._bunches[0], max(self._bunches[1], ack.size))
        if ack.round_trip is not None:
            self._note_round_trip(now, ack.round_trip, now - ack.sent_at)
        rate = ack.delivered_rate
        # Who has little to send learns only that the path carries at least that.
        if rate is not None and (ack.limited or rate > self.rate):
            self._rates = (self._rates[0], max(self._rates[1], rate))
        if ack.sent_at < self._round_start:
            return False
        self._end_round(now)
        return True

    def lost(self, size: int) -> None:
        """Count lost bytes."""
        self._lost += size

    def spurious(self, size: int) -> None:
        """Take lost bytes back."""
        self._lost = max(self._lost - size, 0)

    def age_rate(self) -> None:
        """Begin a cycle: of rates seen before the last one, nothing is true any more."""
        if self._rates[1]:
            self._rates = (self._rates[1], 0.0)

    def adopt(self, now: float, round_trip: float) -> None:
        """Replace the shortest round trip."""
        self.shortest, self.shortest_at = round_trip, now

    def _note_round_trip(self, now: float, round_trip: float, elapsed: float) -> None:
        if round_trip <= self.shortest:
            self.shortest, self.shortest_at = round_trip, now
        # A window that is too small to fill an ack waits for the receiver's ack delay each time.
        self._holds = (self._holds[0], max(self._holds[1], elapsed - round_trip))

    def _end_round(self, now: float) -> None:
        total = self._delivered + self._lost
        self.loss_share = self._lost / total if total else 0.0
        self._round_start = now
        self._delivered = self._lost = 0
        self._bunches = (self._bunches[1], 0)
        self._holds = (self._holds[1], 0.0)
