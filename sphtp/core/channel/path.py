"""One path: congestion control, pacing and MTU, which bound the time and size of packets.

There is one thing that congestion control never holds back: the seed's pace, for a flow that is
small.

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

from collections.abc import Sequence
from typing import Final

from sphtp.core.channel.congestion.controller import make_controller
from sphtp.core.channel.congestion.delivery_rate import DeliveryRate, MaxBandwidth
from sphtp.core.channel.congestion.signals import Ack, Lost
from sphtp.core.channel.loss_detection import LossDetector, RoundTrip
from sphtp.core.channel.path_mtu import PathMtu
from sphtp.core.channel.sent_packets import PacketSubset, SentBatch
from sphtp.core.channel.settings import ChannelSettings, parse_congestion
from sphtp.core.timers import INFINITY
from sphtp.core.token_bucket import Pacer

BURST: Final = 10
FEWEST_IN_WINDOW: Final = 8

PROBE_PACKETS: Final = 2
LOSSY_PACKETS: Final = 24
LOSSY_BYTES: Final = LOSSY_PACKETS * 1472
"""Larger datagrams are fewer."""

MOST_SPREAD: Final = 4 * LOSSY_PACKETS
"""Frames from the oldest unacked one on, after which nothing new is allowed. What is new must not
take the line from what goes again for ever: where one of two packets passes, it may be the wrong
one each time, and a lane in order would stand still."""

LOSSY_SHARE: Final = 0.05
"""The share of packets that get lost from which on it is not just a full queue now and then."""

SILENCE: Final = 1.0
"""Seconds without any ack after which a path may be dead, and is not flooded."""


class ResendAllowance:
    """A token bucket of packets. Times in seconds; ``resend_time`` is the seed's 0.1 s."""

    __slots__ = ("_at", "_left", "_resend_time", "acked_at", "used")

    def __init__(self, resend_time: float) -> None:
        # When anything was acked last.
        self.acked_at = -INFINITY
        self._resend_time = resend_time
        self._left = float(PROBE_PACKETS)
        self._at = 0.0
        # Packets with messages that left since the bucket was looked at, whoever allowed them.
        self.used = 0

    def number(self, now: float, trip: RoundTrip, loss: float, size: int) -> int:
        """The number of packets of ``size`` bytes that are allowed per period.

        ``trip`` and ``loss`` are what is known of the path: round trips, and the share of packets
        that get lost.
        """
        if trip.shows_queue:
            return 1
        if loss <= LOSSY_SHARE or now - self.acked_at > SILENCE:
            return PROBE_PACKETS
        return max(PROBE_PACKETS, min(LOSSY_PACKETS, LOSSY_BYTES // size))

    def ready_at(self, now: float, number: int, patience: float) -> float:
        """The time of the next packet; ``patience`` is the longest wait for an ack."""
        rate = number / max(self._resend_time, patience)
        earned = max(now - self._at, 0.0) * rate
        self._left = min(max(self._left + earned - self.used, 0.0), 2.0 * PROBE_PACKETS)
        self._at, self.used = now, 0
        # A rounding error must not make anyone wait for a fraction of a packet.
        return now if self._left > 0.999 else now + (1 - self._left) / rate

    def probe(self, number: int) -> None:
        """A probe timeout has come: what a probe may send leaves at once."""
        self._left, self.used = max(self._left, float(min(number, PROBE_PACKETS))), 0


class Path:
    """Asked before each packet, and told of each packet and of what became of it.

    ``largest`` is the largest datagram that both sides take.
    """

    def __init__(self, settings: ChannelSettings, recovery: LossDetector, largest: int) -> None:
        base = min(settings.base_datagram, largest)
        self.mtu = PathMtu(base, largest, settings.envelope)
        self._recovery = recovery
        congestion = parse_congestion(settings.congestion)
        self._controller = make_controller(*congestion, base, settings.max_window)
        self._pacer = Pacer(BURST * base)
        self._allowance = ResendAllowance(settings.resend_time)
        self._delivery = DeliveryRate()
        # What packets are filled to, until ``resize``.
        self.datagram_size = base
        self.bandwidth = MaxBandwidth()

    @property
    def rate(self) -> float | None:
        """Bytes per second at which packets leave, at most."""
        return self._controller.pacing_rate

    @property
    def suspects_size(self) -> bool:
        """True if large packets vanish of late, so that only a small one may get an answer."""
        return self.mtu.tail_size < self.mtu.size

    @property
    def window(self) -> int:
        """Bytes that may be in flight."""
        return self._controller.window

    @property
    def state(self) -> str:
        """The phase of congestion control, by name."""
        return self._controller.phase

    @property
    def has_window(self) -> bool:
        """True if the window takes another packet."""
        return self._recovery.bytes_in_flight < self._controller.window

    def ready_at(self, now: float) -> float:
        """The time at which the pace lets the next packet leave; never while the window is full."""
        if self._recovery.bytes_in_flight >= self._controller.window:
            return INFINITY
        return self._pacer.ready_at(now, self.datagram_size, self._controller.pacing_rate)

    def allowance(self, now: float) -> int:
        """The number of packets per period that may leave whatever the window says."""
        return self._allowance.number(
            now, self._recovery.round_trip, self._recovery.ratio, self.datagram_size
        )

    def resend_at(self, now: float, *, is_retransmission: bool) -> float | None:
        """The time at which the next packet may leave, window or not; or None.

        One with nothing that is sent again has no claim unless the path loses much.
        """
        number = self.allowance(now)
        if not is_retransmission and number <= PROBE_PACKETS:
            return None
        return self._allowance.ready_at(now, number, self._recovery.patience)

    def budget(self, now: float, most: int, largest: int) -> int:
        """The full packets that may leave at once, at most ``most`` and ``largest`` bytes."""
        left = self._controller.window - self._recovery.bytes_in_flight
        left = min(left, self._pacer.budget(now, self.rate))
        return min(most, min(left, largest) // self.datagram_size)

    def sent(self, now: float, batch: SentBatch) -> None:
        """Count packets that ask for an ack, before recovery does."""
        batch.stamp = self._delivery.stamp(now, self._recovery.bytes_in_flight)
        if not batch.has_content:
            # A ping in a pause says nothing of what the path carries.
            batch.stamp = batch.stamp._replace(app_limited=True)
        self._pacer.sent(now, batch.number * batch.size, self._controller.pacing_rate)
        # Those sent once count, too: they wait in the same line, and are let out by the same claim.
        if batch.has_messages:
            self._allowance.used += batch.number

    def set_app_limited(self) -> None:
        """There was room to send, and nothing to send."""
        self._delivery.set_app_limited(self._recovery.bytes_in_flight)

    def acked(self, now: float, subsets: Sequence[PacketSubset], sample: float | None) -> None:
        """Take newly acked packets, after recovery has; ``sample`` is the round trip, if any."""
        newest: SentBatch | None = None
        sizes: list[int] = []
        acked = late = 0
        for batch, bits in subsets:
            if not batch.eliciting:
                continue
            newest = batch
            sizes.append(batch.size)
            acked += bits.bit_count() * batch.size
            if batch.probe:
                self.mtu.probe_acked(now, batch.size)
            elif batch.lost:
                late += (bits & batch.lost).bit_count() * batch.size
        if newest is None:
            return
        self._allowance.acked_at = now
        self.mtu.packets_acked(sizes)
        if late:
            self._controller.spurious(now, late)
        trip = self._recovery.round_trip
        rate, limited = self._delivery.acked(now, newest.stamp, acked, trip.minimum)
        if rate is not None:
            self.bandwidth.note(now, rate, trip.smoothed or 0.0)
        self._controller.acked(
            now,
            Ack(
                size=acked,
                sent_at=newest.sent_at,
                round_trip=sample,
                smoothed=trip.smoothed or 0.0,
                minimum=trip.minimum,
                in_flight=self._recovery.bytes_in_flight,
                limited=limited,
                delivered_rate=rate,
                busy_since=self._delivery.busy_since,
            ),
        )

    def lost(self, now: float, subsets: Sequence[PacketSubset]) -> None:
        """Take packets that recovery has given up."""
        data = [subset for subset in subsets if not subset.batch.probe]
        for subset in subsets:
            if subset.batch.probe:
                self.mtu.probe_lost(now, subset.batch.size)
        if data:
            size = sum([subset.size for subset in data])
            in_flight = self._recovery.bytes_in_flight
            self._controller.lost(now, Lost(size, data[-1].batch.sent_at, in_flight))
            if self._recovery.is_persistent_congestion(subsets):
                self._controller.persistent(now)
            sizes = [subset.batch.size for subset in data]
            self.mtu.packets_lost(now, sizes, data[-1].batch.sent_at)

    def poll_probe(self, now: float) -> int | None:
        """The size of a datagram to send as a probe of the path; or None.

        A window of a few large datagrams would get acks in jerks, and lose too much with each.
        """
        return self.mtu.poll_probe(now, self.window / FEWEST_IN_WINDOW)

    def path_changed(self, now: float) -> None:
        """Start anew: nothing is known of the path that packets take from now on."""
        self.mtu.path_changed(now)
        self._controller.persistent(now)
        self._recovery.path_changed()

    def probe(self, now: float) -> None:
        """The messages that probes repeat, as long as they wait and have to leave."""
        self._allowance.probe(self.allowance(now))

    def resize(self) -> int:
        """Take the size that the search for it has come to; return it."""
        self.datagram_size = self.mtu.size
        self._controller.resize(self.datagram_size)
        # Ten large datagrams at once would be most of a second for a slow sender.
        self._pacer.burst = max(BURST * self.mtu.base, 2 * self.datagram_size)
        return self.datagram_size
