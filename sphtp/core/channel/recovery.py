"""Which packets are lost, and when to ask (RFC 9002, sections 5 and 6).

A packet is lost when one that left ``REORDERING`` packets after it is acked, or one that left after
it is acked and it has waited 9/8 of a round trip. When nothing is acked at all, a probe asks: after
the seed's fixed time as long as there is no estimate of the round trip, and after twice as long for
each probe that went unanswered.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from sphtp.core.channel.rtt import DEVIATIONS, RoundTrip
from sphtp.core.channel.train import Hit, Train

REORDERING: Final = 3
MOST_REORDERING: Final = 30
NO_ORDER: Final = 1 << 20
"""A path that reorders more than that says nothing by the order in which packets come: from then on
only time tells (as in RACK, RFC 8985)."""
TIME_THRESHOLD: Final = 9 / 8
GRANULARITY: Final = 0.001
MOST_PATIENCE: Final = 8
"""How many times the first wait the wait for an answer to a probe may grow to."""

SMOOTHING: Final = 1 / 64


class Recovery:
    """Watches ack-eliciting packets until they are acked or lost.

    A ping carries nothing, so that whoever has sent nothing else waits ``leisure`` seconds before
    asking again: many channels that are idle would keep each other from answering in time.
    """

    __slots__ = (
        "_ack_delay",
        "_asked_at",
        "_fallback",
        "_flying",
        "_largest_acked",
        "_leisure",
        "_newest_content",
        "_probes",
        "_reordering",
        "bytes_in_flight",
        "ratio",
        "round_trip",
    )

    def __init__(self, ack_delay: float, fallback: float, leisure: float = 0.0) -> None:
        self.round_trip = RoundTrip()
        self.bytes_in_flight = 0
        # Smoothed share of packets that get lost.
        self.ratio = 0.0
        self._ack_delay = ack_delay
        self._fallback = fallback
        self._leisure = leisure
        self._newest_content = -1
        self._flying: deque[Train] = deque()
        self._largest_acked = -1
        self._reordering = REORDERING
        # When an ack was last asked for, and probes sent since anything was acked.
        self._asked_at = 0.0
        self._probes = 0

    def sent(self, train: Train) -> None:
        """Start to watch packets."""
        self._flying.append(train)
        self.bytes_in_flight += train.number * train.size
        self._asked_at = train.sent_at
        if train.has_content:
            self._newest_content = train.last

    def acked(self, now: float, hits: Sequence[Hit], delay: float | None) -> list[Hit]:
        """Take packets that are acked, oldest first; return those that are lost by it.

        ``delay`` is how long the peer had the last of them, or None if that is not the one that the
        header names: only its ack says how long the way is now.
        """
        for hit in hits:
            self._settle(hit)
        newest = hits[-1]
        if delay is not None and newest.train.eliciting:
            self.round_trip.sample(now - newest.train.sent_at, delay)
        self._largest_acked = max(self._largest_acked, newest.newest)
        self._probes = 0
        return self._lost_by_now(now)

    def stop(self) -> None:
        """Watch nothing any more; what was measured stays."""
        for train in self._flying:
            train.open = 0
        self._flying.clear()
        self.bytes_in_flight = 0

    @property
    def probes(self) -> int:
        """Probes sent since anything was acked."""
        return self._probes

    def is_overtaken(self, sequence: int) -> bool:
        """Whether packets that left so much later are acked that it cannot be mere reordering."""
        return sequence <= self._largest_acked - self._reordering

    def handle_timeout(self, now: float) -> tuple[list[Hit], Hit | None]:
        """Return the packets that are lost by now, and the oldest in flight if a probe is due."""
        lost = self._lost_by_now(now)
        oldest = self._oldest()
        if oldest is None or lost or self._probe_time() > now:
            return lost, None
        self._probes += 1
        self._asked_at = now
        return lost, Hit(oldest, 1 << oldest.last - oldest.oldest_open)

    def deadline(self) -> float | None:
        """When the next packet counts as lost, or a probe is due."""
        oldest = self._oldest()
        if oldest is None:
            return None
        if oldest.oldest_open < self._largest_acked:
            return oldest.sent_at + self._time_threshold()
        return self._probe_time()

    def _lost_by_now(self, now: float) -> list[Hit]:
        lost: list[Hit] = []
        threshold = self._time_threshold()
        while (train := self._oldest()) is not None and train.oldest_open < self._largest_acked:
            has_waited = train.sent_at + threshold <= now
            reach = 0 if has_waited else self._reordering - 1
            if not (bits := train.open_before(self._largest_acked - reach)):
                break
            lost.append(self._give_up(train, bits))
        return lost

    def _give_up(self, train: Train, bits: int) -> Hit:
        hit = Hit(train, bits)
        train.open ^= bits
        train.lost |= bits
        self.bytes_in_flight -= hit.size
        self.ratio = 1 - (1 - self.ratio) * (1 - SMOOTHING) ** hit.number
        return hit

    def _settle(self, hit: Hit) -> None:
        train, bits = hit
        if late := bits & train.lost:
            # They came all the same: the network reorders more than we allowed for.
            behind = self._largest_acked - Hit(train, late).oldest
            self._reordering = max(self._reordering, behind + 1)
            if behind >= MOST_REORDERING:
                self._reordering = NO_ORDER
        if train.eliciting:
            self.bytes_in_flight -= Hit(train, bits & train.open).size
            self.ratio *= (1 - SMOOTHING) ** hit.number
        train.open &= ~bits

    def _time_threshold(self) -> float:
        trip = self.round_trip
        if trip.smoothed is None:
            return self._fallback
        threshold = max(TIME_THRESHOLD * max(trip.smoothed, trip.latest), GRANULARITY)
        if self._reordering > REORDERING:
            # A path that reorders varies; 9/8 of the mean is too little for it.
            threshold = max(threshold, trip.smoothed + DEVIATIONS * trip.deviation)
        return threshold

    def _probe_time(self) -> float:
        trip = self.round_trip
        wait = trip.patience(self._ack_delay, self._fallback)
        if trip.smoothed is not None and self._newest_content <= self._largest_acked:
            wait = max(wait, self._leisure)
        return self._asked_at + wait * min(1 << min(self._probes, MOST_PATIENCE), MOST_PATIENCE)

    def _oldest(self) -> Train | None:
        flying = self._flying
        while flying and not flying[0].open:
            flying.popleft()
        return flying[0] if flying else None
