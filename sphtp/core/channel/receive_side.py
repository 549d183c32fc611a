"""The data path of an open connection: packets in, and what they mean for either side of it.

On receive this is the seed's ack algorithm and message algorithm, step by step; ``send_side``
has the other half.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sphtp.core.channel.ack_timer import EARLY, AckTimer
from sphtp.core.channel.frames import (
    CONTENT,
    AckDelay,
    Close,
    Credit,
    Frame,
    asks_for_ack,
)
from sphtp.core.channel.handshake import TransportParameters
from sphtp.core.channel.memory import NodeMemory
from sphtp.core.channel.packet import Packet, decode_packet_untrusted, decode_run_untrusted
from sphtp.core.channel.receive_queue import ReceiveQueue
from sphtp.core.channel.received_packets import Arrival, ReceivedPackets
from sphtp.core.channel.send_side import SendSide
from sphtp.core.channel.sent_packets import SentPackets
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters, Estimates
from sphtp.errors import RemoteError

if TYPE_CHECKING:
    from sphtp.core.channel.observer import ChannelObserver


class Heard(NamedTuple):
    """A packet came from the peer: a sign of life, perhaps its last."""

    close: Close | None = None


NOTHING_HEARD: Final = Heard()


class ReceiveSide:
    """Acks, queues and estimates of one connection."""

    def __init__(
        self,
        settings: ChannelSettings,
        peer: TransportParameters,
        counters: Counters,
        node: NodeMemory | None = None,
    ) -> None:
        self._largest = settings.max_datagram
        self._counters = counters
        self._sent_packets = SentPackets(settings.first_sequence)
        self._received = ReceivedPackets(peer.first_sequence)
        self._ack_timer = AckTimer(settings.ack_every, settings.ack_delay)
        self.receive_queue = ReceiveQueue(settings, peer.first_sequence, counters.bounds, node)
        self.send_side = self._make_sending(settings, peer)

    def _make_sending(
        self,
        settings: ChannelSettings,
        peer: TransportParameters,
        observer: "ChannelObserver | None" = None,
    ) -> SendSide:
        return SendSide(
            settings,
            peer,
            self._sent_packets,
            self._received,
            self._ack_timer,
            self.receive_queue.credit,
            self._counters,
            observer,
        )

    def estimates(self) -> Estimates:
        """What is measured by now."""
        send_side, receive_queue = self.send_side, self.receive_queue
        trip = send_side.recovery.round_trip
        return Estimates(
            unreliable_dropped=send_side.send_queue.unreliable_dropped
            + receive_queue.unreliable.dropped,
            waiting=send_side.send_queue.waiting,
            unread=len(receive_queue),
            rtt=trip.smoothed,
            rtt_deviation=trip.deviation,
            loss=send_side.recovery.ratio,
            bandwidth=send_side.path.bandwidth.rate,
            window=send_side.path.window,
            datagram_size=send_side.path.mtu.size,
        )

    @property
    def owes_ack(self) -> bool:
        """Whether an ack leaves before long, whatever else there is to say."""
        return self._ack_timer.due is not None

    def handle_data_untrusted(self, now: float, datagram: bytes) -> Heard | None:
        """Take a DATA datagram in; None when that is no sign of life.

        What is malformed, forges acks or contradicts what is known is counted, and changes nothing.
        """
        try:
            packet = decode_packet_untrusted(datagram)
        except RemoteError:
            self._counters.malformed += 1
            return None
        return self._take(now, packet)

    def handle_run_untrusted(self, now: float, data: bytes, size: int) -> Iterator[Heard | None]:
        """Take DATA datagrams in, of ``size`` bytes each, that ``divide`` has found to be a run."""
        try:
            packet = decode_run_untrusted(data, size)
            is_one = self._takes_as_one(packet)
        except RemoteError:
            # One by one it shows which of them is to blame.
            is_one = False
        if is_one:
            yield self._take(now, packet)
            return
        for start in range(0, len(data), size):
            yield self.handle_data_untrusted(now, data[start : start + size])

    def _takes_as_one(self, packet: Packet) -> bool:
        """Whether they come behind all others, and there is room for what they hold.

        Raises ``RemoteError`` when they lie in their acks, or as ``ReceiveQueue.admits``.
        """
        is_new = self._received.restore(packet.header.sequence) > self._received.highest
        self._sent_packets.named(packet.header.ack)
        has_room = self.receive_queue.has_room(packet.frames, packet.size)
        return is_new and has_room and self.receive_queue.admits(packet.frames)

    def _take(self, now: float, packet: Packet) -> Heard | None:
        try:
            heard = self._handle_packet(now, packet)
        except RemoteError:
            # What is wrong here is wrong with all of them.
            self._counters.malformed += packet.number
            return None
        self._counters.received += packet.number
        self._counters.bytes_received += packet.size
        return heard

    def _handle_packet(self, now: float, packet: Packet) -> Heard | None:
        header, frames, size, number = packet
        if size > number * self._largest:
            raise RemoteError(f"a datagram of {size} bytes is over the limit")
        sequence = self._received.restore(header.sequence)
        arrival = self._received.arrival(sequence)
        if arrival is not Arrival.FRESH:
            # The acks of a packet that old may mean packets of another round of the 16 bits.
            self._handle_repeat(now, arrival, frames)
            return None
        is_admitted = self.receive_queue.admits(frames)
        try:
            newest = self._sent_packets.named(header.ack)
        except RemoteError:
            self._counters.forged_acks += number
            raise
        self.send_side.heard(now, newest, header.ack_bits, _delay(frames))
        if not is_admitted:
            self._counters.too_early += number
            self.receive_queue.insert_wanted(frames, sequence)
            return NOTHING_HEARD
        close = self._accept(now, sequence, packet)
        return Heard(close=close) if close else NOTHING_HEARD

    def _handle_repeat(self, now: float, arrival: Arrival, frames: Sequence[Frame]) -> None:
        if arrival is Arrival.TOO_OLD:
            self._counters.too_old += 1
            return
        self._counters.duplicates += 1
        # Our ack may have been what got lost. An ack is never acked, or two sides would never stop.
        if asks_for_ack(frames):
            self._ack_timer.owe_again(now)

    def _accept(self, now: float, sequence: int, packet: Packet) -> Close | None:
        asks = asks_for_ack(packet.frames)
        self._record(now, sequence, packet.number, asks=asks)
        close = None
        for frame in packet.frames:
            if isinstance(frame, CONTENT):
                self.receive_queue.insert(frame, sequence)
            elif isinstance(frame, Credit):
                self.send_side.send_queue.credit.raise_to(frame.messages, frame.size)
            elif isinstance(frame, Close):
                close = frame
                self._ack_timer.owe_again(now)
        return close

    def _record(self, now: float, sequence: int, number: int, *, asks: bool) -> None:
        """Note which packets came, and what acks that makes due."""
        if sequence > self._received.highest:
            self._ack_timer.heard(now, asks=asks)
        end = sequence + number
        for first in range(sequence, end, EARLY):
            # Or the first of so many packets would fall off the ack bits.
            if self._ack_timer.is_overdue(first):
                self.send_side.ack_early(now)
            row = min(EARLY, end - first)
            fills_gap = self._received.received(first, row)
            if asks and fills_gap and self._received.is_out_of_reach(first):
                self.send_side.ack_late(now, first)
            elif asks:
                missing = self._received.missing
                self._ack_timer.owe(now, first, row, at_once=fills_gap, missing=missing)


def _delay(frames: Sequence[Frame]) -> float:
    first = frames[0] if frames else None
    return first.delay if isinstance(first, AckDelay) else 0.0
