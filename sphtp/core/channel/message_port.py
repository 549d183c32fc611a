"""The application's side of a connection: messages to send and receive, tickets, statistics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.reassembly import MessageProgress
from sphtp.core.channel.receipts import Outcome, Ticket
from sphtp.core.channel.settings import Delivery
from sphtp.core.channel.statistics import (
    ChannelStatistics,
    Counters,
    Estimates,
    snapshot,
)
from sphtp.errors import MessageTooLargeError, StateError

if TYPE_CHECKING:
    from sphtp.core.channel.observer import ChannelObserver
    from sphtp.core.channel.receive_side import ReceiveSide
    from sphtp.core.channel.send_side import SendSide

OFFERED: Final = 4096
"""The most messages of a long list that are offered to the send queue at a time. While the buffer
is full, each attempt then reads the sizes of these only, and not of the whole list."""


class MessagePort:
    """The application's interface to the queues of a connection.

    The connection sets ``state``, ``send_side`` and ``receive_side``. Messages can be sent while
    ``state`` is OPEN. Messages that arrived before the end can be received after it.
    """

    __slots__ = ("_counters", "_observer", "receive_side", "send_side", "state")

    def __init__(
        self, counters: Counters, state: State, observer: "ChannelObserver | None" = None
    ) -> None:
        self.state = state
        self.send_side: SendSide | None = None
        self.receive_side: ReceiveSide | None = None
        self._counters = counters
        self._observer = observer

    @property
    def sent(self) -> int:
        """The number of messages sent so far, with those that still wait to leave."""
        return self._counters.messages_sent

    @property
    def readable(self) -> bool:
        """True if ``receive_many`` has a message to return."""
        if self.receive_side is None:
            return False
        queue = self.receive_side.receive_queue
        return queue.ready_count > 0 or queue.unreliable.unread > 0

    @property
    def is_credit_due(self) -> bool:
        """True if a CREDIT should leave: enough was read, or the last CREDIT may be lost."""
        return self.receive_side is not None and self.receive_side.receive_queue.credit.is_due

    @property
    def wants_to_send(self) -> bool:
        """True if messages, or frames to retransmit, wait to leave."""
        return self.send_side is not None and self.send_side.send_queue.wants_to_send

    def room_for(self, sizes: Sequence[int], lane: int = 0) -> int:
        """Return the number of messages of these sizes, in bytes, that ``queue`` would take now.

        Raises ``MessageTooLargeError`` if one of them can never be sent, ``LocalError`` if there is
        no such lane, and ``StateError`` if the channel is not open.
        """
        return self._sending().send_queue.room_for(sizes, lane)

    def has_room(self, size: int, lane: int = 0) -> bool:
        """Return True if a message of ``size`` bytes has room; raises as ``room_for``."""
        return self.room_for((size,), lane) > 0

    def queue(self, payloads: Sequence[bytes], lane: int = 0) -> int:
        """Queue as many reliable messages as there is room for; return their number.

        Raises as ``room_for``.
        """
        send_side, sizes = self.send_side, list(map(len, payloads))
        if send_side is None or self.state is not State.OPEN:
            send_side = self._sending()
        number = send_side.send_queue.push(payloads, sizes, lane)
        self._counters.messages_sent += number
        if self._observer is not None and number:
            self._observer.messages_queued(lane, Delivery.RELIABLE, sizes[:number])
        return number

    def queue_from(
        self, start: int, payloads: Sequence[bytes], sizes: Sequence[int], lane: int = 0
    ) -> int:
        """Queue messages from index ``start`` on, as ``queue`` does; return their number.

        ``sizes`` are those of all payloads, in bytes. At most ``OFFERED`` messages are queued in a
        call. Raises as ``room_for``.
        """
        offered = slice(start, start + OFFERED)
        number = self._sending().send_queue.push(payloads[offered], sizes[offered], lane)
        self._counters.messages_sent += number
        if self._observer is not None and number:
            self._observer.messages_queued(lane, Delivery.RELIABLE, sizes[start : start + number])
        return number

    def reserve(self, number: int, size: int, lane: int = 0) -> int:
        """Return the number of messages of ``size`` bytes that a lane can take, up to ``number``.

        Return 0 if the channel takes no message of that size. Raises otherwise as ``room_for``.
        """
        try:
            return self.room_for([size] * number, lane)
        except MessageTooLargeError:
            return 0

    def send_many(self, payloads: Sequence[bytes], lane: int = 0) -> None:
        """Queue all of these messages.

        Raises ``StateError``, and queues none, if there is no room for all; otherwise as
        ``room_for``.
        """
        if self.room_for(list(map(len, payloads)), lane) < len(payloads):
            raise StateError(f"no room for {len(payloads)} messages")
        self.queue(payloads, lane)

    def send(self, payload: bytes, ticket: Ticket, delivery: Delivery) -> None:
        """Queue a message with a ticket, in the lane of the ticket.

        If too many unreliable messages wait in the lane, the oldest is dropped, and its ticket
        settled as lost. Raises ``StateError`` if there is no room for a reliable message,
        ``MessageTooLargeError`` for an unreliable one that does not fit one packet, and otherwise
        as ``room_for``.
        """
        send_side, size = self._sending(), len(payload)
        if delivery is Delivery.RELIABLE:
            if not send_side.send_queue.push((payload,), (size,), ticket.lane, ticket):
                raise StateError("no room for a message")
        else:
            gone = send_side.send_queue.push_unreliable(payload, ticket, delivery)
            if gone is not None:
                send_side.receipts.settle(ticket.sent_at, (gone,), Outcome.LOST)
        send_side.receipts.add(ticket)
        self._counters.messages_sent += 1
        if self._observer is not None:
            self._observer.messages_queued(ticket.lane, delivery, (size,))

    def may_send_beside(self, lane: int, size: int) -> bool:
        """Return True if a message of ``size`` bytes may leave by shared memory alone.

        It may if the channel takes messages of this size, all other reliable messages of its lane
        have left, and credit and the lane's window allow it. Raises ``StateError`` if the channel
        is not open, and ``LocalError`` if there is no such lane.
        """
        return self._sending().send_queue.may_pass(lane, size)

    def send_beside(self, lane: int, size: int, credit: int) -> tuple[int, int]:
        """Count a message of ``size`` bytes that leaves by shared memory alone.

        It uses up ``credit`` bytes of credit. Return the lane and the id of the message, as in a
        frame. Raises ``StateError`` if the channel is not open.
        """
        place = self._sending().send_queue.pass_message(lane, credit)
        self.count_beside_sent(size)
        if self._observer is not None:
            self._observer.messages_queued(lane, Delivery.RELIABLE, (credit,))
        return place

    def deliver_beside_untrusted(self, lane: int, message_id: int, payload: bytes) -> bool:
        """Deliver a message that came by shared memory alone; return False if there is no room yet.

        Raises ``RemoteError`` for an invalid lane.
        """
        side = self.receive_side
        return side is not None and side.receive_queue.insert_beside(lane, message_id, payload)

    def expire(self, now: float, ticket: Ticket) -> None:
        """Settle the ticket of a message that expired before there was room to queue it.

        Raises ``StateError`` if the channel is not open.
        """
        tickets = self._sending().receipts
        tickets.add(ticket)
        tickets.settle(now, (ticket,), Outcome.EXPIRED)

    def receive_many(self, limit: int) -> list[bytes]:
        """Return up to ``limit`` received messages, as ``ReceiveQueue.receive_many`` does."""
        payloads = self.receive_side.receive_queue.receive_many(limit) if self.receive_side else []
        self._counters.messages_received += len(payloads)
        return payloads

    def arriving(self) -> list[MessageProgress]:
        """Return the progress of each large message of which only a part has arrived."""
        return self.receive_side.receive_queue.arriving() if self.receive_side else []

    def count_undecodable(self, count: int) -> None:
        """Count received messages that could not be decoded."""
        self._counters.undecodable += count

    def count_beside_sent(self, size: int) -> None:
        """Count a message of ``size`` bytes that leaves by shared memory alone."""
        self._counters.messages_sent += 1
        self._counters.shared_memory_sent += 1
        self._counters.shared_memory_bytes_sent += size

    def count_notice_received(self, size: int) -> None:
        """Count a message of ``size`` bytes that came as a notice."""
        self._counters.messages_received += 1
        self._counters.shared_memory_received += 1
        self._counters.shared_memory_bytes_received += size

    def count_shared_sent(self, size: int) -> None:
        """Count a message whose payload of ``size`` bytes leaves by shared memory."""
        self._counters.shared_memory_sent += 1
        self._counters.shared_memory_bytes_sent += size

    def count_shared_received(self, size: int) -> None:
        """Count a message whose payload of ``size`` bytes came by shared memory."""
        self._counters.shared_memory_received += 1
        self._counters.shared_memory_bytes_received += size

    def poll_settled(self) -> Ticket | None:
        """Return the next settled ticket to report; None if there is none."""
        return self.send_side.receipts.poll_settled() if self.send_side else None

    def statistics(self) -> ChannelStatistics:
        """Return a snapshot of counters and estimates."""
        return snapshot(self._counters, self._estimates())

    def _estimates(self) -> Estimates:
        send_side, receive_side = self.send_side, self.receive_side
        if send_side is None or receive_side is None:
            return Estimates()
        trip, dropped = send_side.recovery.round_trip, receive_side.receive_queue.unreliable.dropped
        return Estimates(
            unreliable_dropped=send_side.send_queue.unreliable_dropped + dropped,
            waiting=send_side.send_queue.waiting,
            unread=len(receive_side.receive_queue),
            rtt=trip.smoothed,
            rtt_deviation=trip.deviation,
            loss=send_side.recovery.ratio,
            bandwidth=send_side.path.bandwidth.rate,
            window=send_side.path.window,
            datagram_size=send_side.path.mtu.size,
        )

    def _sending(self) -> "SendSide":
        if self.send_side is None or self.state is not State.OPEN:
            raise StateError(f"nothing can be sent while the channel is {self.state.name}")
        return self.send_side
