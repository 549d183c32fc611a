"""The watched parts of a connection."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sphtp.core.channel.ack_timer import AckTimer
from sphtp.core.channel.acks import Acks
from sphtp.core.channel.delivery import Delivery
from sphtp.core.channel.flow_control import ReceiveCredit
from sphtp.core.channel.frames import Close, Credit, Frame
from sphtp.core.channel.handshake import TransportParameters
from sphtp.core.channel.memory import NodeMemory
from sphtp.core.channel.packet import Packet
from sphtp.core.channel.packet_builder import NO_LOAD, PacketBuilder
from sphtp.core.channel.port import MessagePort
from sphtp.core.channel.receive_side import ReceiveSide
from sphtp.core.channel.send_queue import Load
from sphtp.core.channel.send_side import AckReport, SendSide
from sphtp.core.channel.sent_packets import Hit, SentBatch
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters
from sphtp.core.channel.ticket import Outcome, Ticket, Tickets
from sphtp.core.channel.watch.instrument import Instrument
from sphtp.core.channel.watch.records import (
    CongestionInfo,
    FrameInfo,
    LostBy,
    Obstacle,
    PacketInfo,
    RoundTripInfo,
    SettledInfo,
    WatchedChannel,
    describe,
)
from sphtp.core.datagrams import MOST_BYTES


class Watch:
    """What the parts of one connection share: whom to tell, and of which channel."""

    __slots__ = ("_queued", "channel", "instrument")

    def __init__(self, instrument: Instrument, channel: WatchedChannel) -> None:
        self.instrument = instrument
        self.channel = channel
        # Messages and bytes not told of yet, for nothing says when they were queued.
        self._queued: dict[tuple[int, Delivery], tuple[int, int]] = {}

    def queued(self, lane: int, delivery: Delivery, sizes: Iterable[int]) -> None:
        """Take note of messages."""
        messages, size = self._queued.get((lane, delivery), (0, 0))
        for one in sizes:
            messages, size = messages + 1, size + one
        self._queued[lane, delivery] = messages, size

    def tell_queued(self, now: float) -> None:
        """Tell of the messages noted."""
        queued, self._queued = self._queued, {}
        for (lane, delivery), (messages, size) in queued.items():
            self.instrument.messages_queued(now, self.channel, lane, delivery, messages, size)


class WatchedPort(MessagePort):
    """Tells of messages that are queued."""

    __slots__ = ("_watch",)

    def __init__(
        self, counters: Counters, sending: Callable[[], ReceiveSide], watch: Watch
    ) -> None:
        super().__init__(counters, sending)
        self._watch = watch

    def queue(self, payloads: Sequence[bytes], lane: int = 0) -> None:
        """Queue messages for which there is room, and tell."""
        super().queue(payloads, lane)
        self._watch.queued(lane, Delivery.RELIABLE, map(len, payloads))

    def send_many(self, payloads: Sequence[bytes], lane: int = 0) -> None:
        """Queue messages, and tell."""
        super().send_many(payloads, lane)
        if payloads:
            self._watch.queued(lane, Delivery.RELIABLE, map(len, payloads))

    def send_some(self, payloads: Sequence[bytes], sizes: Sequence[int], lane: int = 0) -> int:
        """Queue as many messages as have room, and tell."""
        count = super().send_some(payloads, sizes, lane)
        if count:
            self._watch.queued(lane, Delivery.RELIABLE, sizes[:count])
        return count

    def send(self, payload: bytes, ticket: Ticket, delivery: Delivery) -> None:
        """Queue a message, and tell."""
        super().send(payload, ticket, delivery)
        self._watch.queued(ticket.lane, delivery, (len(payload),))


class WatchedTickets(Tickets):
    """Tells of messages that are settled."""

    __slots__ = ("_watch",)

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def settle(self, now: float, tickets: Iterable[Ticket], outcome: Outcome) -> None:
        """Note what became of messages, and tell."""
        fresh = [ticket for ticket in tickets if ticket.outcome is None]
        super().settle(now, fresh, outcome)
        for ticket in fresh:
            message = SettledInfo(ticket.lane, ticket.size, outcome, now - ticket.sent_at)
            self._watch.instrument.message_settled(now, self._watch.channel, message)


class WatchedTransport(ReceiveSide):
    """Tells of packets that are received."""

    def __init__(
        self,
        settings: ChannelSettings,
        peer: TransportParameters,
        counters: Counters,
        watch: Watch,
        node: NodeMemory | None = None,
    ) -> None:
        self._watch = watch
        super().__init__(settings, peer, counters, node)

    def _make_sending(
        self, settings: ChannelSettings, peer: TransportParameters
    ) -> tuple[SendSide, PacketBuilder]:
        acks, credit, watch = self._acks, self.receive_queue.credit, self._watch
        send_side = WatchedFlight(settings, peer, acks, credit, self._counters, watch)
        return send_side, WatchedSender(peer, send_side, acks, self._ack_timer, credit, watch)

    def _accept(self, now: float, sequence: int, packet: Packet) -> Close | None:
        tell, channel = self._watch.instrument, self._watch.channel
        tell.packet_received(now, channel, describe(sequence, packet.size, packet.frames))
        for frame in packet.frames:
            if isinstance(frame, Credit):
                tell.credit_received(now, channel, frame.messages, frame.size)
        return super()._accept(now, sequence, packet)


class WatchedFlight(SendSide):
    """Tells what becomes of packets, and what is known and allowed by their acks."""

    def __init__(
        self,
        settings: ChannelSettings,
        peer: TransportParameters,
        acks: Acks,
        credit: ReceiveCredit,
        counters: Counters,
        watch: Watch,
    ) -> None:
        super().__init__(settings, peer, acks, credit, counters)
        self.tickets = WatchedTickets(watch)
        self._tell: Final = watch.instrument
        self._channel: Final = watch.channel
        # What was told last.
        self._trip: RoundTripInfo | None = None
        self._congestion: CongestionInfo | None = None
        self._path_mtu = self.path.mtu.size

    def heard(self, now: float, newest: int, bits: int, delay: float) -> None:
        """Take acks in at once: what happened later is told later."""
        super().heard(now, newest, bits, delay)
        self.catch_up()

    def _note_heard(self, reports: Sequence[AckReport]) -> None:
        super()._note_heard(reports)
        self._tell_estimates(reports[-1].now)

    def handle_timeout(self, now: float) -> bool:
        """Do what is due, and tell of a probe and of what silence changed."""
        before = self.recovery.probes
        asks = super().handle_timeout(now)
        if self.recovery.probes > before:
            self._tell.probe_sent(now, self._channel, self.recovery.probes)
        self._tell_estimates(now)
        return asks

    def handle_too_large(self, now: float, size: int) -> None:
        """Take it that a size was too large, and tell if another one is used now."""
        super().handle_too_large(now, size)
        self._tell_estimates(now)

    def _settle(self, now: float, hit: Hit) -> None:
        for sequence in hit.sequences:
            if hit.train.was_lost(sequence):
                self._tell.loss_was_spurious(now, self._channel, sequence)
            self._tell.packet_acked(now, self._channel, sequence)
        super()._settle(now, hit)

    def _give_up(self, now: float, lost: Sequence[Hit]) -> None:
        for hit in lost:
            for sequence in hit.sequences:
                by = LostBy.PACKETS if self.recovery.is_overtaken(sequence) else LostBy.TIME
                self._tell.packet_lost(now, self._channel, sequence, by)
        super()._give_up(now, lost)

    def _tell_estimates(self, now: float) -> None:
        measured, path = self.recovery.round_trip, self.path
        if measured.smoothed is not None:
            trip = RoundTripInfo(
                measured.latest, measured.smoothed, measured.deviation, measured.minimum
            )
            if trip != self._trip:
                self._trip = trip
                self._tell.round_trip_changed(now, self._channel, trip)
        last = self._congestion
        if last is None or (path.window, path.state) != (last.window, last.state):
            in_flight = self.recovery.bytes_in_flight
            allowed = CongestionInfo(path.window, in_flight, path.rate, path.state)
            self._congestion = allowed
            self._tell.congestion_changed(now, self._channel, allowed)
        if path.mtu.size != self._path_mtu:
            self._path_mtu = path.mtu.size
            self._tell.path_mtu_changed(now, self._channel, self._path_mtu)


class WatchedSender(PacketBuilder):
    """Tells of packets that are sent, and of what keeps messages from leaving."""

    def __init__(
        self,
        peer: TransportParameters,
        send_side: SendSide,
        acks: Acks,
        ack_timer: AckTimer,
        credit: ReceiveCredit,
        watch: Watch,
    ) -> None:
        super().__init__(peer, send_side, acks, ack_timer, credit)
        self._watch = watch
        self._tell: Final = watch.instrument
        self._channel: Final = watch.channel
        # The frames of the packet that is being made, where it has more than messages, and what
        # was told last.
        self._frames: Sequence[Frame] = ()
        self._obstacle: Obstacle | None = None

    def poll(
        self, now: float, control: Sequence[Frame] = (), most: int = MOST_BYTES
    ) -> tuple[bytes, int]:
        """Give the next packets; when there are none, tell what keeps messages from leaving."""
        self._watch.tell_queued(now)
        data, size = super().poll(now, control, most)
        if not data and self._send_side.is_up_to_date:
            self._tell_obstacle(now)
        return data, size

    def _lone(self, now: float) -> tuple[bytes, int] | None:
        # What is told of a packet is told where frames are put together.
        return None

    def _packet(
        self,
        now: float,
        frames: Sequence[Frame],
        load: Load = NO_LOAD,
        *,
        closing: bool = False,
        credit: bool = False,
        size: int = 0,
    ) -> bytes:
        self._frames = frames
        packet = super()._packet(now, frames, load, closing=closing, credit=credit, size=size)
        self._frames = ()
        return packet

    def _sent(self, train: SentBatch) -> None:
        super()._sent(train)
        for packet in self._describe(train):
            self._tell.packet_sent(train.sent_at, self._channel, packet)
        if train.credit:
            self._tell.credit_sent(train.sent_at, self._channel, *self._credit.allowed)

    def _describe(self, train: SentBatch) -> Sequence[PacketInfo]:
        if train.run is None:
            return [
                describe(sequence, train.size, self._frames or [piece.frame for piece in load])
                for sequence, load in enumerate(train.loads, train.sequence)
            ]
        part = (FrameInfo("fragment", train.run.lane, 0, train.run.length),)
        sequences = range(train.sequence, train.last + 1)
        return [PacketInfo(sequence, train.size, part) for sequence in sequences]

    def _tell_obstacle(self, now: float) -> None:
        obstacle = self._find_obstacle()
        if obstacle is self._obstacle or not self._is_sending:
            return
        self._obstacle = obstacle
        if obstacle is None:
            self._tell.send_unblocked(now, self._channel)
        else:
            lanes = self._send_queue.wanting
            self._tell.send_blocked(now, self._channel, obstacle, lanes)

    def _find_obstacle(self) -> Obstacle | None:
        """What keeps messages from leaving, now that no packet does."""
        if not self._is_sending or not self._send_queue.wants_to_send:
            return None
        if self._acks.ambiguous:
            return Obstacle.SEQUENCES
        if not self._path.has_window():
            return Obstacle.WINDOW
        if self._resume_at is not None:
            return Obstacle.PACING
        return Obstacle.LANE if self._send_queue.credit.left else Obstacle.CREDIT
