"""The receive side of an open connection: packets in, and what they mean for either side of it.

This is the seed's ack algorithm, on receive, in the order of the wire format, "Receiving a packet".
``receive_queue`` has the message algorithm, ``received_packets`` the ack bits and the ack timer,
``flow_control`` how much may come.

Datagrams come in batches of one or more, and packets that follow one another closely enough are
decoded and taken in as one (``frames``). Whether they may be is for the connection to know: they
must come behind all others, ack nothing that was never sent, and have room. Where they do not, the
same bytes are taken packet by packet, which shows which of them is to blame.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sphtp.core.channel.frames import (
    MOST_TOGETHER,
    Close,
    Credit,
    Frame,
    Packet,
    decode_packet_untrusted,
)
from sphtp.core.channel.handshake import TransportParameters
from sphtp.core.channel.lifecycle import Event
from sphtp.core.channel.memory import NodeMemory
from sphtp.core.channel.packet_builder import NOTHING, PacketBuilder
from sphtp.core.channel.path_mtu import Search
from sphtp.core.channel.receive_queue import ReceiveQueue
from sphtp.core.channel.received_packets import (
    INFINITY,
    MOST_UNACKED,
    AckTimer,
    Arrival,
    ReceivedPackets,
)
from sphtp.core.channel.send_side import SendSide
from sphtp.core.channel.sent_packets import SentPackets
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters, Estimates
from sphtp.core.channel.watch.records import Drop
from sphtp.core.timers import earliest
from sphtp.errors import RemoteError

if TYPE_CHECKING:
    from sphtp.core.channel.watch.parts import Watch


class News(NamedTuple):
    """What was put off means for the life of a connection.

    There is ``progress`` when packets were acked that held reliable messages.
    """

    progress: bool = False
    events: Sequence[Event] = ()


NO_NEWS: Final = News()
LOST_CLOSE: Final = News(events=(Event.CLOSE_LOST,))


class ForgedAckError(RemoteError):
    """A packet acks another that was never sent."""


class ReceiveSide:
    """Takes in the packets of one connection.

    ``observer`` is told what is received and what is dropped; it changes nothing.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        peer: TransportParameters,
        counters: Counters,
        node: NodeMemory | None = None,
        observer: "Watch | None" = None,
    ) -> None:
        self._observer = observer
        self._largest = settings.max_datagram
        self._counters = counters
        self._sent_packets = SentPackets(settings.first_sequence)
        self._received = ReceivedPackets(peer.first_sequence)
        self._ack_timer = AckTimer(settings.ack_every, settings.ack_delay)
        self.receive_queue = ReceiveQueue(settings, peer.first_sequence, counters.bounds, node)
        self.send_side, self.sender = self._make_sending(settings, peer)

    def _make_sending(
        self, settings: ChannelSettings, peer: TransportParameters
    ) -> tuple[SendSide, PacketBuilder]:
        sent, credit = self._sent_packets, self.receive_queue.credit
        send_side = SendSide(settings, peer, sent, credit, self._counters)
        return send_side, PacketBuilder(
            peer, send_side, sent, self._received, self._ack_timer, credit
        )

    def estimates(self) -> Estimates:
        """What is measured by now."""
        send_side, receive_queue = self.send_side, self.receive_queue
        send_side.catch_up()
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

    def poll_timeout(self) -> float | None:
        """When an ack or the next packet may leave, one is lost, or a message expires."""
        return earliest(self.sender.poll_timeout(), self.send_side.poll_timeout())

    def poll_ahead(self, now: float, frames: Sequence[Frame], most: int) -> tuple[bytes, int]:
        """The next packets, should they be an answer that leaves before ``catch_up``.

        What would go again may be acked by what is not noted yet.
        """
        if self.send_side.is_ahead or self.send_side.send_queue.sends_again:
            return NOTHING
        return self.sender.poll(now, frames, most)

    def catch_up(self) -> News:
        """Note what was put off, and tell what it means."""
        self.send_side.catch_up()
        is_lost, acked = self.send_side.poll_close_lost(), self.send_side.poll_acked()
        if not acked:
            return LOST_CLOSE if is_lost else NO_NEWS
        events = [Event.CLOSE_LOST] if is_lost else []
        if any(hit.train.closing for hit in acked):
            events.append(Event.CLOSE_ACKED)
        if self.send_side.path.mtu.state is Search.TOO_SMALL:
            events.append(Event.PATH_TOO_SMALL)
        return News(any(hit.train.has_messages for hit in acked), events)

    def handle_new_path(self, now: float) -> None:
        """Take it that packets go another way from now on."""
        self.sender.forget_made()
        self.send_side.path.path_changed(now)

    def handle_too_large(self, now: float, size: int) -> None:
        """Take it that a datagram of that size was too large to be sent."""
        before = self.send_side.path.mtu.size
        self.send_side.handle_too_large(now, size)
        if self.send_side.path.mtu.size < before:
            self.sender.forget_made()

    @property
    def owes_ack(self) -> bool:
        """Whether an ack leaves before long, whatever else there is to say."""
        return self._ack_timer.due is not None

    def handle_datagrams_untrusted(
        self, now: float, data: bytes, size: int
    ) -> tuple[bool, Close | None]:
        """Take DATA datagrams in, of ``size`` bytes each, of which the last may be shorter.

        Return whether there was a sign of life, and the CLOSE that came, if one did. What is
        malformed, forges acks or contradicts what is known is counted, and changes nothing.
        """
        is_alive, close = False, None
        start = split = 0
        while True:
            number = 1
            try:
                most = 1 if start < split else MOST_TOGETHER
                packet = decode_packet_untrusted(data, start, size, most)
                number = packet.number
                is_life, closing = self._handle_packet(now, packet)
            except RemoteError as error:
                if number > 1:
                    split = start + number * size
                    continue
                is_forged = isinstance(error, ForgedAckError)
                self._counters.malformed += 1
                self._counters.forged_acks += is_forged
                why = Drop.FORGED_ACK if is_forged else Drop.MALFORMED
                self._dropped(now, min(size, len(data) - start), why)
            else:
                self._counters.received += number
                self._counters.bytes_received += packet.size
                is_alive, close = is_alive or is_life, close or closing
            start += number * size
            if start >= len(data):
                return is_alive, close

    def _handle_packet(self, now: float, packet: Packet) -> tuple[bool, Close | None]:
        """Take a packet in, or a batch of packets that mean what one would.

        Return whether it is a sign of life, and the CLOSE in it. Raises ``RemoteError`` when it is
        malformed, or a batch has to be taken packet by packet; it has changed nothing then.
        """
        # The steps are those of the wire format. 1: the datagram's size.
        short, ack, ack_bits, delay, content, control, size, number = packet
        if size > number * self._largest:
            raise RemoteError(f"a datagram of {size // number} bytes is over the limit")
        # 2: old packets and duplicates.
        is_eliciting = bool(content or control)
        sequence = self._received.restore(short)
        if sequence <= self._received.highest:
            if number > 1:
                raise RemoteError("a batch of which some may have come before")
            if (arrival := self._received.arrival(sequence)) is not Arrival.FRESH:
                # The acks of a packet that old may mean packets of another round of the 16 bits.
                self._handle_repeat(now, arrival, size, is_eliciting)
                return False, None
        # 4: acks of what was never sent.
        try:
            newest_acked = self._sent_packets.named(ack)
        except RemoteError as error:
            raise ForgedAckError(str(error)) from error
        # 3 and 6: messages that cannot be, and those without room. All are taken in, or none.
        batch_bytes = size if number > 1 else 0
        is_accepted = self.receive_queue.insert(content, sequence, batch_bytes)
        if not is_accepted and number > 1:
            raise RemoteError("a batch for which there is no room as a whole")
        # 5: what the header acks counts although there was no room.
        self.send_side.heard(now, newest_acked, ack_bits, delay)
        if not is_accepted:
            self._counters.too_early += 1
            self._dropped(now, size, Drop.TOO_EARLY)
            return True, None
        # 7: the packet counts as received, and is acked.
        if self._observer is not None:
            self._observer.packet_received(now, sequence, packet, newest_acked)
        self._record(now, sequence, number, is_eliciting)
        return True, self._handle_control(now, control) if control else None

    def _handle_control(self, now: float, control: Sequence[Frame]) -> Close | None:
        close = None
        for frame in control:
            if isinstance(frame, Credit):
                self.send_side.send_queue.credit.raise_to(frame.messages, frame.size)
                if self._observer is not None:
                    self._observer.credit_received(now, frame)
            elif isinstance(frame, Close):
                close = frame
                self._ack_timer.owe_again(now)
        return close

    def _handle_repeat(self, now: float, arrival: Arrival, size: int, is_eliciting: bool) -> None:
        if arrival is Arrival.TOO_OLD:
            self._counters.too_old += 1
            self._dropped(now, size, Drop.TOO_OLD)
            return
        self._counters.duplicates += 1
        self._dropped(now, size, Drop.DUPLICATE)
        # Our ack may have been what got lost. An ack is never acked, or two sides would never stop.
        if is_eliciting:
            self._ack_timer.owe_again(now)

    def _dropped(self, now: float, size: int, why: Drop) -> None:
        if self._observer is not None:
            self._observer.datagram_dropped(now, size, why)

    def _record(self, now: float, sequence: int, number: int, is_eliciting: bool) -> None:
        """Note which packets came, and which acks they make due.

        An ack names 32 packets. So of packets that are handled many at a time, an ack is made
        every 16; and a packet that fills a gap further back gets an ack of its own.
        """
        received, timer = self._received, self._ack_timer
        if sequence > received.highest:
            timer.newest_at = now if is_eliciting else INFINITY
        end = sequence + number
        for first in range(sequence, end, MOST_UNACKED):
            if first >= timer.overdue_from:
                self.sender.ack_early(now)
            count = min(MOST_UNACKED, end - first)
            is_out_of_order = received.received(first, count)
            if is_eliciting and is_out_of_order and received.is_out_of_reach(first):
                self.sender.ack_late(now, first)
            elif is_eliciting:
                missing = received.missing
                timer.owe(now, first, count, at_once=is_out_of_order, missing=missing)
