"""Loss detection: which packets are lost, and when to ask (RFC 9002, sections 5, 6 and 7.6).

The round trip is smoothed, with its mean deviation (RFC 6298, section 2).

A packet is lost when one that left ``REORDERING`` packets after it is acked, or one that left after
it is acked and it has waited 9/8 of a round trip.

When nothing is acked at all, a probe timeout asks, and what it asks with is the oldest content that
has waited that long: each packet is repeated so at most once, in another packet, which is repeated
in its turn. RFC 9002 doubles the wait for each probe that goes unanswered. Here it ends at the
seed's 0.1 s, or at one probe timeout where that is longer, so that a path with long round trips is
not flooded; how many packets a probe may send is bounded elsewhere (``path``). The wait counts
from when content left or was acked. A ping has no content: it must not put off what does.

Before there is any estimate of the round trip, probes go at the seed's pace for a second, for most
paths have answered by then, and after twice as long for each one from there.

Congestion is persistent when all that was sent over three probe timeouts got lost (section 7.6):
two packets lost, so far apart, with none acked between them, after the first estimate. A count of
probes would not do: on a path of a second three of them go unanswered before any answer can come.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from sphtp.core.channel.frames import DELAY_STEP
from sphtp.core.channel.sent_packets import PacketSubset, SentBatch
from sphtp.core.timers import INFINITY

REORDERING: Final = 3
MOST_REORDERING: Final = 30
NO_ORDER: Final = 1 << 20
"""A path that reorders more than that says nothing by the order in which packets come: from then on
only time tells (as in RACK, RFC 8985)."""
TIME_THRESHOLD: Final = 9 / 8
GRANULARITY: Final = 0.001
MOST_DOUBLINGS: Final = 3
"""The number of times that the wait for an answer to a probe doubles."""
UNMEASURED: Final = 10
"""Probes at the seed's pace, while there is no estimate, before they become fewer."""
PERSISTENT: Final = 3
"""Probe timeouts over which everything must be lost for congestion to be persistent."""

SMOOTHING: Final = 1 / 64

RTT_SMOOTHING: Final = 1 / 8
DEVIATION_SMOOTHING: Final = 1 / 4
DEVIATIONS: Final = 4
LEAST_SPREAD: Final = 0.005
QUEUE_SHARE: Final = 1 / 4
QUEUE_GRAIN: Final = 0.01
"""The seconds by which a round trip exceeds the shortest one before that means a queue. A packet
takes its time on a slow line, and programs wake late."""


class RoundTrip:
    """Times in seconds; ``smoothed`` is None before the first sample."""

    __slots__ = ("deviation", "latest", "minimum", "smoothed")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start, or start anew on another path."""
        self.smoothed: float | None = None
        self.deviation = 0.0
        self.latest = 0.0
        self.minimum = float("inf")

    def sample(self, elapsed: float, delay: float = 0.0) -> None:
        """Take the time between a packet's departure and its ack, of which the peer kept ``delay``.

        A delay that would make the way shorter than it ever was, by more than the steps in which
        delays are told, is not believed.
        """
        self.minimum = min(self.minimum, elapsed)
        if elapsed - delay >= self.minimum - DELAY_STEP:
            elapsed = max(elapsed - delay, self.minimum)
        self.latest = elapsed
        if self.smoothed is None:
            self.smoothed, self.deviation = elapsed, elapsed / 2
            return
        error = abs(self.smoothed - elapsed)
        self.deviation += (error - self.deviation) * DEVIATION_SMOOTHING
        self.smoothed += (elapsed - self.smoothed) * RTT_SMOOTHING

    @property
    def shows_queue(self) -> bool:
        """True if packets wait in the path, as far as round trips tell.

        They are well above the shortest one then, by more than they vary.
        """
        if self.smoothed is None:
            return False
        return self.smoothed - self.deviation > self.minimum * (1 + QUEUE_SHARE) + QUEUE_GRAIN

    def patience(self, ack_delay: float, fallback: float) -> float:
        """The wait for any ack before this side asks for one (RFC 9002, section 6.2.1).

        ``fallback``, the seed's fixed time, until there is an estimate.
        """
        if self.smoothed is None:
            return fallback
        return self.smoothed + max(DEVIATIONS * self.deviation, LEAST_SPREAD) + ack_delay


class LossDetector:
    """Watches ack-eliciting packets until they are acked or lost.

    A ping carries nothing, so that whoever has sent nothing else waits ``leisure`` seconds before
    asking again: many channels that are idle would keep each other from answering in time. This
    wait does not double. It ends with the idle timeout at the latest, and where most packets get
    lost, it is the number of pings that decides whether the peer is taken for dead.
    """

    __slots__ = (
        "_ack_delay",
        "_asked_at",
        "_fallback",
        "_largest_acked",
        "_leisure",
        "_loss_time",
        "_measured_at",
        "_newest_content",
        "_passed",
        "_reordering",
        "_sent",
        "_unacked",
        "bytes_in_flight",
        "patience",
        "probes",
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
        # How long an ack may take, in seconds.
        self.patience = fallback
        # Probes sent since anything was acked.
        self.probes = 0
        self._newest_content = -1
        self._unacked: deque[SentBatch] = deque()
        # How many at the front of them have nothing that a probe would have to repeat.
        self._passed = 0
        # Packets watched so far.
        self._sent = 0
        self._largest_acked = -1
        self._reordering = REORDERING
        # When the oldest packet counts as lost, if one that left after it is acked.
        self._loss_time: float | None = None
        # When the first round trip was measured.
        self._measured_at = INFINITY
        # When an ack came or was asked for.
        self._asked_at = 0.0

    def sent(self, batch: SentBatch) -> None:
        """Start to watch packets."""
        if not self.bytes_in_flight:
            self._asked_at = batch.sent_at
        batch.ordinal = self._sent
        self._sent += batch.number
        self._unacked.append(batch)
        self.bytes_in_flight += batch.number * batch.size
        if batch.has_content:
            self._newest_content = batch.last

    def acked(
        self, now: float, subsets: Sequence[PacketSubset], delay: float | None
    ) -> list[PacketSubset]:
        """Take packets that are acked, oldest first; return those that are lost by it.

        ``delay`` is how long the peer had the last of them, or None if that is not the one that the
        header names: only its ack says how long the way is now.
        """
        for batch, bits in subsets:
            if late := bits & batch.lost:
                self._allow_reordering(PacketSubset(batch, late))
            if batch.eliciting:
                self.bytes_in_flight -= (bits & batch.open).bit_count() * batch.size
                self.ratio *= (1 - SMOOTHING) ** bits.bit_count()
            batch.open &= ~bits
        if delay is not None and batch.eliciting:
            if self.round_trip.smoothed is None:
                self._measured_at = now
            self.round_trip.sample(now - batch.sent_at, delay)
            self.patience = self.round_trip.patience(self._ack_delay, self._fallback)
        # The last packet of the last batch.
        newest = batch.last + 1 - (bits & -bits).bit_length()
        if newest > self._largest_acked:
            self._largest_acked = newest
        self.probes = 0
        self._asked_at = now
        return self._lost_by_now(now)

    def _allow_reordering(self, late: PacketSubset) -> None:
        """Packets that were given up came all the same: the network reorders more than thought."""
        behind = self._largest_acked - late.oldest
        self._reordering = max(self._reordering, behind + 1)
        if behind >= MOST_REORDERING:
            self._reordering = NO_ORDER

    def path_changed(self) -> None:
        """Forget the round trip: packets take another path from now on."""
        self.round_trip.forget()
        self.patience = self._fallback

    def stop(self) -> None:
        """Watch nothing any more; what was measured stays."""
        for batch in self._unacked:
            batch.open = 0
        self._unacked.clear()
        self._loss_time = None
        self._passed = 0
        self.bytes_in_flight = 0

    def is_overtaken(self, sequence: int) -> bool:
        """True if packets that left so much later are acked that it cannot be mere reordering."""
        return sequence <= self._largest_acked - self._reordering

    def is_persistent_congestion(self, lost: Sequence[PacketSubset]) -> bool:
        """True if packets that were given up together, oldest first, leave no other explanation."""
        if self.round_trip.smoothed is None:
            return False
        duration = PERSISTENT * self.patience
        start, following = INFINITY, -1
        for subset in lost:
            batch = subset.batch
            is_whole = (
                subset.bits.bit_length()
                == subset.number + (subset.bits & -subset.bits).bit_length() - 1
            )
            if batch.ordinal + subset.oldest - batch.sequence != following or not is_whole:
                start = INFINITY
            if batch.sent_at >= self._measured_at:
                start = min(start, batch.sent_at)
            if batch.sent_at - start > duration:
                return True
            following = batch.ordinal + subset.newest - batch.sequence + 1
        return False

    def handle_timeout(
        self, now: float, most: int = 1
    ) -> tuple[list[PacketSubset], list[PacketSubset]]:
        """Return the packets that are lost by now and, if a probe is due, those to repeat.

        Those are the oldest ``most`` whose content waited long enough; where none has content that
        was not repeated, the oldest of all, for its ack is what is missed.
        """
        lost = self._lost_by_now(now)
        if lost or not self._unacked or self._probe_timeout() > now:
            return lost, []
        due = self._repeat(now, most)
        self.probes += 1
        self._asked_at = now
        oldest = self._unacked[0]
        return lost, due or [PacketSubset(oldest, 1 << oldest.last - oldest.oldest_open)]

    def deadline(self) -> float | None:
        """The time at which the next packet counts as lost, or a probe is due."""
        if not self._unacked:
            return None
        return self._probe_timeout() if self._loss_time is None else self._loss_time

    def _lost_by_now(self, now: float) -> list[PacketSubset]:
        """Give up what is lost; then the oldest packet that is watched is one that is open."""
        lost: list[PacketSubset] = []
        unacked = self._unacked
        self._loss_time = None
        while unacked:
            batch = unacked[0]
            if not batch.open:
                unacked.popleft()
                if self._passed:
                    self._passed -= 1
                continue
            if batch.oldest_open >= self._largest_acked:
                break
            loss_time = batch.sent_at + self._time_threshold()
            reach = 0 if loss_time <= now else self._reordering - 1
            if not (bits := batch.open_before(self._largest_acked - reach)):
                self._loss_time = loss_time
                break
            lost.append(self._give_up(batch, bits))
        return lost

    def _give_up(self, batch: SentBatch, bits: int) -> PacketSubset:
        subset = PacketSubset(batch, bits)
        batch.open ^= bits
        batch.lost |= bits
        self.bytes_in_flight -= subset.size
        self.ratio = 1 - (1 - self.ratio) * (1 - SMOOTHING) ** subset.number
        return subset

    def _time_threshold(self) -> float:
        trip = self.round_trip
        if trip.smoothed is None:
            return self._fallback
        threshold = max(TIME_THRESHOLD * max(trip.smoothed, trip.latest), GRANULARITY)
        if self._reordering > REORDERING:
            # A path that reorders varies; 9/8 of the mean is too little for it.
            threshold = max(threshold, trip.smoothed + DEVIATIONS * trip.deviation)
        return threshold

    def _probe_timeout(self) -> float:
        patience = self.patience
        is_measured = self.round_trip.smoothed is not None
        content = self._oldest_unrepeated()
        if content is None:
            if is_measured and self._newest_content <= self._largest_acked:
                return self._asked_at + max(patience, self._leisure)
            return self._asked_at + patience * (1 << min(self.probes, MOST_DOUBLINGS))
        if is_measured:
            wait = min(
                patience * (1 << min(self.probes, MOST_DOUBLINGS)), max(patience, self._fallback)
            )
        else:
            unanswered = max(self.probes + 1 - UNMEASURED, 0)
            wait = patience * (1 << min(unanswered, MOST_DOUBLINGS))
        return max(self._asked_at, content.sent_at) + wait

    def _repeat(self, now: float, most: int) -> list[PacketSubset]:
        """Take the oldest packets whose content has waited for as long as an ack may take."""
        repeated: list[PacketSubset] = []
        while most > 0 and (batch := self._oldest_unrepeated()) is not None:
            if batch.sent_at + self.patience > now:
                break
            bits = batch.open & ~batch.repeated
            for _ in range(bits.bit_count() - most):
                bits &= bits - 1
            batch.repeated |= bits
            most -= bits.bit_count()
            repeated.append(PacketSubset(batch, bits))
        return repeated

    def _oldest_unrepeated(self) -> SentBatch | None:
        unacked = self._unacked
        while self._passed < len(unacked):
            batch = unacked[self._passed]
            if batch.open & ~batch.repeated and batch.has_content:
                return batch
            self._passed += 1
        return None
