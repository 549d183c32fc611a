"""What an application does with a connection: messages out, messages in, and their receipts."""

from collections.abc import Callable, Sequence

from sphtp.core.channel.delivery import Delivery
from sphtp.core.channel.limit_counters import LimitCounters
from sphtp.core.channel.reassembly import Arriving
from sphtp.core.channel.receive_side import ReceiveSide
from sphtp.core.channel.statistics import ChannelStatistics, Counters, Estimates, snapshot
from sphtp.core.channel.ticket import Outcome, Ticket
from sphtp.errors import MessageTooLargeError


class MessagePort:
    """The queues of a connection as an application sees them.

    ``sending`` gives the transport, or raises ``StateError`` where nothing can be sent. What
    arrived before the end can still be received after it.
    """

    __slots__ = ("_counters", "_sending", "transport")

    def __init__(self, counters: Counters, sending: Callable[[], ReceiveSide]) -> None:
        self.transport: ReceiveSide | None = None
        self._counters = counters
        self._sending = sending

    @property
    def bounds(self) -> LimitCounters:
        """What was held back of late, and by which setting."""
        return self._counters.bounds

    @property
    def readable(self) -> bool:
        """Whether ``receive_many`` has a message to give."""
        return self.transport is not None and len(self.transport.receive_queue) > 0

    @property
    def has_news(self) -> bool:
        """Whether reading has made so much room that the peer should be told."""
        return self.transport is not None and self.transport.receive_queue.credit.is_due

    @property
    def wants_to_send(self) -> bool:
        """Whether messages wait to leave."""
        return self.transport is not None and self.transport.send_side.send_queue.wants_to_send

    def room_for(self, sizes: Sequence[int], lane: int = 0) -> int:
        """How many of these messages, given by their sizes, ``send_many`` takes in a lane by now.

        Raises ``MessageTooLargeError`` when one of them never can be sent, ``StateError`` when
        nothing can.
        """
        send_side = self._sending().send_side
        room = send_side.send_queue.room_for(sizes, lane)
        if room < len(sizes) and not send_side.is_up_to_date:
            send_side.catch_up()
            room = send_side.send_queue.room_for(sizes, lane)
        return room

    def has_room(self, size: int, lane: int = 0) -> bool:
        """Whether ``send`` takes a message of a size in a lane by now; raises as ``room_for``."""
        send_side = self._sending().send_side
        if send_side.send_queue.has_room(size, lane):
            return True
        send_side.catch_up()
        return send_side.send_queue.has_room(size, lane)

    def reserve(self, number: int, size: int, lane: int = 0) -> int:
        """How many messages of up to ``size`` bytes a lane has room for by now, up to ``number``.

        None where the channel takes no message of that size; raises as ``room_for`` else.
        """
        try:
            return self.room_for([size] * number, lane)
        except MessageTooLargeError:
            return 0

    def queue(self, payloads: Sequence[bytes], lane: int = 0) -> None:
        """Queue reliable messages, one at least, for which room was found by now."""
        send_queue = self._sending().send_side.send_queue
        send_queue.push_fitting(payloads, list(map(len, payloads)), lane)
        self._counters.messages_sent += len(payloads)

    def send_many(self, payloads: Sequence[bytes], lane: int = 0) -> None:
        """Queue reliable messages; the caller has asked ``room_for``."""
        self._sending().send_side.send_queue.push_many(payloads, lane)
        self._counters.messages_sent += len(payloads)

    def send_some(self, payloads: Sequence[bytes], sizes: Sequence[int], lane: int = 0) -> int:
        """Queue the first of these messages, as many as have room; return how many that were.

        Raises as ``room_for``.
        """
        count = self.room_for(sizes, lane)
        if count:
            send_queue = self._sending().send_side.send_queue
            send_queue.push_fitting(payloads[:count], sizes[:count], lane)
            self._counters.messages_sent += count
        return count

    def send(self, payload: bytes, ticket: Ticket, delivery: Delivery) -> None:
        """Queue a message that is followed; of a reliable one the caller has asked ``has_room``.

        Raises ``MessageTooLargeError`` for one that is sent once and does not fit one packet.
        """
        transport = self._sending()
        if delivery is Delivery.RELIABLE:
            transport.send_side.send_queue.push(payload, ticket)
        else:
            gone = transport.send_side.send_queue.push_once(payload, ticket, delivery)
            transport.send_side.tickets.settle(
                ticket.sent_at, (gone,) if gone else (), Outcome.LOST
            )
        transport.send_side.tickets.add(ticket)
        self._counters.messages_sent += 1

    def expire(self, now: float, ticket: Ticket) -> None:
        """Take it that a message has expired for which there was no room in time."""
        tickets = self._sending().send_side.tickets
        tickets.add(ticket)
        tickets.settle(now, (ticket,), Outcome.EXPIRED)

    def receive_many(self, limit: int) -> list[bytes]:
        """Take up to ``limit`` messages that are there."""
        payloads = self.transport.receive_queue.receive_many(limit) if self.transport else []
        self._counters.messages_received += len(payloads)
        return payloads

    def arriving(self) -> list[Arriving]:
        """The large messages of which a part has arrived."""
        return self.transport.receive_queue.arriving() if self.transport else []

    def count_undecodable(self, count: int) -> None:
        """Note that messages taken were none after all."""
        self._counters.undecodable += count

    def poll_settled(self) -> Ticket | None:
        """The next ticket of which it is known what became of its message."""
        return self.transport.send_side.tickets.poll_settled() if self.transport else None

    def statistics(self) -> ChannelStatistics:
        """A snapshot of counters and estimates."""
        estimates = self.transport.estimates() if self.transport else Estimates()
        return snapshot(self._counters, estimates)
