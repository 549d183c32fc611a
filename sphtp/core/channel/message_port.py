"""What an application does with a connection: messages out, messages in, and their receipts."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sphtp.core.channel.reassembly import Arriving
from sphtp.core.channel.receipts import Outcome, Ticket
from sphtp.core.channel.receive_side import ReceiveSide
from sphtp.core.channel.settings import Delivery
from sphtp.core.channel.statistics import (
    ChannelStatistics,
    Counters,
    Estimates,
    LimitCounters,
    snapshot,
)
from sphtp.errors import MessageTooLargeError, StateError

if TYPE_CHECKING:
    from sphtp.core.channel.observer import ChannelObserver
from typing import Final

# What an application does with a connection: messages out, messages in, and their receipts.


class MessagePort:
    """The queues of a connection as an application sees them.

    ``sending`` gives the transport, or raises ``StateError`` where nothing can be sent. What
    arrived before the end can still be received after it.
    """

    __slots__ = ("_counters", "_observer", "_sending", "transport")

    def __init__(
        self,
        counters: Counters,
        sending: Callable[[], ReceiveSide],
        observer: "ChannelObserver | None" = None,
    ) -> None:
        self.transport: ReceiveSide | None = None
        self._counters = counters
        self._sending = sending
        self._observer = observer

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
        """How many of these messages, given by their sizes, ``queue`` takes in a lane by now.

        Raises ``MessageTooLargeError`` when one of them never can be sent, ``StateError`` when
        nothing can.
        """
        return self._sending().send_side.send_queue.room_for(sizes, lane)

    def has_room(self, size: int, lane: int = 0) -> bool:
        """Whether there is room for one message of a size; raises as ``room_for``."""
        return self.room_for((size,), lane) > 0

    def queue(
        self, payloads: Sequence[bytes], lane: int = 0, receipts: Sequence[Ticket] | None = None
    ) -> int:
        """Queue reliable messages, the first ones, as far as there is room; return how many.

        ``receipts``, where somebody asked for them, are one for each message, and follow those that
        were queued. Raises as ``room_for``.
        """
        sizes = list(map(len, payloads))
        send_side = self._sending().send_side
        if receipts is None:
            number = send_side.send_queue.push(payloads, sizes, lane)
        else:
            number = 0
            for payload, size, receipt in zip(payloads, sizes, receipts, strict=True):
                if not send_side.send_queue.push((payload,), (size,), lane, receipt):
                    break
                send_side.receipts.add(receipt)
                number += 1
        self._counters.messages_sent += number
        if self._observer is not None and number:
            self._observer.messages_queued(lane, Delivery.RELIABLE, sizes[:number])
        return number

    def reserve(self, number: int, size: int, lane: int = 0) -> int:
        """How many messages of up to ``size`` bytes a lane has room for by now, up to ``number``.

        None where the channel takes no message of that size; raises as ``room_for`` else.
        """
        try:
            return self.room_for([size] * number, lane)
        except MessageTooLargeError:
            return 0

    def send_many(self, payloads: Sequence[bytes], lane: int = 0) -> None:
        """The same for all of them; raises ``StateError`` when there is no room for that."""
        if self.room_for(list(map(len, payloads)), lane) < len(payloads):
            raise StateError(f"no room for {len(payloads)} messages")
        self.queue(payloads, lane)

    def send_some(self, payloads: Sequence[bytes], sizes: Sequence[int], lane: int = 0) -> int:
        """As ``queue``, where the sizes of the messages are known."""
        number = self._sending().send_side.send_queue.push(payloads, sizes, lane)
        self._counters.messages_sent += number
        if self._observer is not None and number:
            self._observer.messages_queued(lane, Delivery.RELIABLE, sizes[:number])
        return number

    def send(self, payload: bytes, ticket: Ticket, delivery: Delivery) -> None:
        """Queue a message that is followed.

        Raises ``StateError`` when there is no room for a reliable one, ``MessageTooLargeError`` for
        one that is sent once and does not fit one packet.
        """
        if delivery is Delivery.RELIABLE:
            if not self.queue((payload,), ticket.lane, (ticket,)):
                raise StateError("no room for a message")
            return
        send_side = self._sending().send_side
        gone = send_side.send_queue.push_unreliable(payload, ticket, delivery)
        if gone is not None:
            send_side.receipts.settle(ticket.sent_at, (gone,), Outcome.LOST)
        send_side.receipts.add(ticket)
        self._counters.messages_sent += 1
        if self._observer is not None:
            self._observer.messages_queued(ticket.lane, delivery, (len(payload),))

    def expire(self, now: float, ticket: Ticket) -> None:
        """Take it that a message has expired for which there was no room in time."""
        tickets = self._sending().send_side.receipts
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
        return self.transport.send_side.receipts.poll_settled() if self.transport else None

    def statistics(self) -> ChannelStatistics:
        """A snapshot of counters and estimates."""
        estimates = self.transport.estimates() if self.transport else Estimates()
        return snapshot(self._counters, estimates)


# Many messages on their way into a lane, as it has room for them.


OFFERED: Final = 4096
"""Messages for which room is looked for at a time: those behind them are not looked at again and
again while there is none."""


class Burst:
    """Reliable messages that are sent together, to leave in their order.

    Raises as ``MessagePort.room_for``, for any of them before one has left.
    """

    __slots__ = ("_lane", "_payloads", "_port", "_sent", "_sizes")

    def __init__(self, port: MessagePort, payloads: Sequence[bytes], lane: int = 0) -> None:
        self._port = port
        self._payloads = payloads
        self._sizes = list(map(len, payloads))
        self._lane = lane
        self._sent = 0
        if len(payloads) > OFFERED:
            port.room_for(self._sizes, lane)

    @property
    def left(self) -> int:
        """How many have not been queued."""
        return len(self._payloads) - self._sent

    def send(self) -> int:
        """Queue as many as have room by now; return how many that were."""
        offered = slice(self._sent, self._sent + OFFERED)
        count = self._port.send_some(self._payloads[offered], self._sizes[offered], self._lane)
        self._sent += count
        return count
