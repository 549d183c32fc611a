"""What an application does with a connection: messages out, messages in, and their receipts."""

from collections.abc import Callable, Sequence

from sphtp.core.channel.bounds import Bounds
from sphtp.core.channel.delivery import Delivery
from sphtp.core.channel.fragments import Arriving
from sphtp.core.channel.statistics import ChannelStatistics, Counters, Estimates, snapshot
from sphtp.core.channel.ticket import Outcome, Ticket
from sphtp.core.channel.transport import Transport


class MessagePort:
    """The queues of a connection as an application sees them.

    ``sending`` gives the transport, or raises ``StateError`` where nothing can be sent. What
    arrived before the end can still be received after it.
    """

    __slots__ = ("_counters", "_sending", "transport")

    def __init__(self, counters: Counters, sending: Callable[[], Transport]) -> None:
        self.transport: Transport | None = None
        self._counters = counters
        self._sending = sending

    @property
    def bounds(self) -> Bounds:
        """What was held back of late, and by which setting."""
        return self._counters.bounds

    @property
    def readable(self) -> bool:
        """Whether ``receive_many`` has a message to give."""
        return self.transport is not None and len(self.transport.inbox) > 0

    @property
    def has_news(self) -> bool:
        """Whether reading has made so much room that the peer should be told."""
        return self.transport is not None and self.transport.inbox.credit.is_due

    @property
    def wants_to_send(self) -> bool:
        """Whether messages wait to leave."""
        return self.transport is not None and self.transport.flight.outbox.wants_to_send

    def room_for(self, sizes: Sequence[int], lane: int = 0) -> int:
        """How many of these messages, given by their sizes, ``send_many`` takes in a lane by now.

        Raises ``MessageTooLargeError`` when one of them never can be sent, ``StateError`` when
        nothing can.
        """
        flight = self._sending().flight
        room = flight.outbox.room_for(sizes, lane)
        if room < len(sizes) and not flight.is_up_to_date:
            flight.catch_up()
            room = flight.outbox.room_for(sizes, lane)
        return room

    def has_room(self, size: int, lane: int = 0) -> bool:
        """Whether ``send`` takes a message of a size in a lane by now; raises as ``room_for``."""
        flight = self._sending().flight
        if flight.outbox.has_room(size, lane):
            return True
        flight.catch_up()
        return flight.outbox.has_room(size, lane)

    def send_many(self, payloads: Sequence[bytes], lane: int = 0) -> None:
        """Queue reliable messages; the caller has asked ``room_for``."""
        self._sending().flight.outbox.push_many(payloads, lane)
        self._counters.messages_sent += len(payloads)

    def send_some(self, payloads: Sequence[bytes], sizes: Sequence[int], lane: int = 0) -> int:
        """Queue the first of these messages, as many as have room; return how many that were.

        Raises as ``room_for``.
        """
        count = self.room_for(sizes, lane)
        if count:
            outbox = self._sending().flight.outbox
            outbox.push_fitting(payloads[:count], sizes[:count], lane)
            self._counters.messages_sent += count
        return count

    def send(self, payload: bytes, ticket: Ticket, delivery: Delivery) -> None:
        """Queue a message that is followed; of a reliable one the caller has asked ``has_room``.

        Raises ``MessageTooLargeError`` for one that is sent once and does not fit one packet.
        """
        transport = self._sending()
        if delivery is Delivery.RELIABLE:
            transport.flight.outbox.push(payload, ticket)
        else:
            gone = transport.flight.outbox.push_once(payload, ticket, delivery)
            transport.flight.tickets.settle(ticket.sent_at, (gone,) if gone else (), Outcome.LOST)
        transport.flight.tickets.add(ticket)
        self._counters.messages_sent += 1

    def expire(self, now: float, ticket: Ticket) -> None:
        """Take it that a message has expired for which there was no room in time."""
        tickets = self._sending().flight.tickets
        tickets.add(ticket)
        tickets.settle(now, (ticket,), Outcome.EXPIRED)

    def receive_many(self, limit: int) -> list[bytes]:
        """Take up to ``limit`` messages that are there."""
        payloads = self.transport.inbox.receive_many(limit) if self.transport else []
        self._counters.messages_received += len(payloads)
        return payloads

    def arriving(self) -> list[Arriving]:
        """The large messages of which a part has arrived."""
        return self.transport.inbox.arriving() if self.transport else []

    def count_undecodable(self, count: int) -> None:
        """Note that messages taken were none after all."""
        self._counters.undecodable += count

    def poll_settled(self) -> Ticket | None:
        """The next ticket of which it is known what became of its message."""
        return self.transport.flight.tickets.poll_settled() if self.transport else None

    def statistics(self) -> ChannelStatistics:
        """A snapshot of counters and estimates."""
        estimates = self.transport.estimates() if self.transport else Estimates()
        return snapshot(self._counters, estimates)
