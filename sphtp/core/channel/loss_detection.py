"""Loss detection, the round trip and the probe timeout (RFC 9002, sections 5, 6 and 7.6).

The estimates of the round trip are its smoothed value and its mean deviation (RFC 6298, section 2).

A packet is lost when a packet that left ``REORDERING`` packets later is acked, or when any later
packet is acked and this one has waited for 9/8 of a round trip. If a packet arrives that was
declared lost, both thresholds may grow.

When no ack arrives at all, a probe leaves after a probe timeout. It repeats the oldest content that
has waited that long. Each packet is repeated at most once, in another packet, which may itself be
repeated. RFC 9002 doubles the wait for each unanswered probe. Here the wait is at most Fiedler's
0.1 s (``resend_time``), or one probe timeout if that is longer, so that a path with long round
trips is not flooded. ``path`` limits the number of packets that a probe repeats. The wait counts
from the departure of the content, from the last ack or from the last probe, whichever is latest. A
PING has no content, so its departure does not delay the probe of packets with content.

Before the round trip is known, ten probes of content leave at intervals of the resend time, which
takes a second: by then most paths have brought an ack. After that the wait doubles three times, up
to 0.8 s. If only PINGs are unacked then, the wait doubles from the first probe on.

Congestion is persistent when everything sent over three probe timeouts was lost (section 7.6): two
lost packets so far apart, with none acked between them, after the first estimate of the round trip.
A count of probes would not suffice: on a path with a round trip of a second, three probes leave
before any ack can arrive.
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
"""The threshold after a packet arrived ``MOST_REORDERING`` packets late or more: the order of
arrival is then no evidence of a loss, and only time counts (as in RACK, RFC 8985)."""
TIME_THRESHOLD: Final = 9 / 8
GRANULARITY: Final = 0.001
MOST_DOUBLINGS: Final = 3
"""The most times that the wait for the ack of a probe doubles."""
UNMEASURED: Final = 10
"""The number of probes of content at intervals of the resend time before the wait doubles, as long
as there is no sample of the round trip."""
PERSISTENT: Final = 3
"""Congestion is persistent when everything is lost for this many probe timeouts."""

SMOOTHING: Final = 1 / 64
REMAINDER: Final = 1 - SMOOTHING

RTT_SMOOTHING: Final = 1 / 8
DEVIATION_SMOOTHING: Final = 1 / 4
DEVIATIONS: Final = 4
LEAST_SPREAD: Final = 0.005
QUEUE_SHARE: Final = 1 / 4
QUEUE_GRAIN: Final = 0.01
"""Seconds by which the round trip has to exceed 5/4 of the minimum before a queue is assumed. A
packet takes its time on a slow line, and programs wake late."""


class RoundTrip:
    """The estimates of the round trip, in seconds; ``smoothed`` is None before the first sample."""

    __slots__ = ("deviation", "latest", "minimum", "smoothed")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset the estimates, as for another path."""
        self.smoothed: float | None = None
        self.deviation = 0.0
        self.latest = 0.0
        self.minimum = float("inf")

    def sample(self, elapsed: float, delay: float = 0.0) -> None:
        """Add a sample: the time from a packet's departure to its ack, less the peer's ``delay``.

        RFC 9002, section 5.3, ignores the first delay, and any delay that would make the round trip
        shorter than the minimum, so that a peer cannot make it too short. But where most acks get
        lost, most of those that arrive were held back for seconds. With the first delay ignored,
        those seconds would be the minimum, and all further delays would be ignored, too. Here the
        first delay is subtracted down to 0.1 ms, and every other one down to the minimum.
        """
        if delay:
            shortest = DELAY_STEP if self.smoothed is None else min(elapsed, self.minimum)
            elapsed = max(elapsed - delay, shortest)
        if elapsed < self.minimum:
            self.minimum = elapsed
        self.latest = elapsed
        if self.smoothed is None:
            self.smoothed, self.deviation = elapsed, elapsed / 2
            return
        error = elapsed - self.smoothed
        self.deviation += (abs(error) - self.deviation) * DEVIATION_SMOOTHING
        self.smoothed += error * RTT_SMOOTHING

    @property
    def shows_queue(self) -> bool:
        """True if the round trips show a queue in the path.

        Less its deviation, the smoothed round trip then exceeds 5/4 of the minimum by over 10 ms.
        """
        if self.smoothed is None:
            return False
        return self.smoothed - self.deviation > self.minimum * (1 + QUEUE_SHARE) + QUEUE_GRAIN

    def probe_timeout(self, ack_delay: float, fallback: float) -> float:
        """Return the probe timeout, in seconds: the longest wait for an ack (RFC 9002, 6.2.1).

        ``ack_delay`` is the longest delay of the receiver's acks. Before the first sample the probe
        timeout is ``fallback``, Fiedler's fixed time.
        """
        if self.smoothed is None:
            return fallback
        return self.smoothed + max(DEVIATIONS * self.deviation, LEAST_SPREAD) + ack_delay


class LossDetector:
    """The detector of lost packets: it tracks ack-eliciting packets until they are acked or lost.

    Times are in seconds: ``ack_delay`` is the longest delay of the peer's acks, and ``fallback``
    the probe timeout before the first sample of the round trip.

    Once a round trip was measured, and while only PINGs are unacked, the next one leaves after
    ``leisure`` seconds, or after a probe timeout if that is longer. With shorter waits, the PINGs
    of many idle channels would delay each other's acks. This wait does not double: where most
    packets get lost, the number of PINGs before the idle timeout decides whether the peer counts as
    dead.
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
        "probe_timeout",
        "probes",
        "ratio",
        "round_trip",
    )

    def __init__(self, ack_delay: float, fallback: float, leisure: float = 0.0) -> None:
        self.round_trip = RoundTrip()
        self.bytes_in_flight = 0
        # The smoothed share of packets that get lost.
        self.ratio = 0.0
        self._ack_delay = ack_delay
        self._fallback = fallback
        self._leisure = leisure
        # The probe timeout in seconds, before any doubling.
        self.probe_timeout = fallback
        # The number of probe timeouts since the last ack.
        self.probes = 0
        self._newest_content = -1
        self._unacked: deque[SentBatch] = deque()
        # The number of batches at the front of ``_unacked`` without content left to repeat.
        self._passed = 0
        # The number of packets tracked so far.
        self._sent = 0
        self._largest_acked = -1
        self._reordering = REORDERING
        # The time at which the oldest packet will count as lost; None unless a later one was acked.
        self._loss_time: float | None = None
        # The time of the first sample of the round trip.
        self._measured_at = INFINITY
        # The time of the last ack or probe, or of the first packet after a time without any in
        # flight.
        self._asked_at = 0.0

    def sent(self, batch: SentBatch) -> None:
        """Track a batch of packets."""
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
        """Process acked packets, oldest first; return the packets that are now lost.

        ``delay`` is the time, in seconds, for which the peer held back the ack of the newest of
        them. It is None if that ack gives no sample of the round trip.
        """
        for batch, bits in subsets:
            if late := bits & batch.lost:
                self._allow_reordering(PacketSubset(batch, late))
            if batch.eliciting:
                self.bytes_in_flight -= (bits & batch.open).bit_count() * batch.size
                self.ratio *= REMAINDER ** bits.bit_count()
            batch.open &= ~bits
        if delay is not None and batch.eliciting:
            if self.round_trip.smoothed is None:
                self._measured_at = now
            self.round_trip.sample(now - batch.sent_at, delay)
            self.probe_timeout = self.round_trip.probe_timeout(self._ack_delay, self._fallback)
        # The last packet of the last batch.
        newest = batch.last + 1 - (bits & -bits).bit_length()
        if newest > self._largest_acked:
            self._largest_acked = newest
        self.probes = 0
        self._asked_at = now
        return self._lost_by_now(now)

    def _allow_reordering(self, late: PacketSubset) -> None:
        """Raise the reordering threshold, because packets that were declared lost have arrived."""
        behind = self._largest_acked - late.oldest
        self._reordering = max(self._reordering, behind + 1)
        if behind >= MOST_REORDERING:
            self._reordering = NO_ORDER

    def path_changed(self) -> None:
        """Reset the round trip, because packets take another path from now on."""
        self.round_trip.forget()
        self.probe_timeout = self._fallback

    def stop(self) -> None:
        """Stop tracking packets; the estimates stay."""
        for batch in self._unacked:
            batch.open = 0
        self._unacked.clear()
        self._loss_time = None
        self._passed = 0
        self.bytes_in_flight = 0

    def is_overtaken(self, sequence: int) -> bool:
        """Return True if a packet counts as lost because of packets acked after it, not by time."""
        return sequence <= self._largest_acked - self._reordering

    def is_persistent_congestion(self, lost: Sequence[PacketSubset]) -> bool:
        """Return True if packets lost together, oldest first, prove persistent congestion."""
        if self.round_trip.smoothed is None:
            return False
        duration = PERSISTENT * self.probe_timeout
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
        """Return the packets that are lost by now and, if a probe is due, the packets to repeat.

        The packets to repeat are the oldest whose content has waited for a probe timeout, up to
        ``most``. If there are none, the oldest open packet is returned in their place. A call
        that declares packets lost returns none to repeat.
        """
        lost = self._lost_by_now(now)
        if lost or not self._unacked or self._probe_due() > now:
            return lost, []
        due = self._repeat(now, most)
        self.probes += 1
        self._asked_at = now
        oldest = self._unacked[0]
        return lost, due or [PacketSubset(oldest, 1 << oldest.last - oldest.oldest_open)]

    def deadline(self) -> float | None:
        """Return the time of the next loss or probe timeout; None if no packet is tracked."""
        if not self._unacked:
            return None
        return self._probe_due() if self._loss_time is None else self._loss_time

    def _lost_by_now(self, now: float) -> list[PacketSubset]:
        """Declare packets lost, and drop batches without open packets from the front."""
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
            lost.append(self._declare_lost(batch, bits))
        return lost

    def _declare_lost(self, batch: SentBatch, bits: int) -> PacketSubset:
        subset = PacketSubset(batch, bits)
        batch.open ^= bits
        batch.lost |= bits
        self.bytes_in_flight -= subset.size
        self.ratio = 1 - (1 - self.ratio) * REMAINDER**subset.number
        return subset

    def _time_threshold(self) -> float:
        trip = self.round_trip
        if trip.smoothed is None:
            return self._fallback
        threshold = max(TIME_THRESHOLD * max(trip.smoothed, trip.latest), GRANULARITY)
        if self._reordering > REORDERING:
            # The round trip of a path that reorders varies by more than 1/8.
            threshold = max(threshold, trip.smoothed + DEVIATIONS * trip.deviation)
        return threshold

    def _probe_due(self) -> float:
        probe_timeout = self.probe_timeout
        is_measured = self.round_trip.smoothed is not None
        content = self._oldest_unrepeated()
        if content is None:
            if is_measured and self._newest_content <= self._largest_acked:
                return self._asked_at + max(probe_timeout, self._leisure)
            return self._asked_at + probe_timeout * (1 << min(self.probes, MOST_DOUBLINGS))
        if is_measured:
            wait = min(
                probe_timeout * (1 << min(self.probes, MOST_DOUBLINGS)),
                max(probe_timeout, self._fallback),
            )
        else:
            unanswered = max(self.probes + 1 - UNMEASURED, 0)
            wait = probe_timeout * (1 << min(unanswered, MOST_DOUBLINGS))
        return max(self._asked_at, content.sent_at) + wait

    def _repeat(self, now: float, most: int) -> list[PacketSubset]:
        """Return the oldest packets whose content waited for a probe timeout, and mark them."""
        repeated: list[PacketSubset] = []
        while most > 0 and (batch := self._oldest_unrepeated()) is not None:
            if batch.sent_at + self.probe_timeout > now:
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
