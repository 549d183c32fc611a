"""The receive side of an open connection: it handles arriving packets.

This is the receive step of Fiedler's acks. ``ReceiveSide._handle_packet`` has the seven steps of
"Receiving a packet" in ``docs/reference/wire/channel.md``. It takes the messages into the receive
queue (steps 4 and 6) before it processes the acks (step 5), but acks also count if there is no room
for a message. ``receive_queue`` has the message algorithm, ``received_packets`` the ack bits and
the ack timer, and ``flow_control`` the credit that this side grants.

The acks in the header of an accepted packet take this way:

1. ``_handle_packet`` ignores acks that are equal to those of the last header.
2. ``SentPackets.named`` (``sent_packets``) restores the full sequence. If it was never sent, the
   packet is dropped with ``ForgedAckError``.
3. ``SentPackets.acknowledge`` selects the packets that are acked for the first time, and drops the
   records that no ack can reach any more. ``SendSide.handle_ack`` calls it, and the functions of
   the next steps.
4. ``LossDetector.acked`` (``loss_detection``) measures the round trip, and returns the packets that
   are now lost.
5. ``Path.acked`` (``path``) passes the acked bytes to congestion control and to the MTU search.
6. ``SendSide._settle`` drops the content of the acked packets, and settles the tickets of messages
   that were acked completely.
7. ``SendSide._handle_lost`` queues the content of lost packets for retransmission, and reports
   them to congestion control.

Datagrams come in batches of one or more. Consecutive packets that are similar enough are decoded as
one (``frames``). They are handled as one if they are newer than all packets before, ack only
packets that were sent, and have room. If not, the same bytes are handled packet by packet, which
shows the packet that is at fault.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sphtp.core.channel.frames import (
    MOST_TOGETHER,
    Close,
    Credit,
    Frame,
    Packet,
    Ping,
    decode_fragments_untrusted,
    decode_packet_untrusted,
)
from sphtp.core.channel.instrument import Drop
from sphtp.core.channel.receive_queue import ReceiveQueue
from sphtp.core.channel.received_packets import (
    MOST_UNACKED,
    AckTimer,
    Arrival,
    ReceivedPackets,
)
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters
from sphtp.core.timers import INFINITY
from sphtp.errors import RemoteError

if TYPE_CHECKING:
    from sphtp.core.channel.observer import ChannelObserver
    from sphtp.core.channel.send_side import SendSide


class ForgedAckError(RemoteError):
    """The error for a packet that acks a packet that was never sent (RFC 9000, section 21.4)."""


class ReceiveSide:
    """The handler of the packets that one connection receives.

    ``receive_queue`` takes the messages. ``received`` and ``ack_timer`` record the packets for
    which ``send_side`` sends acks. ``send_side`` also handles the acks and the credit that arrive.
    ``observer`` reports received and dropped packets.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        receive_queue: ReceiveQueue,
        received: ReceivedPackets,
        ack_timer: AckTimer,
        send_side: "SendSide",
        counters: Counters,
        observer: "ChannelObserver | None" = None,
    ) -> None:
        self.receive_queue = receive_queue
        self._largest = settings.max_datagram
        self._received = received
        self._ack_timer = ack_timer
        self._send_side = send_side
        self._counters = counters
        self._observer = observer
        # The acks of the last header, because most packets repeat them.
        self._acks: tuple[int, int] | None = None
        self._newest_acked = 0

    def handle_datagrams_untrusted(
        self, now: float, data: bytes | Sequence[bytes], size: int
    ) -> tuple[bool, Close | None]:
        """Handle DATA datagrams of ``size`` bytes each; the last one may be shorter.

        ``data`` has them one behind the other, or is a list of datagrams of any sizes. Return True
        if one of them is a sign of life, and the CLOSE if one of them has one. A well-formed packet
        is a sign of life unless it is a duplicate or too old. Packets that are malformed, forge
        acks or contradict earlier ones are counted, and change nothing.
        """
        is_alive, close = False, None
        at = split = 0
        if isinstance(data, bytes):
            end = -(-len(data) // size)
        else:
            end = len(data)
            if max(map(len, data)) > self._largest:
                split = end  # handled singly, to find the one that is too large
        while True:
            number = 1
            try:
                most = 1 if at < split else MOST_TOGETHER
                if isinstance(data, bytes):
                    packet = decode_packet_untrusted(data, at * size, size, most)
                else:
                    packet = decode_fragments_untrusted(data, at, most)
                number = packet.number
                is_life, closing = self._handle_packet(now, packet)
            except RemoteError as error:
                if number > 1:
                    split = at + number
                    continue
                is_forged = isinstance(error, ForgedAckError)
                self._counters.malformed += 1
                self._counters.forged_acks += is_forged
                why = Drop.FORGED_ACK if is_forged else Drop.MALFORMED
                if isinstance(data, bytes):
                    self._dropped(now, min(size, len(data) - at * size), why)
                else:
                    self._dropped(now, len(data[at]), why)
            else:
                self._counters.received += number
                self._counters.bytes_received += packet.size
                is_alive, close = is_alive or is_life, close or closing
            at += number
            if at >= end:
                return is_alive, close

    def _handle_packet(self, now: float, packet: Packet) -> tuple[bool, Close | None]:
        """Handle a packet, or a batch that was decoded as one.

        Return True if it is a sign of life, and the CLOSE in it. Raises ``RemoteError`` if it is
        malformed, or if a batch must be handled packet by packet; nothing has changed then.
        """
        # The numbers are those of the steps in "Receiving a packet". 1: the datagram's size.
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
                # The acks of a packet so old may refer to an earlier round of the 16 bits.
                self._handle_repeat(now, arrival, size, is_eliciting)
                return False, None
        # 3: acks of packets that were never sent.
        is_new_ack = (ack, ack_bits) != self._acks
        newest_acked = self._named(ack) if is_new_ack else self._newest_acked
        # 4 and 6: invalid messages, and messages without room. All are accepted, or none.
        batch_bytes = size if number > 1 else 0
        is_accepted = self.receive_queue.insert(content, sequence, batch_bytes)
        if not is_accepted and number > 1:
            raise RemoteError("a batch for which there is no room as a whole")
        # 5: the acks of the header count even if there was no room.
        if is_new_ack:
            self._acks, self._newest_acked = (ack, ack_bits), newest_acked
            self._send_side.handle_ack(now, newest_acked, ack_bits, delay)
        if not is_accepted:
            self._counters.too_early += 1
            self._dropped(now, size, Drop.TOO_EARLY)
            return True, None
        # 7: the packet counts as received, and is acked.
        if self._observer is not None:
            self._observer.packet_received(now, sequence, packet, newest_acked)
        self._record(now, sequence, number, size // number, is_eliciting)
        return True, self._handle_control(now, control) if control else None

    def _named(self, ack: int) -> int:
        """Return the full sequence for a header's ``ack``.

        Raises ``ForgedAckError`` if it was never sent.
        """
        try:
            return self._send_side.sent_packets.named(ack)
        except RemoteError as error:
            raise ForgedAckError(str(error)) from error

    def _handle_control(self, now: float, control: Sequence[Frame]) -> Close | None:
        close = None
        for frame in control:
            if isinstance(frame, Credit):
                self._send_side.handle_credit(now, frame)
            elif isinstance(frame, Ping):
                # A peer sends PING to find out at once whether its packets arrive.
                self._ack_timer.owe_again(now)
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
        # The ack of the first copy may be lost. Pure acks are never acked: acks of acks would never
        # end.
        if is_eliciting:
            self._ack_timer.owe_again(now)

    def _dropped(self, now: float, size: int, why: Drop) -> None:
        if self._observer is not None:
            self._observer.datagram_dropped(now, size, why)

    def _record(
        self, now: float, sequence: int, number: int, size: int, is_eliciting: bool
    ) -> None:
        """Record packets of ``size`` bytes, and make their acks due.

        An ack covers 32 packets. So if many packets are handled at a time, an ack is encoded after
        every 16 of them, and a packet that fills a gap further back gets an ack of its own.
        """
        received, timer = self._received, self._ack_timer
        if sequence > received.highest:
            timer.newest_at = now if is_eliciting else INFINITY
        end = sequence + number
        while sequence < end:
            if sequence >= timer.overdue_from:
                self._send_side.ack_early(now)
            count = min(MOST_UNACKED, end - sequence)
            is_out_of_order = received.received(sequence, count)
            if is_eliciting:
                if is_out_of_order and received.is_out_of_reach(sequence):
                    self._send_side.ack_late(now, sequence)
                else:
                    timer.owe(now, sequence, count, size, received.missing, at_once=is_out_of_order)
            sequence += count
