"""Judges of what readers are told (invariants 1, 2, 12 and 14)."""

from collections.abc import Sequence

from sphtp.core.stream.events import Batch, EndReason, Item, Loss, StreamEnd
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.testing.stream import Subscriber
from tests.core.stream.invariants.ledger import Ledger
from tests.core.stream.invariants.play import Judge, Play
from tests.core.stream.invariants.schedule import Fate


class TellsOnceAsItWasSent(Judge):
    """Each number is told as a message, as it was sent, or as lost; never both or twice (1, 2)."""

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self._known: dict[Subscriber, RangeSet] = {}

    def items_delivered(self, now: float, subscriber: Subscriber, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Batch):
                self._check_batch(subscriber, item)
            elif not isinstance(item, StreamEnd):
                self._pass(subscriber, Span(item.first, item.last))

    def finish(self) -> None:
        for subscriber in self.play.present:
            known = self._known.get(subscriber, RangeSet())
            assert len(known) <= 1, f"between {list(known)} nothing is told"

    def _check_batch(self, subscriber: Subscriber, batch: Batch) -> None:
        number, topic = batch.first, subscriber.terms.topic
        for payload in batch.payloads:
            sent = self._ledger(subscriber).find(topic, number)
            assert sent is not None, f"no message has the number {number}"
            assert sent.payload == payload
            self._pass(subscriber, Span(number, number))
            number += 1

    def _pass(self, subscriber: Subscriber, span: Span) -> None:
        known = self._known.setdefault(subscriber, RangeSet())
        assert not known.within(*span), f"{span} is told twice"
        assert span.last < self._ledger(subscriber).ends[subscriber.terms.topic]
        if subscriber.terms.ordered and known:
            assert span.first == known.last + 1, f"{span} is told after {known.last}"
        known.add(*span)

    def _ledger(self, subscriber: Subscriber) -> Ledger:
        return self.play.ledgers[subscriber.publisher]


class EndsOnce(Judge):
    """The end is told once to each who stays, and after it nothing (12)."""

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self._ended = set[Subscriber]()

    def items_delivered(self, now: float, subscriber: Subscriber, items: Sequence[Item]) -> None:
        for item in items:
            assert subscriber not in self._ended, f"{item} is told after the end"
            if isinstance(item, StreamEnd):
                self._ended.add(subscriber)
                assert subscriber.subscription.statistics().transport.pending == 0

    def finish(self) -> None:
        for subscriber in self.play.present:
            assert subscriber in self._ended, f"no end is told to {subscriber.number}"
            assert subscriber.poll_timeout() is None


class SentIsDeliveredOrToldLost(Judge):
    """What was sent to a receiver is delivered or told lost, exactly, from the agreed start (14).

    That start is where the source knew of it, or the history that it wants. The end is where the
    source says it is; of a source that vanished, behind all that the receiver has heard of.
    """

    def finish(self) -> None:
        for subscriber in self.play.present:
            end = subscriber.end
            assert end is not None
            told = RangeSet()
            for item in subscriber.items:
                if isinstance(item, Batch):
                    told.add(item.first, item.first + len(item.payloads) - 1)
                elif isinstance(item, Loss):
                    told.add(item.first, item.last)
            self._check_reason(subscriber, end)
            start = self._check_start(subscriber, told.first if told else end.next)
            assert list(told) == ([Span(start, end.next - 1)] if start < end.next else [])

    def _check_reason(self, subscriber: Subscriber, end: StreamEnd) -> None:
        sent = self.play.ledgers[subscriber.publisher].ends[subscriber.terms.topic]
        closed = self.play.fates[subscriber.publisher] is Fate.CLOSE
        if end.reason is EndReason.CLOSED:
            assert closed, "nobody closed it"
            assert end.next == sent, f"{sent} were sent, {end.next} told"
        else:
            # A group is silent where the network carries no multicast, whatever its source does.
            assert not closed or self.play.schedule.shared, f"it was closed, and did not {end}"
            assert subscriber.joined_at <= end.next <= sent

    def _check_start(self, subscriber: Subscriber, first: int) -> int:
        terms, live = subscriber.terms, subscriber.joined_at
        if terms.after is not None:
            assert first == min(terms.after + 1, live)
        elif not terms.late_join:
            assert first == live
        else:
            wanted = max(live - terms.late_join, 0)
            assert first >= wanted
            assert first == wanted or self._forgets()
        return first

    def _forgets(self) -> bool:
        changes = self.play.schedule.changes
        return "retention" in changes or "retention_count" in changes
