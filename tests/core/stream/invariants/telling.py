"""Judges of what readers are told (invariants 1, 2, 12 and 14)."""

from collections.abc import Sequence

from sphtp.core.stream.delivery.items import End, Item
from sphtp.core.stream.events import Batch, Loss
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.receiver.statistics import UNRECOVERED
from sphtp.testing.subscriber import Subscriber
from tests.core.stream.invariants.ledger import Ledger
from tests.core.stream.invariants.play import Judge, Play


class TellsOnceAsItWasSent(Judge):
    """Each number is told as a message, as it was sent, or as lost; never both or twice (1, 2)."""

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self._known: dict[Subscriber, RangeSet] = {}

    def told(self, now: float, subscriber: Subscriber, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Batch):
                self._check_batch(subscriber, item)
            elif not isinstance(item, End):
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
            self._pass(subscriber, Span(number, number + sent.parts - 1))
            number += sent.parts

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

    def told(self, now: float, subscriber: Subscriber, items: Sequence[Item]) -> None:
        for item in items:
            assert subscriber not in self._ended, f"{item} is told after the end"
            if isinstance(item, End):
                self._ended.add(subscriber)
                assert subscriber.subscription.statistics().transport.pending == 0

    def finish(self) -> None:
        for subscriber in self.play.present:
            assert subscriber in self._ended, f"no end is told to {subscriber.number}"
            assert subscriber.poll_timeout() is None


class BeginsWhereAgreed(Judge):
    """Late join, live and recovery are one stream from the agreed start (14).

    It ends where the stream does for who heard all datagrams.
    """

    def finish(self) -> None:
        for subscriber in self.play.present:
            told = [item for item in subscriber.items if not isinstance(item, End)]
            if told:
                self._check_start(subscriber, min(item.first for item in told))
                self._check_end(subscriber, max(self._end_of(subscriber, item) for item in told))

    def _check_start(self, subscriber: Subscriber, first: int) -> None:
        terms, live = subscriber.terms, subscriber.joined_at
        ledger = self.play.ledgers[subscriber.publisher]
        wanted = max(live - terms.late_join, 0)
        assert first >= wanted
        if terms.late_join and not self._forgets():
            assert first <= ledger.whole_from(terms.topic, wanted)

    def _end_of(self, subscriber: Subscriber, item: Batch | Loss) -> int:
        """The number after those of an item."""
        if isinstance(item, Loss):
            return item.last + 1
        last = item.first + len(item.payloads) - 1
        sent = self.play.ledgers[subscriber.publisher].find(subscriber.terms.topic, last)
        assert sent is not None
        return last + sent.parts

    def _check_end(self, subscriber: Subscriber, end: int) -> None:
        transport, publisher = subscriber.transport, subscriber.publisher
        statistics = transport.statistics()
        if transport.lead == publisher.source.window.lead and not any(
            getattr(statistics, name) for name in UNRECOVERED.values()
        ):
            tail = dict(publisher.source.tails)[subscriber.terms.topic]
            # More is told lost when the end has cut a message in two.
            assert end >= tail, "who heard of all was told of all"

    def _forgets(self) -> bool:
        changes = self.play.schedule.changes
        return "retention" in changes or "retention_count" in changes
