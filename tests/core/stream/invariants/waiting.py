"""Judges of what is missing: it has a timer, and it comes if that can be (invariants 3 and 4)."""

from collections.abc import Sequence

from sphtp.core.stream.events import Item, Loss
from sphtp.core.stream.receiver import ReceiverState
from sphtp.testing.broadcast import Party
from sphtp.testing.stream import Subscriber
from tests.core.stream.invariants.play import Judge

ROUNDING = 1e-6


class NothingIsStuck(Judge):
    """Whatever is missing is looked after before a generation interval is over (3)."""

    def touched(self, now: float, party: Party) -> None:
        if isinstance(party, Subscriber) and party in self.play.present:
            self._check_transport(now, party)

    def look(self, now: float) -> None:
        for subscriber in self.play.present:
            if not subscriber.is_over:
                self._check_transport(now, subscriber)
                self._check_delivery(now, subscriber)

    def _check_transport(self, now: float, subscriber: Subscriber) -> None:
        transport = subscriber.transport
        settled, lead = transport.settled, transport.lead
        assert settled is not None
        assert lead is not None
        if transport.state is ReceiverState.ENDED:
            assert settled == lead, "what is missing at the end is given up"
        elif settled < lead:
            found = self.play.receptions[subscriber].found[settled + 1]
            due = subscriber.poll_timeout()
            assert due is not None, f"{settled + 1} is missing, and nothing will happen"
            assert due <= found + subscriber.settings.generation + ROUNDING
            assert now <= found + subscriber.settings.generation + ROUNDING

    def _check_delivery(self, now: float, subscriber: Subscriber) -> None:
        settings, statistics = subscriber.settings, subscriber.subscription.statistics().delivery
        due = subscriber.poll_timeout()
        if statistics.gaps:
            assert due is not None
            assert due <= now + settings.generation
        if statistics.wanted:
            assert due is not None
            assert due <= now + max(settings.fetch_timeout, 10 * settings.fetch_interval)


class EverythingComes(Judge):
    """With ample limits and a source that lives, all is told (4).

    That it is within a generation interval of when it came to light is judged above.
    """

    def items_delivered(self, now: float, subscriber: Subscriber, items: Sequence[Item]) -> None:
        if not self.play.schedule.is_fair:
            return
        for item in items:
            assert not isinstance(item, Loss), f"{item} although all could be repaired"

    def finish(self) -> None:
        if not self.play.schedule.is_fair:
            return
        for subscriber in self.play.present:
            ledger, topic = self.play.ledgers[subscriber.publisher], subscriber.terms.topic
            first = max(subscriber.joined_at - subscriber.terms.late_join, 0)
            wanted = sum(
                ledger.find(topic, number) is not None
                for number in range(first, ledger.ends[topic])
            )
            assert len(subscriber.payloads) == wanted
