"""One path: congestion control, pacing and path MTU, which limit the rate and the size of packets.

``SendSide._packets_allowed`` (``send_side``) determines the number of packets with messages that
may leave now:

1. None while the sequences would become ambiguous (``SentPackets.ambiguous``).
2. ``Path.ready_at`` returns infinity while the congestion window is full. Else it returns the time
   from ``Pacer.ready_at`` (``token_bucket``): now, or the time at which there are enough tokens.
   The rate is the controller's ``pacing_rate``; None means no pacing.
3. If this time has come, one packet may leave, or as many as ``Path.budget`` returns. This is the
   number of full packets for which the window, the tokens and the batch all have room.
4. Else ``Path.resend_at`` may let one packet leave, by the allowance described below.
5. If none may leave, ``SendSide.resume_at`` is the time at which step 2 or 4 will let one leave;
   None if neither will. Acks, losses and probes may cause an earlier attempt.

``Path.sent`` takes the tokens of every ack-eliciting packet. Acks, control frames and MTU probes do
not wait for tokens or for the window.

Whatever the congestion window, a few packets may leave in each period of 0.1 s. Fiedler resends
every message that is not acked within 0.1 s. RFC 9002 detects losses earlier, but then waits: for a
window that random losses have reduced to two packets, for a pacer, for a probe timeout that
doubles. At 90 % loss both ways that takes hours instead of seconds. Retransmissions leave first by
this allowance. A sender within its window gains nothing by it, because all its packets count.

The number of packets per period depends on the evidence. Usually it is two (as many as a probe
timeout sends, RFC 9002, section 6.2.4), and only retransmissions may use them. It is up to 24 (two
initial windows, RFC 9002, section 7.2) if more than 5 % of the packets get lost, acks still arrive,
and the round trips show no queue. In that case this flow does not cause the losses, because a
bottleneck drops packets only when its queue is full. It is one if the round trips show a queue:
with two, ten flows over 1 Mbit/s lost half of their packets. On a path where an ack takes longer
than 0.1 s, the period is as long as the wait for an ack.
"""

from collections.abc import Sequence
from typing import Final

from sphtp.core.channel.congestion.controller import make_controller
from sphtp.core.channel.congestion.delivery_rate import Ack, DeliveryRate, Lost, MaxBandwidth
from sphtp.core.channel.loss_detection import LossDetector, RoundTrip
from sphtp.core.channel.path_mtu import PathMtu
from sphtp.core.channel.sent_packets import PacketSubset, SentBatch
from sphtp.core.channel.settings import ChannelSettings, parse_congestion
from sphtp.core.timers import INFINITY
from sphtp.core.token_bucket import BURST, HOLD, Pacer

FEWEST_IN_WINDOW: Final = 8

HOLD_SHARE: Final = 1 / 16
"""The share of a round trip by which a sender may be late and still send at its full rate. A busy
machine wakes programs some milliseconds late, and the queue of a bottleneck can hold as many
packets."""

PROBE_PACKETS: Final = 2
LOSSY_PACKETS: Final = 24
LOSSY_BYTES: Final = LOSSY_PACKETS * 1472
"""The most bytes per period, so that fewer large datagrams leave, but at least two."""

MOST_SPREAD: Final = 4 * LOSSY_PACKETS
"""The number of frames, from the oldest unacked one to the newest, from which on the allowance lets
no new frame leave. New frames must not delay retransmissions for ever: if every second packet gets
lost, the retransmission may get lost each time, and an ordered lane would deliver nothing."""

LOSSY_SHARE: Final = 0.05
"""The share of lost packets above which more than an occasional full queue causes the losses."""

SILENCE: Final = 1.0
"""Seconds without an ack after which the path may be interrupted. The allowance is at most two
packets per period then."""


class ResendAllowance:
    """The packets that may leave whatever the congestion window, as a token bucket.

    Times are in seconds. ``resend_time`` is the period, 0.1 s in Fiedler's article.
    """

    __slots__ = ("_at", "_left", "_resend_time", "acked_at", "used")

    def __init__(self, resend_time: float) -> None:
        # The time of the last ack.
        self.acked_at = -INFINITY
        self._resend_time = resend_time
        self._left = float(PROBE_PACKETS)
        self._at = 0.0
        # The number of packets with messages that left since the last refill, by the window or not.
        self.used = 0

    def number(self, now: float, trip: RoundTrip, loss: float, size: int) -> int:
        """Return the number of packets of ``size`` bytes that are allowed per period.

        ``trip`` is the round trip of the path, and ``loss`` the share of packets that get lost.
        """
        if trip.shows_queue:
            return 1
        if loss <= LOSSY_SHARE or now - self.acked_at > SILENCE:
            return PROBE_PACKETS
        return max(PROBE_PACKETS, min(LOSSY_PACKETS, LOSSY_BYTES // size))

    def ready_at(self, now: float, number: int, probe_timeout: float) -> float:
        """Return the time at which the next packet may leave, at ``number`` packets per period.

        The period is at least as long as the probe timeout.
        """
        rate = number / max(self._resend_time, probe_timeout)
        earned = max(now - self._at, 0.0) * rate
        self._left = min(max(self._left + earned - self.used, 0.0), 2.0 * PROBE_PACKETS)
        self._at, self.used = now, 0
        # A rounding error must not delay a packet.
        return now if self._left > 0.999 else now + (1 - self._left) / rate

    def probe(self, number: int) -> None:
        """Let the packets of a probe, at most two, leave at once."""
        self._left, self.used = max(self._left, float(min(number, PROBE_PACKETS))), 0


class Path:
    """The network path of a connection: it decides when packets may leave, and adapts to losses.

    The send side calls it before it sends packets with messages, and for all ack-eliciting packets
    that were sent, acked or lost. ``recovery`` is the connection's loss detector. ``largest`` is
    the size of the largest datagram that both sides accept, in bytes.
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
        # The size to which packets are filled. Only ``resize`` changes it.
        self.datagram_size = base
        self.bandwidth = MaxBandwidth()

    @property
    def rate(self) -> float | None:
        """The pacing rate in bytes/s; None is no limit.

        It is None before the first round trip is measured, unless the rate is fixed.
        """
        return self._controller.pacing_rate

    @property
    def suspects_size(self) -> bool:
        """True if large packets seem to get lost because of their size."""
        return self.mtu.tail_size < self.mtu.size

    @property
    def window(self) -> int:
        """The congestion window, in bytes."""
        return self._controller.window

    @property
    def state(self) -> str:
        """The name of the congestion controller's phase."""
        return self._controller.phase

    @property
    def has_window(self) -> bool:
        """True if the congestion window has room for another packet."""
        return self._recovery.bytes_in_flight < self._controller.window

    def ready_at(self, now: float) -> float:
        """Return when the pacer lets the next packet leave; infinity while the window is full."""
        if self._recovery.bytes_in_flight >= self._controller.window:
            return INFINITY
        return self._pacer.ready_at(now, self.datagram_size, self._controller.pacing_rate)

    def allowance(self, now: float) -> int:
        """Return the number of packets per period that may leave whatever the window."""
        return self._allowance.number(
            now, self._recovery.round_trip, self._recovery.ratio, self.datagram_size
        )

    def resend_at(self, now: float, *, is_retransmission: bool) -> float | None:
        """Return when the next packet may leave although window or pacer hold it back, or None.

        A packet without retransmissions may leave only if the path loses much.
        """
        number = self.allowance(now)
        if not is_retransmission and number <= PROBE_PACKETS:
            return None
        return self._allowance.ready_at(now, number, self._recovery.probe_timeout)

    def budget(self, now: float, most: int, largest: int) -> int:
        """Return how many full packets window and pacer let leave now.

        There are at most ``most``, with at most ``largest`` bytes together.
        """
        left = self._controller.window - self._recovery.bytes_in_flight
        left = min(left, self._pacer.budget(now, self.rate))
        return min(most, min(left, largest) // self.datagram_size)

    def sent(self, now: float, batch: SentBatch) -> None:
        """Count a batch of ack-eliciting packets. Call it before the loss detector's ``sent``."""
        batch.stamp = self._delivery.stamp(now, self._recovery.bytes_in_flight)
        if not batch.has_content:
            # A ping in a pause does not measure the bandwidth of the path.
            batch.stamp = batch.stamp._replace(app_limited=True)
        self._pacer.sent(now, batch.number * batch.size, self._controller.pacing_rate)
        # Packets with unreliable messages count, too, because they may use the same allowance.
        if batch.has_messages:
            self._allowance.used += batch.number

    def set_app_limited(self) -> None:
        """Mark the flow as app-limited if the window has room: no message waits that may leave."""
        if self.has_window:
            self._delivery.set_app_limited(self._recovery.bytes_in_flight)

    def acked(self, now: float, subsets: Sequence[PacketSubset], sample: float | None) -> None:
        """Process newly acked packets. Call it after the loss detector has processed them.

        ``sample`` is the round trip that they measured in seconds, None if they measured none.
        """
        newest: SentBatch | None = None
        sizes: list[int] = []
        acked = late = 0
        for batch, bits in subsets:
            if not batch.eliciting:
                continue
            newest, size = batch, batch.size
            sizes.append(size)
            acked += bits.bit_count() * size
            if batch.probe:
                self.mtu.probe_acked(now, size)
            elif batch.lost:
                late += (bits & batch.lost).bit_count() * size
        if newest is None:
            return
        self._allowance.acked_at = now
        self.mtu.packets_acked(sizes)
        if late:
            self._controller.spurious(now, late)
        recovery, delivery = self._recovery, self._delivery
        trip = recovery.round_trip
        smoothed, minimum = trip.smoothed or 0.0, trip.minimum
        self._pacer.hold = max(HOLD, HOLD_SHARE * min(minimum, smoothed))
        rate, limited = delivery.acked(now, newest.stamp, acked, minimum)
        if rate is not None:
            self.bandwidth.note(now, rate, smoothed)
        in_flight, since = recovery.bytes_in_flight, delivery.busy_since
        ack = Ack(acked, newest.sent_at, sample, smoothed, minimum, in_flight, limited, rate, since)
        self._controller.acked(now, ack)

    def lost(self, now: float, subsets: Sequence[PacketSubset]) -> None:
        """Process packets that the loss detector has declared lost."""
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
        """Return the size of an MTU probe to send now; None if none is due.

        It is at most an eighth of the congestion window. A window of fewer datagrams would get acks
        in bursts, and a single loss would be too large a part of it.
        """
        return self.mtu.poll_probe(now, self.window / FEWEST_IN_WINDOW)

    def path_changed(self, now: float) -> None:
        """Reset the MTU search, the controller and the round trip: packets take another path."""
        self.mtu.path_changed(now)
        self._controller.persistent(now)
        self._recovery.path_changed()

    def probe(self, now: float) -> None:
        """Let the packets of a probe leave at once, because the probe timeout has expired."""
        self._allowance.probe(self.allowance(now))

    def resize(self) -> int:
        """Adopt the datagram size that the MTU search has found; return it."""
        self.datagram_size = self.mtu.size
        self._controller.resize(self.datagram_size)
        # For a slow sender, ten large datagrams at once would be most of a second's data.
        self._pacer.burst = max(BURST * self.mtu.base, 2 * self.datagram_size)
        return self.datagram_size
