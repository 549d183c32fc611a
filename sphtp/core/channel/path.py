"""How much may leave, when, and in what sizes: congestion control, pacing and path MTU together."""

from collections.abc import Sequence
from typing import Final

from sphtp.core.channel.allowance import FEW, ResendAllowance
from sphtp.core.channel.congestion.bandwidth import Bandwidth
from sphtp.core.channel.congestion.controller import make_controller
from sphtp.core.channel.congestion.delivery import Delivery
from sphtp.core.channel.congestion.signals import Ack, Lost
from sphtp.core.channel.loss_detection import LossDetector
from sphtp.core.channel.path_mtu import PathMtu
from sphtp.core.channel.sent_packets import PacketSubset, SentBatch
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.pacing import Pacer

BURST: Final = 10
FEWEST_IN_WINDOW: Final = 8


class Path:
    """Asked before each packet, and told of each packet and of what became of it.

    ``largest`` is the largest datagram that both sides take.
    """

    def __init__(self, settings: ChannelSettings, recovery: LossDetector, largest: int) -> None:
        base = min(settings.base_datagram, largest)
        self.mtu = PathMtu(base, largest, settings.envelope)
        self._recovery = recovery
        self._controller = make_controller(settings.congestion, base, settings.max_window)
        self._pacer = Pacer(BURST * base)
        self._allowance = ResendAllowance(settings.resend_time)
        self._delivery = Delivery()
        self._size = base
        self.bandwidth = Bandwidth()

    @property
    def rate(self) -> float | None:
        """Bytes per second at which packets leave, at most."""
        return self._controller.pacing_rate

    @property
    def suspects_size(self) -> bool:
        """Whether large packets vanish of late, so that only a small one may get an answer."""
        return self.mtu.tail_size < self.mtu.size

    @property
    def window(self) -> int:
        """Bytes that may be in flight."""
        return self._controller.window

    @property
    def state(self) -> str:
        """What congestion control is up to, by name."""
        return self._controller.state

    @property
    def has_window(self) -> bool:
        """Whether the window takes another packet."""
        return self._recovery.bytes_in_flight < self._controller.window

    def ready_at(self, now: float) -> float:
        """When the next packet may leave, as far as its pace goes."""
        return self._pacer.ready_at(now, self._size, self._controller.pacing_rate)

    def allowance(self, now: float) -> int:
        """How many packets per period may leave whatever the window says."""
        return self._allowance.number(
            now, self._recovery.round_trip, self._recovery.ratio, self._size
        )

    def resend_at(self, now: float, *, is_repeat: bool) -> float | None:
        """When the next packet may leave, window or not; or None.

        One with nothing that is sent again has no claim unless the path loses much.
        """
        number = self.allowance(now)
        if not is_repeat and number <= FEW:
            return None
        return self._allowance.ready_at(now, number, self._recovery.patience)

    def budget(self, now: float, most: int, largest: int) -> int:
        """How many full packets may leave at once, at most ``most`` and ``largest`` bytes."""
        left = self._controller.window - self._recovery.bytes_in_flight
        left = min(left, self._pacer.budget(now, self.rate))
        return min(most, min(left, largest) // self._size)

    def sent(self, now: float, batch: SentBatch) -> None:
        """Count packets that ask for an ack, before recovery does."""
        in_flight, size = self._recovery.bytes_in_flight, batch.number * batch.size
        batch.stamp = self._delivery.stamp(now, in_flight)
        if not batch.has_content:
            # A ping in a pause says nothing of what the path carries.
            batch.stamp = batch.stamp._replace(starved=True)
        self._controller.sent(now, size, in_flight)
        self._pacer.sent(now, size, self._controller.pacing_rate)
        # Those sent once count, too: they wait in the same line, and are let out by the same claim.
        if batch.has_messages:
            self._allowance.sent(batch.number)

    def starved(self) -> None:
        """There was room to send, and nothing to send."""
        self._delivery.starve(self._recovery.bytes_in_flight)

    def acked(self, now: float, subsets: Sequence[PacketSubset], sample: float | None) -> None:
        """Take newly acked packets, after recovery has; ``sample`` is the round trip, if any."""
        eliciting = [subset for subset in subsets if subset.batch.eliciting]
        if not eliciting:
            return
        self._allowance.acked_at = now
        late = 0
        for subset in eliciting:
            if subset.batch.probe:
                self.mtu.probe_acked(now, subset.batch.size)
            elif subset.batch.lost:
                late += PacketSubset(subset.batch, subset.bits & subset.batch.lost).size
        self.mtu.packets_acked([subset.batch.size for subset in eliciting])
        if late:
            self._controller.spurious(now, late)
        self._tell(now, eliciting, sample)

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
            if self._recovery.is_congestion_persistent(subsets):
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
        self._recovery.round_trip.forget()

    def probe(self, now: float) -> None:
        """What probes repeat waits in line, and has to leave."""
        self._allowance.probe(self.allowance(now))

    def poll_resize(self) -> int | None:
        """The size of datagrams from now on, when it has changed."""
        if self.mtu.size == self._size:
            return None
        self._size = self.mtu.size
        self._controller.resize(self._size)
        # Ten large datagrams at once would be most of a second for a slow sender.
        self._pacer.burst = max(BURST * self.mtu.base, 2 * self._size)
        return self._size

    def _tell(self, now: float, subsets: Sequence[PacketSubset], sample: float | None) -> None:
        trip, newest = self._recovery.round_trip, subsets[-1].batch
        size = sum([subset.size for subset in subsets])
        rate, limited = self._delivery.acked(now, newest.stamp, size, trip.minimum)
        if rate is not None:
            self.bandwidth.note(now, rate, trip.smoothed or 0.0)
        self._controller.acked(
            now,
            Ack(
                size=size,
                sent_at=newest.sent_at,
                round_trip=sample,
                smoothed=trip.smoothed or 0.0,
                minimum=trip.minimum,
                in_flight=self._recovery.bytes_in_flight,
                limited=limited,
                delivered_rate=rate,
            ),
        )
