"""The delivery controller: tells the messages of one topic once each, and what is lost of them.

The transport recovers datagrams and does not know what was in those that it lost. The controller
knows what is missing of its topic, between which datagrams that was sent, and so the moment when
the transport can no longer bring it: then it is lost, or fetched (off-transport recovery).
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from sphtp.core.fsm import Runner
from sphtp.core.stream.delivery.gaps import Gap
from sphtp.core.stream.delivery.gate import Gate
from sphtp.core.stream.delivery.items import Item, Items
from sphtp.core.stream.delivery.order_map import ArrivalOrder, Order, OrderMap
from sphtp.core.stream.delivery.passage import MOST_NUMBER, NONE, Passage
from sphtp.core.stream.delivery.statistics import DeliveryStatistics
from sphtp.core.stream.delivery.table import DELIVERY, Delivering, Tell, Turn
from sphtp.core.stream.events import Arrived, EndReason, GivenUp, LossReason, Origin, StreamEnd
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.records import Record
from sphtp.core.stream.settings import StreamSettings

# Those whose gaps are not known yet: they come to light with the same datagram.
_RECENT: Final = 64


class Delivery:
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
        self.state = Delivering.HOLDING if late_join else DELIVERY.initial
        self._settings = settings
        self._is_missing_between = is_missing_between
        self._gate = Gate(first, sqn)
        self._items = Items()
        self._end_reason = EndReason.CLOSED
        self._order: Order = OrderMap(self._items, first) if ordered else ArrivalOrder(self._items)
        self._passage = Passage(settings, self._gate, self._order)
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
        return self.state is Delivering.DRAINING or self.state is Delivering.ENDED

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
        self._step(Turn.END)
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
        self._step(Turn.BEGIN)
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
        is_following = self.state is Delivering.FOLLOWING
        self._next = self._passage.next if is_following else NONE

    def _is_too_far(self, record: Record) -> bool:
        """Whether it is better fetched in its turn: half of the room is for what comes before."""
        if self.state is Delivering.FOLLOWING:
            return False
        is_far = self._order.lead(record.first) > self._settings.caching_proximity
        return is_far or self._passage.load > 1 / 2

    # Gaps

    def _why(self, gap: Gap) -> LossReason:
        reasons = (past.reason for past in reversed(self._recent) if _may_hold(past, gap))
        return next(reasons, LossReason.WINDOW)

    def _abandon(self, gap: Gap, reason: LossReason) -> None:
        for missing in self._gate.gaps.within(*gap.span):
            self._give_up(missing, reason)

    def _want(self, span: Span, _: LossReason) -> None:
        self._gate.want(*span)

    # What the table does

    def _look_back(self) -> None:
        """See whether that was all that was awaited."""
        if self.state is Delivering.CATCHING_UP and not self.wanted:
            self._step(Turn.MERGED)
        if self.state is Delivering.DRAINING:
            self._expect_last_parts()
            if self._gate.is_settled:
                self._step(Turn.SETTLED)

    def _expect_last_parts(self) -> None:
        """Ask for, or give up, a message that the session's end has cut off."""
        top = self._gate.top
        if self._passage.reassembly.find(top) is not None:
            self._give_up(Span(top, top), LossReason.SESSION_END)

    def _step(self, turn: Turn) -> None:
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
            Tell.BEGIN: _begin,
            Tell.FOLLOW: _follow,
            Tell.GIVE_UP: _give_all_up,
            Tell.END: _tell_end,
        },
        raised=Turn,
    )


def _may_hold(given_up: GivenUp, gap: Gap) -> bool:
    """Whether something of the gap may have been in what is given up."""
    return gap.after < given_up.span.last and given_up.span.first < gap.before
