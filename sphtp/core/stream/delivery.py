"""The delivery controller of a topic, as a table.

What transport and history tell goes through the same gate in every state; the states say where the
stream begins, who is still to bring what is missing, and when all is told.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.core.stream.events import (
    Arrived,
    Batch,
    EndReason,
    GivenUp,
    Loss,
    LossReason,
    Origin,
    StreamEnd,
)
from sphtp.core.stream.ordered_delivery import (
    ArrivalOrder,
    DeliveryOrder,
    Item,
    OrderMap,
    PartialMessages,
    ReaderQueue,
)
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.records import FragmentRecord, Record, RunRecord
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.statistics import DeliveryStatistics
from sphtp.core.stream.unrecoverable_loss import MessageGap, PendingMessages


class DeliveryState(Name):
    """Where the controller is."""

    HOLDING = "keeps what comes: not known yet where the history begins"
    CATCHING_UP = "history is being fetched; what is live waits for it, or is fetched in its turn"
    FOLLOWING = "what is live is told as it comes"
    DRAINING = "the session is over; what was asked of the history is awaited"
    ENDED = "all was told"


class DeliveryEvent(Name):
    """What happens to it."""

    BEGIN = "it is known where the stream begins"
    MERGED = "nothing of the history is missing any more"
    END = "the session is over"
    SETTLED = "nothing at all is missing any more"


class DeliveryAction(Name):
    """What it then does."""

    BEGIN = "tell what is there from the beginning on"
    FOLLOW = "what is fetched from now on was lost by the transport"
    GIVE_UP = "what the transport has not brought is lost, or fetched"
    END = "tell the end"


D, T, A = DeliveryState, DeliveryEvent, DeliveryAction

DELIVERY = Machine(
    "Delivery",
    D.FOLLOWING,
    (
        Row(D.HOLDING, T.BEGIN, D.CATCHING_UP, (A.BEGIN,), "the source told what it keeps"),
        Row(D.CATCHING_UP, T.MERGED, D.FOLLOWING, (A.FOLLOW,), "history met what is live"),
        Row(D.CATCHING_UP, T.END, D.DRAINING, (A.GIVE_UP,), "the history outlives the session"),
        Row(D.FOLLOWING, T.END, D.DRAINING, (A.GIVE_UP,), "the transport brings nothing more"),
        Row(D.DRAINING, T.SETTLED, D.ENDED, (A.END,), "every message was told, or its loss"),
    ),
    events=DeliveryEvent,
    # One that joins late starts by holding.
    entries=frozenset({D.HOLDING}),
    final=frozenset({D.ENDED}),
    refused={
        D.HOLDING: frozenset({T.MERGED, T.END, T.SETTLED}),
        D.CATCHING_UP: frozenset({T.BEGIN, T.SETTLED}),
        D.FOLLOWING: frozenset({T.BEGIN, T.MERGED, T.SETTLED}),
        D.DRAINING: frozenset({T.BEGIN, T.MERGED, T.END}),
        D.ENDED: frozenset(DeliveryEvent),
    },
)


# The way of a record: through the gate, put together if it is a part, then in its order.


GiveUp = Callable[[Span, LossReason], None]
"""What becomes of numbers that do not come: they are lost, or wanted from the history."""

MOST_NUMBER: Final = 1 << 63
"""No source gets so far; half of what the wire carries leaves room to add."""

NONE: Final = -1
"""No number."""


class DeliveryPipeline:
    """Lets each number pass once, as a message or as lost. Holds no more than the settings allow.

    ``duplicates`` counts messages and parts that had passed or been lost, ``refused`` records that
    contradict what is known.
    """

    __slots__ = ("_order", "_settings", "duplicates", "gate", "reassembly", "refused")

    def __init__(
        self, settings: StreamSettings, gate: PendingMessages, order: DeliveryOrder
    ) -> None:
        self._settings = settings
        self._order = order
        self.gate = gate
        self.reassembly = PartialMessages()
        self.duplicates = 0
        self.refused = 0

    @property
    def load(self) -> float:
        """How much is held, as a share of what the settings allow: by number, or by bytes."""
        gate = self.gate
        count = self._order.count + self.reassembly.count + len(gate.gaps) + len(gate.wanted)
        size = self._order.size + self.reassembly.size
        return max(count / self._settings.order_map, size / self._settings.order_map_bytes)

    def begin(self, first: int) -> None:
        """Let the stream begin with ``first``."""
        self.gate.begin(first)
        self._order.begin(first)

    @property
    def next(self) -> int:
        """The number of a record that may take the short way of ``take_next``; or none."""
        return self.gate.top if self.gate.is_settled else NONE

    def take_next(self, record: Record, sqn: int) -> bool:
        """Let a record pass that begins with ``next``; false when it has to take the long way.

        Nothing is missing and nothing waits, but for the parts of that very message.
        """
        if isinstance(record, FragmentRecord):
            return self._take_next_part(record, sqn)
        if self.reassembly:
            return False
        _, first, payloads = record
        top = first + len(payloads)
        self.gate.advance(top, sqn)
        self._order.put(first, top - 1, Batch(first, payloads, Origin.LIVE))
        return True

    def _take_next_part(self, fragment: FragmentRecord, sqn: int) -> bool:
        message = self.reassembly.find(fragment.first)
        if message is None or message.parts != fragment.parts:
            return False
        if message.size + len(fragment.payload) > self._settings.max_message:
            return False
        if self.reassembly.add(fragment) is None:
            self.duplicates += 1
        elif (whole := message.join()) is not None:
            self.gate.advance(fragment.first + 1, sqn)
            self._finish(fragment.first, whole, Origin.LIVE)
        return True

    def take(self, now: float, record: Record, sqn: int) -> None:
        """Let pass what is new of a record that came with datagram ``sqn``."""
        if not self._is_plausible(record):
            return
        if type(record) is RunRecord:
            self._put(record, self.gate.take(now, record.first, record.last, sqn), Origin.LIVE)
        elif type(record) is FragmentRecord:
            self._take_part(now, record, sqn)

    def _take_part(self, now: float, fragment: FragmentRecord, sqn: int) -> None:
        gate, number = self.gate, fragment.first
        # The message itself is on its way, and missing only when something follows it.
        gate.expect(now, number, sqn)
        if number < gate.top:
            if not gate.is_missing(number):
                self.duplicates += 1
                return
            gate.narrow(number, sqn)
        if (whole := self._assemble(fragment)) is not None:
            gate.take(now, number, number, sqn)
            self._finish(number, whole, Origin.LIVE)

    def take_fetched(self, record: Record, origin: Origin) -> None:
        """Let pass what is missing of a record that was fetched."""
        if not self._is_plausible(record):
            return
        if type(record) is RunRecord:
            self._put(record, self.gate.take_known(record.first, record.last), origin)
        elif type(record) is FragmentRecord:
            if not self.gate.is_missing(record.first):
                self.duplicates += 1
            elif (whole := self._assemble(record)) is not None:
                self.gate.take_known(record.first, record.first)
                self._finish(record.first, whole, origin)

    def leave(self, now: float, record: Record, sqn: int, give_up: GiveUp) -> int:
        """Give up a record that came and cannot be kept; return how many numbers that are."""
        if not self._is_plausible(record):
            return 0
        new = self.gate.take(now, record.first, record.last, sqn)
        for span in new:
            give_up(span, LossReason.OVERRUN)
        return sum(span.size for span in new)

    def lose(self, span: Span, reason: LossReason) -> None:
        """Let numbers that are missing pass as lost, whatever parts of them came."""
        for number in self.reassembly.within(*span):
            self.reassembly.remove(number)
        self.gate.settle(*span)
        self._order.put(*span, Loss(*span, reason))

    def relieve(self) -> None:
        """While too much is held, do not wait for the oldest gap any longer."""
        while self.load > 1 and (oldest := self.gate.oldest) is not None:
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
        """Take a part; return the message when it is whole."""
        message = self.reassembly.add(fragment)
        if message is None:
            self.duplicates += 1
            return None
        if message.size > self._settings.max_message:
            self.lose(Span(fragment.first, fragment.first), LossReason.MAP_OVERFLOW)
            return None
        return message.join()

    def _finish(self, number: int, whole: bytes, origin: Origin) -> None:
        self.reassembly.remove(number)
        self._order.put(number, number, Batch(number, [whole], origin))

    def _is_plausible(self, record: Record) -> bool:
        """Whether it can be true, after all that came before it."""
        if record.last >= MOST_NUMBER:
            is_plausible = False
        elif type(record) is FragmentRecord:
            message = self.reassembly.find(record.first)
            is_same = message is None or message.parts == record.parts
            is_plausible = is_same and record.parts <= self._settings.max_message
        else:
            is_plausible = not self.reassembly.within(record.first, record.last)
        if is_plausible:
            return True
        self.refused += 1
        return False


# The delivery controller: tells the messages of one topic once each, and what is lost of them.
#
# The transport recovers datagrams and does not know what was in those that it lost. The
# controller knows what is missing of its topic, between which datagrams that was sent, and so the
# moment when the transport can no longer bring it: then it is lost, or fetched (off-transport
# recovery).


# Those whose gaps are not known yet: they come to light with the same datagram.
_RECENT: Final = 64


class DeliveryController:
    """One topic of one session. Times in seconds.

    ``first`` is the number of the topic's first message that was sent after this side joined,
    ``sqn`` the lead at that moment. ``is_missing_between`` asks the transport whether it still
    tries to get a datagram between two, neither included. With ``fetches`` what the transport
    gives up is wanted from the source's history; with ``late_join`` what is told waits for
    ``begin``.
    """

    def __init__(
        self,
        settings: StreamSettings,
        topic: int,
        first: int,
        sqn: int,
        is_missing_between: Callable[[int, int], bool],
        *,
        ordered: bool = True,
        fetches: bool = False,
        late_join: bool = False,
    ) -> None:
        self.topic = topic
        self.live = first
        self.state = DeliveryState.HOLDING if late_join else DELIVERY.initial
        self._settings = settings
        self._is_missing_between = is_missing_between
        self._gate = PendingMessages(first, sqn)
        self._items = ReaderQueue()
        self._end_reason = EndReason.CLOSED
        self._order: DeliveryOrder = (
            OrderMap(self._items, first) if ordered else ArrivalOrder(self._items)
        )
        self._passage = DeliveryPipeline(settings, self._gate, self._order)
        self._fetched_as = Origin.RETRANSMIT if late_join else Origin.OTR
        self._give_up = self._want if fetches else self._passage.lose
        self._recent = deque[GivenUp](maxlen=_RECENT)
        # Datagrams around which gaps may be done with.
        self._suspects = list[Span]()
        self._left = 0
        # The number that passes without a look at anything else.
        self._next = NONE
        if not late_join:
            self._begin()

    @property
    def wanted(self) -> RangeSet:
        """What has to come from the source's history: to be read, not to be changed."""
        return self._gate.wanted

    @property
    def is_over(self) -> bool:
        """Whether nothing of the transport counts any more."""
        return self.state is DeliveryState.DRAINING or self.state is DeliveryState.ENDED

    def statistics(self) -> DeliveryStatistics:
        """Return the counts so far."""
        order, reassembly = self._order, self._passage.reassembly
        return DeliveryStatistics(
            delivered=self._items.delivered,
            lost=self._items.lost,
            duplicates=self._passage.duplicates,
            left=self._left,
            refused=self._passage.refused,
            gaps=len(self._gate.gaps),
            wanted=self.wanted.total,
            waiting=order.count + reassembly.count,
            waiting_bytes=order.size + reassembly.size,
        )

    # From the transport

    def handle_arrived(self, now: float, arrived: Arrived) -> None:
        """Take a datagram; its records may be of other topics."""
        if self.is_over:
            return
        sqn, _, records = arrived
        items, passage, limit = self._items, self._passage, self._settings.receive_buffer
        for record in records:
            if record.topic != self.topic:
                continue
            is_next = record.first == self._next and items.size + passage.reassembly.size < limit
            if is_next and passage.take_next(record, sqn):
                self._next = self._gate.top
            else:
                self._take(now, record, sqn)
        if self._gate.gaps:
            self._suspects.append(Span(sqn, sqn))

    def handle_given_up(self, given_up: GivenUp) -> None:
        """Take note that datagrams will not come, and why."""
        if self.is_over:
            return
        self._recent.append(given_up)
        for gap in self._gate.gaps.around(*given_up.span):
            if _may_hold(given_up, gap):
                gap.reason = given_up.reason
        self._suspects.append(given_up.span)

    def handle_tail(self, now: float, number: int, lead: int) -> None:
        """Take note that all below ``number`` was sent, with datagrams up to ``lead``."""
        if self.is_over or not self._gate.top < number < MOST_NUMBER:
            return
        self._next = NONE
        self._gate.expect(now, number, lead + 1)
        self._suspects.append(Span(lead + 1, lead + 1))
        self._passage.relieve()

    def hand_over(self) -> None:
        """Settle the gaps that the transport can no longer fill: by loss, or from the history.

        Due when all that the transport has was handed on: a datagram that is still underway between
        the two is missing to neither.
        """
        for sqns in self._suspects:
            for gap in self._gate.gaps.around(*sqns):
                if not self._is_missing_between(gap.after, gap.before):
                    self._abandon(gap, gap.reason or self._why(gap))
        self._suspects.clear()

    def handle_end(self, reason: EndReason, *, fetching: bool) -> None:
        """The session is over; ``fetching`` says whether what is missing may still be fetched.

        Raises ``StateError`` before ``begin``, and when it is over already.
        """
        self._next = NONE
        self._end_reason = reason
        if not fetching:
            self._give_up = self._passage.lose
        self._step(DeliveryEvent.END)
        if not fetching:
            self._miss_all()
        self._look_back()

    def handle_timeout(self, now: float) -> None:
        """Settle what the transport has not brought for a generation interval."""
        while (due := self.poll_timeout()) is not None and due <= now:
            gap = self._gate.gaps.oldest
            self._abandon(gap, gap.reason or LossReason.TIMEOUT)

    # From the history

    def begin(self, first: int) -> None:
        """Tell the stream from ``first`` on; where that is not before ``live``, from there.

        Raises ``StateError`` when it has begun.
        """
        self.live = min(first, self.live)
        self._step(DeliveryEvent.BEGIN)
        self._look_back()

    def handle_fetched(self, record: Record) -> None:
        """Take what was fetched; what is not missing is dropped."""
        if record.topic == self.topic:
            self._passage.take_fetched(record, self._fetched_as)
            self._passage.relieve()
            self._look_back()

    def handle_missed(self, span: Span, reason: LossReason) -> None:
        """Take note that numbers cannot be fetched; those not wanted are left."""
        while missing := self.wanted.within(*span):
            self._passage.lose(missing[0], reason)
        self._look_back()

    # To the reader

    def poll_item(self) -> Item | None:
        """Return what is told next; None when there is nothing now."""
        return self._items.poll()

    @property
    def room(self) -> int:
        """How many bytes of messages may still come."""
        held = self._items.size + self._order.size + self._passage.reassembly.size
        return max(self._settings.receive_buffer - held, 0)

    @property
    def is_hungry(self) -> bool:
        """Whether the reader has little to read, so that more may be fetched."""
        return 2 * self._items.size < self._settings.receive_buffer

    def poll_timeout(self) -> float | None:
        """When ``handle_timeout`` has something to do, be there traffic or not."""
        gaps = self._gate.gaps
        return gaps.oldest.since + self._settings.generation if gaps else None

    # Records

    def _take(self, now: float, record: Record, sqn: int) -> None:
        if self._is_too_far(record):
            self._left += self._passage.leave(now, record, sqn, self._want)
        elif not self.room:
            self._left += self._passage.leave(now, record, sqn, self._give_up)
        else:
            self._passage.take(now, record, sqn)
        self._passage.relieve()
        self._look_back()
        is_following = self.state is DeliveryState.FOLLOWING
        self._next = self._passage.next if is_following else NONE

    def _is_too_far(self, record: Record) -> bool:
        """Whether it is better fetched in its turn: half of the room is for what comes before."""
        if self.state is DeliveryState.FOLLOWING:
            return False
        is_far = self._order.lead(record.first) > self._settings.caching_proximity
        return is_far or self._passage.load > 1 / 2

    # Gaps

    def _why(self, gap: MessageGap) -> LossReason:
        reasons = (past.reason for past in reversed(self._recent) if _may_hold(past, gap))
        return next(reasons, LossReason.WINDOW)

    def _abandon(self, gap: MessageGap, reason: LossReason) -> None:
        for missing in self._gate.gaps.within(*gap.span):
            self._give_up(missing, reason)

    def _want(self, span: Span, _: LossReason) -> None:
        self._gate.want(*span)

    # What the table does

    def _look_back(self) -> None:
        """See whether that was all that was awaited."""
        if self.state is DeliveryState.CATCHING_UP and not self.wanted:
            self._step(DeliveryEvent.MERGED)
        if self.state is DeliveryState.DRAINING:
            self._expect_last_parts()
            if self._gate.is_settled:
                self._step(DeliveryEvent.SETTLED)

    def _expect_last_parts(self) -> None:
        """Ask for, or give up, a message that the session's end has cut off."""
        top = self._gate.top
        if self._passage.reassembly.find(top) is not None:
            self._give_up(Span(top, top), LossReason.SESSION_END)

    def _step(self, turn: DeliveryEvent) -> None:
        self._RUNNER.step(self, turn)

    def _begin(self) -> None:
        self._passage.begin(self.live)

    def _follow(self) -> None:
        self._fetched_as = Origin.OTR

    def _tell_end(self) -> None:
        self._items.end(StreamEnd(self._end_reason, self._gate.top))

    def _give_all_up(self) -> None:
        for gap in self._gate.gaps:
            self._abandon(gap, gap.reason or LossReason.SESSION_END)

    def _miss_all(self) -> None:
        while self.wanted:
            self._passage.lose(next(iter(self.wanted)), LossReason.SESSION_END)

    _RUNNER = Runner(
        DELIVERY,
        {
            DeliveryAction.BEGIN: _begin,
            DeliveryAction.FOLLOW: _follow,
            DeliveryAction.GIVE_UP: _give_all_up,
            DeliveryAction.END: _tell_end,
        },
        raised=DeliveryEvent,
    )


def _may_hold(given_up: GivenUp, gap: MessageGap) -> bool:
    """Whether something of the gap may have been in what is given up."""
    return gap.after < given_up.span.last and given_up.span.first < gap.before
