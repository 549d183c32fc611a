"""The delivery controller, which delivers each message of one topic once, or reports its loss.

It takes the records of datagrams as they arrive. A record passes three steps in the pipeline: each
of its numbers is settled once (``unrecoverable_loss``), the fragments of a large message are
reassembled, and messages wait for earlier ones (``ordered_delivery``).

Losses have two levels. The transport gives a missing datagram up in ``NakGenerator._give_up``
(``nak`` has the reasons). A message is lost for the reader in ``DeliveryPipeline.lose``, which puts
the loss into its place in the order. This is final: a message that arrives later is a duplicate.

Five functions of ``DeliveryController`` give up messages that the transport will not bring, by its
``_give_up``. With off-transport recovery, ``_give_up`` only marks the messages as wanted from the
source's history; else it calls ``lose``:

* ``give_up_unrecoverable``: every datagram that could contain the message has arrived or was given
  up. The reason is that of the last of those given up; ``WINDOW`` if it is not known.
* ``handle_timeout``: the message was missing for a generation interval. The reason is that of the
  last datagram given up meanwhile that may have contained it; ``TIMEOUT`` without one.
* ``_take``: the receive buffer is full. ``OVERRUN``.
* ``_give_all_up``: the session is over, and the message is missing. The reason is found in the same
  way; ``SESSION_END`` without such a datagram.
* ``_progress``: the session is over, and its last message is incomplete. ``SESSION_END``.

Four functions call ``lose`` themselves:

* ``DeliveryPipeline.relieve``: too much is missing or waits (``order_map``, ``order_map_bytes``).
  The oldest missing messages are lost, wanted ones included. ``MAP_OVERFLOW``.
* ``DeliveryPipeline._assemble``: the fragments exceed ``max_message``. ``MAP_OVERFLOW``.
* ``handle_not_fetched``: the history does not deliver a wanted message. The caller passes the
  reason: ``GONE``, ``FETCH_TIMEOUT`` or ``SESSION_END``.
* ``handle_end`` without ``fetching``: a wanted message can no longer be fetched. ``SESSION_END``.

The table has the beginning of the stream, the end of the catch-up, and the end of the session.
Until the session is over, live records pass the same steps in every state, with one exception:
before ``FOLLOWING``, a record that is too far ahead is dropped, and its messages are fetched later.
"""

from typing import Final

from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.core.stream.events import (
    Arrived,
    Batch,
    EndReason,
    GivenUp,
    Item,
    Loss,
    LossReason,
    Origin,
    StreamEnd,
)
from sphtp.core.stream.ordered_delivery import (
    ArrivalOrder,
    DeliveryOrder,
    OrderMap,
    PartialMessages,
    ReaderQueue,
)
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.records import FragmentRecord, Record, RunRecord
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.statistics import DeliveryStatistics
from sphtp.core.stream.unrecoverable_loss import MissingDatagrams, PendingMessages


class DeliveryState(Name):
    """The states of a delivery controller."""

    HOLDING = "awaits the start of the history; with ordered delivery, messages wait for it, too"
    CATCHING_UP = "fetches the history; live messages that are too far ahead are fetched later"
    FOLLOWING = "delivers live messages as they come"
    DRAINING = "the session is over; waits for requested history"
    ENDED = "every message was delivered, or its loss reported"


class DeliveryEvent(Name):
    """The events of a delivery controller."""

    BEGIN = "the start of the stream is known"
    MERGED = "no message of the history is missing any more"
    END = "the session is over"
    SETTLED = "no message is missing any more"


class DeliveryAction(Name):
    """The actions of a delivery controller."""

    BEGIN = "deliver the messages from the start on"
    FOLLOW = "count messages fetched from now on as recovered, not as history"
    GIVE_UP = "give up, or fetch, the messages that the transport has not brought"
    END = "report the end to the reader"


S, E, A = DeliveryState, DeliveryEvent, DeliveryAction

DELIVERY = Machine(
    "Delivery",
    S.FOLLOWING,
    (
        Row(S.HOLDING, E.BEGIN, S.CATCHING_UP, (A.BEGIN,), "the bounds of the history are known"),
        Row(S.CATCHING_UP, E.MERGED, S.FOLLOWING, (A.FOLLOW,), "the history meets live messages"),
        Row(S.CATCHING_UP, E.END, S.DRAINING, (A.GIVE_UP,), "the history may outlive the session"),
        Row(S.FOLLOWING, E.END, S.DRAINING, (A.GIVE_UP,), "the transport has ended"),
        Row(S.DRAINING, E.SETTLED, S.ENDED, (A.END,), "each number is settled"),
    ),
    events=DeliveryEvent,
    # A controller with late join starts in HOLDING.
    entries=frozenset({S.HOLDING}),
    final=frozenset({S.ENDED}),
    refused={
        S.HOLDING: frozenset({E.MERGED, E.END, E.SETTLED}),
        S.CATCHING_UP: frozenset({E.BEGIN, E.SETTLED}),
        S.FOLLOWING: frozenset({E.BEGIN, E.MERGED, E.SETTLED}),
        S.DRAINING: frozenset({E.BEGIN, E.MERGED, E.END}),
        S.ENDED: frozenset(DeliveryEvent),
    },
)


MOST_NUMBER: Final = 1 << 63
"""Message numbers are below this. It is half of the 64-bit range, so that sums stay within it."""

NONE: Final = -1
"""Stands for the absence of a message number."""


class DeliveryPipeline:
    """The settling of each number, once, as delivered or lost, within the settings' limits.

    ``duplicates`` counts messages and fragments that had arrived or were settled before,
    ``refused`` counts records that contradict earlier ones, or exceed a limit.
    """

    __slots__ = ("_order", "_settings", "duplicates", "partial", "pending", "refused")

    def __init__(
        self, settings: StreamSettings, pending: PendingMessages, order: DeliveryOrder
    ) -> None:
        self._settings = settings
        self._order = order
        self.pending = pending
        self.partial = PartialMessages()
        self.duplicates = 0
        self.refused = 0

    @property
    def load(self) -> float:
        """The share of the settings' limits that is in use: of messages or of bytes, whichever is
        larger.
        """
        pending = self.pending
        count = self._order.count + self.partial.count + len(pending.gaps) + len(pending.wanted)
        size = self._order.size + self.partial.size
        return max(count / self._settings.order_map, size / self._settings.order_map_bytes)

    @property
    def next(self) -> int:
        """The first number that ``take_next`` takes; ``NONE`` if only ``take`` may be called."""
        return self.pending.top if self.pending.is_settled else NONE

    def begin(self, first: int) -> None:
        """Begin the stream with the message ``first``."""
        self.pending.begin(first)
        self._order.begin(first)

    def take_next(self, record: Record, sqn: int) -> bool:
        """Take a record that begins with ``next``, as almost all records do.

        Return False if ``take`` has to handle it. No message is missing or waits, except for the
        fragments of this message.
        """
        if isinstance(record, FragmentRecord):
            return self._take_next_part(record, sqn)
        if self.partial:
            return False
        _, first, payloads = record
        top = first + len(payloads)
        self.pending.advance(top, sqn)
        self._order.put(first, top - 1, Batch(first, payloads, Origin.LIVE))
        return True

    def _take_next_part(self, fragment: FragmentRecord, sqn: int) -> bool:
        message = self.partial.find(fragment.first)
        if message is None or message.parts != fragment.parts:
            return False
        if message.size + len(fragment.payload) > self._settings.max_message:
            return False
        if self.partial.add(fragment) is None:
            self.duplicates += 1
        elif (whole := message.join()) is not None:
            self.pending.advance(fragment.first + 1, sqn)
            self._finish(fragment.first, whole, Origin.LIVE)
        return True

    def take(self, now: float, record: Record, sqn: int) -> None:
        """Take the new messages of a record that came with datagram ``sqn``."""
        if not self._is_plausible(record):
            return
        if type(record) is RunRecord:
            new = self.pending.take(now, record.first, record.last, sqn)
            self._put(record, new, Origin.LIVE)
        elif type(record) is FragmentRecord:
            self._take_part(now, record, sqn)

    def _take_part(self, now: float, fragment: FragmentRecord, sqn: int) -> None:
        pending, number = self.pending, fragment.first
        # Its other fragments are on their way. It is missing only after a later message has come.
        pending.expect(now, number, sqn)
        if number < pending.top:
            if not pending.is_missing(number):
                self.duplicates += 1
                return
            pending.narrow(number, sqn)
        if (whole := self._assemble(fragment)) is not None:
            pending.take(now, number, number, sqn)
            self._finish(number, whole, Origin.LIVE)

    def take_fetched(self, record: Record, origin: Origin) -> None:
        """Take the missing messages of a record from the history."""
        if not self._is_plausible(record):
            return
        if type(record) is RunRecord:
            self._put(record, self.pending.take_known(record.first, record.last), origin)
        elif type(record) is FragmentRecord:
            if not self.pending.is_missing(record.first):
                self.duplicates += 1
            elif (whole := self._assemble(record)) is not None:
                self.pending.take_known(record.first, record.first)
                self._finish(record.first, whole, origin)

    def drop(self, now: float, record: Record, sqn: int) -> list[Span]:
        """Drop a record for which there is no room. Settle and return its new numbers."""
        if not self._is_plausible(record):
            return []
        return self.pending.take(now, record.first, record.last, sqn)

    def lose(self, span: Span, reason: LossReason) -> None:
        """Settle numbers as lost, also those of incomplete messages."""
        for number in self.partial.within(*span):
            self.partial.remove(number)
        self.pending.mark_settled(*span)
        self._order.put(*span, Loss(*span, reason))

    def relieve(self) -> None:
        """Settle the oldest missing messages as lost, until the settings' limits hold or no message
        is missing.
        """
        while self.load > 1 and (oldest := self.pending.oldest) is not None:
            self.lose(oldest, LossReason.MAP_OVERFLOW)

    def _put(self, run: RunRecord, new: list[Span], origin: Origin) -> None:
        _, start, payloads = run
        self.duplicates += len(payloads) - sum(span.size for span in new)
        for first, last in new:
            some = payloads
            if last - first + 1 < len(payloads):
                some = payloads[first - start : last - start + 1]
            self._order.put(first, last, Batch(first, some, origin))

    def _assemble(self, fragment: FragmentRecord) -> bytes | None:
        """Take a fragment. Return the message if it is complete, else None."""
        message = self.partial.add(fragment)
        if message is None:
            self.duplicates += 1
            return None
        if message.size > self._settings.max_message:
            self.lose(Span(fragment.first, fragment.first), LossReason.MAP_OVERFLOW)
            return None
        return message.join()

    def _finish(self, number: int, whole: bytes, origin: Origin) -> None:
        self.partial.remove(number)
        self._order.put(number, number, Batch(number, [whole], origin))

    def _is_plausible(self, record: Record) -> bool:
        """Return True if a record neither contradicts earlier ones nor exceeds a limit.

        Count other records as refused.
        """
        if record.last >= MOST_NUMBER:
            is_plausible = False
        elif type(record) is FragmentRecord:
            message = self.partial.find(record.first)
            is_same = message is None or message.parts == record.parts
            is_plausible = is_same and record.parts <= self._settings.max_message
        else:
            is_plausible = not self.partial.within(record.first, record.last)
        if is_plausible:
            return True
        self.refused += 1
        return False


class DeliveryController:
    """The delivery of one topic of one session. Times are in seconds.

    ``first`` is the number of the topic's first message that was sent after this side joined,
    ``sqn`` the lead at that moment. ``missing`` are the datagrams that the transport still tries to
    recover. With ``fetches``, messages that the transport gives up are wanted from the source's
    history. With ``late_join``, ordered delivery starts only after ``begin``.
    """

    def __init__(
        self,
        settings: StreamSettings,
        topic: int,
        first: int,
        sqn: int,
        missing: MissingDatagrams,
        *,
        ordered: bool = True,
        fetches: bool = False,
        late_join: bool = False,
    ) -> None:
        self.topic = topic
        self.live = first
        self.state = DeliveryState.HOLDING if late_join else DELIVERY.initial
        self._settings = settings
        self._pending = PendingMessages(first, sqn, missing)
        self._queue = ReaderQueue()
        self._order: DeliveryOrder = (
            OrderMap(self._queue, first) if ordered else ArrivalOrder(self._queue)
        )
        self._pipeline = DeliveryPipeline(settings, self._pending, self._order)
        self._fetches = fetches
        self._fetched_as = Origin.RETRANSMIT if late_join else Origin.OTR
        self._end_reason = EndReason.CLOSED
        # The count of messages that were dropped for lack of room.
        self._dropped = 0
        # The number of a record that ``take_next`` may take.
        self._next = NONE
        if not late_join:
            self._begin()

    @property
    def wanted(self) -> RangeSet:
        """The numbers to fetch from the source's history. Read only."""
        return self._pending.wanted

    @property
    def is_over(self) -> bool:
        """True if the session has ended, so that inputs from the transport are ignored."""
        return self.state is DeliveryState.DRAINING or self.state is DeliveryState.ENDED

    def statistics(self) -> DeliveryStatistics:
        """Return the counts of the topic, and the present levels."""
        order, partial = self._order, self._pipeline.partial
        return DeliveryStatistics(
            delivered=self._queue.delivered,
            lost=self._queue.lost,
            duplicates=self._pipeline.duplicates,
            left=self._dropped,
            refused=self._pipeline.refused,
            gaps=len(self._pending.gaps),
            wanted=self.wanted.total,
            waiting=order.count + partial.count,
            waiting_bytes=order.size + partial.size,
        )

    # From the transport

    def handle_arrived(self, now: float, arrived: Arrived) -> None:
        """Take an arrived datagram; records of other topics are ignored."""
        if self.is_over:
            return
        sqn, _, records = arrived
        queue, pipeline, limit = self._queue, self._pipeline, self._settings.receive_buffer
        for record in records:
            if record.topic != self.topic:
                continue
            is_next = record.first == self._next and queue.size + pipeline.partial.size < limit
            if is_next and pipeline.take_next(record, sqn):
                self._next = self._pending.top
            else:
                self._take(now, record, sqn)
        self._pending.suspect(sqn)

    def handle_given_up(self, given_up: GivenUp) -> None:
        """Note that the transport has given datagrams up, for a reason."""
        if not self.is_over:
            self._pending.handle_given_up(given_up)

    def handle_tail(self, now: float, number: int, lead: int) -> None:
        """Note that all messages below ``number`` were sent, in datagrams up to ``lead``."""
        if self.is_over or not self._pending.top < number < MOST_NUMBER:
            return
        self._next = NONE
        self._pending.expect(now, number, lead + 1)
        self._pending.suspect(lead + 1)
        self._pipeline.relieve()

    def give_up_unrecoverable(self) -> None:
        """Fetch the messages that the transport can no longer bring, or report their loss.

        Call this only after all arrived datagrams of the transport were handled.
        """
        for span, reason in self._pending.unrecoverable():
            self._give_up(span, reason)

    def handle_timeout(self, now: float) -> None:
        """Fetch messages that were missing for a generation interval, or report their loss."""
        for span, reason in self._pending.expired(now, self._settings.generation):
            self._give_up(span, reason)

    def handle_end(self, reason: EndReason, *, fetching: bool) -> None:
        """Handle the end of the session, with its ``reason``.

        With ``fetching``, missing messages may still come from the history. Raises ``StateError``
        before ``begin``, and after an earlier end.
        """
        self._next = NONE
        self._end_reason = reason
        self._fetches = self._fetches and fetching
        self._step(DeliveryEvent.END)
        if not fetching:
            while self.wanted:
                self._pipeline.lose(next(iter(self.wanted)), LossReason.SESSION_END)
        self._progress()

    # From the history

    def begin(self, first: int) -> None:
        """Start delivery with the message ``first``, or with ``live`` if that is lower.

        Raises ``StateError`` if delivery has started.
        """
        self.live = min(first, self.live)
        self._step(DeliveryEvent.BEGIN)
        self._progress()

    def handle_fetched(self, record: Record) -> None:
        """Take a record from the history. Messages that are not missing are dropped."""
        if record.topic == self.topic:
            self._pipeline.take_fetched(record, self._fetched_as)
            self._pipeline.relieve()
            self._progress()

    def handle_not_fetched(self, span: Span, reason: LossReason) -> None:
        """Report the wanted ones of these numbers as lost, because the history does not deliver
        them.
        """
        while missing := self.wanted.within(*span):
            self._pipeline.lose(missing[0], reason)
        self._progress()

    # To the reader

    def poll_item(self) -> Item | None:
        """Return the next item to deliver; None if no item waits."""
        return self._queue.poll()

    @property
    def room(self) -> int:
        """Bytes of messages that the receive buffer can still take."""
        held = self._queue.size + self._order.size + self._pipeline.partial.size
        return max(self._settings.receive_buffer - held, 0)

    @property
    def is_hungry(self) -> bool:
        """True if less than half of the receive buffer waits for the reader."""
        return 2 * self._queue.size < self._settings.receive_buffer

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due.

        None if no message is missing that the transport may still bring.
        """
        gaps = self._pending.gaps
        return gaps.oldest.since + self._settings.generation if gaps else None

    # Records and gaps

    def _take(self, now: float, record: Record, sqn: int) -> None:
        is_following = self.state is DeliveryState.FOLLOWING
        if not is_following and self._is_too_far(record):
            # It is fetched after the history before it.
            for span in self._drop(now, record, sqn):
                self._pending.want(*span)
        elif not self.room:
            for span in self._drop(now, record, sqn):
                self._give_up(span, LossReason.OVERRUN)
        else:
            self._pipeline.take(now, record, sqn)
        self._pipeline.relieve()
        self._progress()
        self._next = self._pipeline.next if self.state is DeliveryState.FOLLOWING else NONE

    def _is_too_far(self, record: Record) -> bool:
        """Return True if a live record is too far ahead to be kept while history is fetched.

        Half of the limits is left for the history.
        """
        is_far = self._order.lead(record.first) > self._settings.caching_proximity
        return is_far or self._pipeline.load > 1 / 2

    def _drop(self, now: float, record: Record, sqn: int) -> list[Span]:
        new = self._pipeline.drop(now, record, sqn)
        self._dropped += sum(span.size for span in new)
        return new

    def _give_up(self, span: Span, reason: LossReason) -> None:
        """Mark messages that the transport will not bring as wanted, or report their loss."""
        if self._fetches:
            self._pending.want(*span)
        else:
            self._pipeline.lose(span, reason)

    def _progress(self) -> None:
        """Step the table if no message is missing any more."""
        if self.state is DeliveryState.CATCHING_UP and not self.wanted:
            self._step(DeliveryEvent.MERGED)
        if self.state is DeliveryState.DRAINING:
            # The last message may be incomplete at the session's end.
            top = self._pending.top
            if self._pipeline.partial.find(top) is not None:
                self._give_up(Span(top, top), LossReason.SESSION_END)
            if self._pending.is_settled:
                self._step(DeliveryEvent.SETTLED)

    # Actions of the table

    def _step(self, event: DeliveryEvent) -> None:
        _RUNNER.step(self, event)

    def _begin(self) -> None:
        self._pipeline.begin(self.live)

    def _follow(self) -> None:
        self._fetched_as = Origin.OTR

    def _give_all_up(self) -> None:
        for span, reason in self._pending.abandoned():
            self._give_up(span, reason)

    def _report_end(self) -> None:
        self._queue.end(StreamEnd(self._end_reason, self._pending.top))

    @classmethod
    def runner(cls) -> Runner[DeliveryState, DeliveryEvent, DeliveryAction]:
        return Runner(
            DELIVERY,
            {
                DeliveryAction.BEGIN: cls._begin,
                DeliveryAction.FOLLOW: cls._follow,
                DeliveryAction.GIVE_UP: cls._give_all_up,
                DeliveryAction.END: cls._report_end,
            },
            raised=DeliveryEvent,
        )


_RUNNER = DeliveryController.runner()
