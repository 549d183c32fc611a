"""The judge of statistics (invariant 15)."""

from collections import Counter
from collections.abc import Sequence

from sphtp.core.stream.events import Batch, Item, StreamEnd
from sphtp.core.stream.statistics import UNRECOVERED
from sphtp.core.stream.wire import Body, BodyFlag, StreamData
from sphtp.testing.broadcast import Party
from sphtp.testing.network import Address
from sphtp.testing.stream import Publisher, Subscriber
from tests.core.stream.invariants.play import Judge, Play


class CountsAddUp(Judge):
    """What parties count is what happened (15)."""

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self._told = Counter[Subscriber]()
        self._lost = Counter[Subscriber]()
        self._asked = Counter[Subscriber]()
        self._repairs = Counter[Publisher]()
        self._news = set[Party]()

    def items_delivered(self, now: float, subscriber: Subscriber, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Batch):
                self._told[subscriber] += len(item.payloads)
            elif not isinstance(item, StreamEnd):
                self._lost[subscriber] += item.last - item.first + 1

    def feedback_sent(self, now: float, subscriber: Subscriber, body: bytes) -> None:
        self._asked[subscriber] += 1

    def left(self, now: float, publisher: Publisher, place: Address, said: Body, size: int) -> None:
        if isinstance(said, StreamData) and BodyFlag.REPAIR in said.flags:
            self._repairs[publisher] += 1

    def touched(self, now: float, party: Party) -> None:
        self._news.add(party)

    def look(self, now: float) -> None:
        for party in self._news:
            if isinstance(party, Publisher):
                self._check_source(party)
            elif party in self.play.present:
                self._check_receiver(party)
        self._news.clear()

    def finish(self) -> None:
        self.look(self.play.now)

    def _check_receiver(self, subscriber: Subscriber) -> None:
        statistics = subscriber.subscription.statistics()
        transport, delivery = statistics.transport, statistics.delivery
        unrecovered = sum(getattr(transport, name) for name in UNRECOVERED.values())
        settled = transport.recovered + transport.out_of_order + unrecovered
        assert transport.lost == settled + transport.pending
        reception = self.play.receptions[subscriber]
        assert transport.datagrams == reception.bodies
        assert transport.lost == len(reception.found)
        assert transport.recovered <= len(reception.recovered) <= transport.lost
        assert transport.nak_packets_sent <= self._asked[subscriber]
        assert delivery.delivered == self._told[subscriber]
        assert delivery.lost == self._lost[subscriber]

    def _check_source(self, publisher: Publisher) -> None:
        statistics, ledger = publisher.source.statistics(), self.play.ledgers[publisher]
        recovered = set[int]().union(
            *(
                reception.recovered
                for one, reception in self.play.receptions.items()
                if one.publisher is publisher
            )
        )
        assert statistics.repairs_sent >= len(recovered)
        if self.play.schedule.shared:
            assert statistics.repairs_sent == self._repairs[publisher]
        assert statistics.messages_sent == ledger.messages
        assert statistics.datagrams_sent == publisher.source.window.lead - self.play.first + 1
