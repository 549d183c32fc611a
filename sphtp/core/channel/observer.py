"""The observer of a channel, which reports the channel's events to an ``Instrument``.

The channel calls the observer's methods where the events happen. A channel without an instrument
has no observer, and checks for one in some twenty-five places. An observed channel runs the same
code, and an ``Instrument`` gets only immutable records, so that it cannot change the channel.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from sphtp.core.channel.frames import Credit, Frame, Packet
from sphtp.core.channel.instrument import (
    CongestionInfo,
    Drop,
    FrameInfo,
    Instrument,
    LostBy,
    Obstacle,
    PacketInfo,
    RoundTripInfo,
    SettledInfo,
    WatchedChannel,
    acked_ranges,
    describe,
    describe_received,
)
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.sent_packets import FragmentRun, PacketSubset, SentBatch
from sphtp.core.channel.settings import Delivery
from sphtp.core.serial import wrap

if TYPE_CHECKING:
    from sphtp.core.channel.loss_detection import LossDetector
    from sphtp.core.channel.path import Path
    from sphtp.core.channel.send_side import SendSide


class ChannelObserver:
    """The instrument of one channel, and the values last reported to it."""

    __slots__ = ("_congestion", "_obstacle", "_queued", "_trip", "channel",
                 "instrument", "path_mtu")  # fmt: skip

    def __init__(self, instrument: Instrument, channel: WatchedChannel) -> None:
        self.instrument = instrument
        self.channel = channel
        # Messages and bytes that are not reported yet, because ``messages_queued`` has no ``now``.
        self._queued: dict[tuple[int, Delivery], tuple[int, int]] = {}
        self._trip: RoundTripInfo | None = None
        self._congestion: CongestionInfo | None = None
        # The size last reported. The send side sets the initial one, which is no change.
        self.path_mtu = 0
        self._obstacle: Obstacle | None = None

    def messages_queued(self, lane: int, delivery: Delivery, sizes: Iterable[int]) -> None:
        """Count queued messages. ``report_queued`` reports them at the next poll."""
        messages, size = self._queued.get((lane, delivery), (0, 0))
        for one in sizes:
            messages, size = messages + 1, size + one
        self._queued[lane, delivery] = messages, size

    def report_queued(self, now: float) -> None:
        """Report the messages that were queued since the last report."""
        queued, self._queued = self._queued, {}
        for (lane, delivery), (messages, size) in queued.items():
            self.instrument.messages_queued(now, self.channel, lane, delivery, messages, size)

    def message_settled(self, now: float, ticket: Ticket) -> None:
        """Report the outcome of a message with a ticket."""
        assert ticket.outcome is not None
        message = SettledInfo(ticket.lane, ticket.size, ticket.outcome, now - ticket.sent_at)
        self.instrument.message_settled(now, self.channel, message)

    def packets_sent(
        self, batch: SentBatch, extra: Sequence[Frame], newest_received: int, ack_bits: int
    ) -> None:
        """Report a batch of packets that left.

        ``extra`` frames precede the messages in a single packet. ``newest_received`` and
        ``ack_bits`` are the acks in the headers.
        """
        acked = acked_ranges(newest_received, ack_bits)
        for packet in _describe_batch(batch, extra, acked):
            self.instrument.packet_sent(batch.sent_at, self.channel, packet)

    def packet_received(self, now: float, sequence: int, packet: Packet, newest: int) -> None:
        """Report an accepted packet, or a batch of packets that was decoded as one.

        ``newest`` is the newest packet that it acks.
        """
        for info in describe_received(sequence, packet, acked_ranges(newest, packet.ack_bits)):
            self.instrument.packet_received(now, self.channel, info)

    def datagram_dropped(self, now: float, size: int, why: Drop) -> None:
        """Report a dropped datagram of the peer."""
        if (address := self.channel.peer_address) is not None:
            self.instrument.datagram_dropped(now, self.channel, address, size, why)

    def credit_received(self, now: float, frame: Credit) -> None:
        """Report the credit that the peer has granted."""
        self.instrument.credit_received(now, self.channel, frame.messages, frame.size)

    def packets_acked(self, now: float, subset: PacketSubset) -> None:
        """Report acked packets. Some of them may have been declared lost before."""
        for sequence in subset.sequences:
            if subset.batch.was_lost(sequence):
                self.instrument.loss_was_spurious(now, self.channel, sequence)
            self.instrument.packet_acked(now, self.channel, sequence)

    def packets_lost(self, now: float, subset: PacketSubset, recovery: "LossDetector") -> None:
        """Report packets that were declared lost."""
        for sequence in subset.sequences:
            by = LostBy.PACKETS if recovery.is_overtaken(sequence) else LostBy.TIME
            self.instrument.packet_lost(now, self.channel, sequence, by)

    def probe_sent(self, now: float, unanswered: int) -> None:
        """Report a probe timeout. ``unanswered`` counts the probes since the last ack."""
        self.instrument.probe_sent(now, self.channel, unanswered)

    def credit_sent(self, now: float, messages: int, size: int) -> None:
        """Report the credit that a packet carried to the peer."""
        self.instrument.credit_sent(now, self.channel, messages, size)

    def estimates_changed(self, now: float, recovery: "LossDetector", path: "Path") -> None:
        """Report round trip, congestion state and path MTU, each only if it changed."""
        measured = recovery.round_trip
        if measured.smoothed is not None:
            trip = RoundTripInfo(
                measured.latest, measured.smoothed, measured.deviation, measured.minimum
            )
            if trip != self._trip:
                self._trip = trip
                self.instrument.round_trip_changed(now, self.channel, trip)
        last = self._congestion
        if last is None or (path.window, path.state) != (last.window, last.state):
            in_flight = recovery.bytes_in_flight
            allowed = CongestionInfo(path.window, in_flight, path.rate, path.state)
            self._congestion = allowed
            self.instrument.congestion_changed(now, self.channel, allowed)
        if path.mtu.size != self.path_mtu:
            self.path_mtu = path.mtu.size
            self.instrument.path_mtu_changed(now, self.channel, self.path_mtu)

    def sending_blocked(self, now: float, side: "SendSide") -> None:
        """Report the obstacle that keeps messages from leaving, or its end, if it changed."""
        obstacle = find_obstacle(side)
        if obstacle is self._obstacle or not side.is_sending:
            return
        self._obstacle = obstacle
        if obstacle is None:
            self.instrument.send_unblocked(now, self.channel)
        else:
            lanes = side.send_queue.wanting
            self.instrument.send_blocked(now, self.channel, obstacle, lanes)


def _describe_batch(
    batch: SentBatch, extra: Sequence[Frame], acked: tuple[tuple[int, int], ...]
) -> Sequence[PacketInfo]:
    contents = batch.contents
    if isinstance(contents, FragmentRun):
        place = wrap(contents.first_id), contents.index, len(contents.payload)
        part = FrameInfo("fragment", contents.lane, 0, contents.length, *place)
        return [
            PacketInfo(
                batch.sequence + n,
                batch.size,
                (part._replace(offset=contents.index + n * contents.length),),
                acked,
            )
            for n in range(batch.number)
        ]
    return [
        describe(sequence, batch.size, [*extra, *[sent.frame for sent in content]], acked)
        for sequence, content in enumerate(contents, batch.sequence)
    ]


# Limits that all programs use to display a channel as lossy, or its reader as slow.

LOSSY: Final = 0.01
"""The share of lost packets from which on a path counts as lossy."""

MANY_UNREAD: Final = 256
"""The number of unread messages from which on a program counts as a slow reader. Fewer may be
unread because the program reads them only now."""


def find_obstacle(side: "SendSide") -> Obstacle | None:
    """Return the limit that keeps messages from leaving; None if no message waits to leave."""
    if not side.is_sending or not side.send_queue.wants_to_send:
        return None
    if side.is_ambiguous:
        return Obstacle.SEQUENCES
    if not side.path.has_window:
        return Obstacle.WINDOW
    if side.resume_at is not None:
        return Obstacle.PACING
    return Obstacle.LANE if side.send_queue.credit.left else Obstacle.CREDIT
