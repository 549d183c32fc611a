"""The judge of NAKs (invariant 6)."""

from collections import Counter
from itertools import pairwise

from sphtp.core.stream.settings import Backoff
from sphtp.core.stream.wire import BodyType, Nak, decode_nak_untrusted
from sphtp.testing.stream import Subscriber
from tests.core.stream.invariants.play import Judge, Play
from tests.core.stream.invariants.reception import Reception

ROUNDING = 1e-6


class AsksForWhatIsMissing(Judge):
    """NAKs name, in order, what is missing; not too early, and not too often (6)."""

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self._asked: dict[Subscriber, Counter[int]] = {}
        self._last: dict[Subscriber, float] = {}

    def feedback_sent(self, now: float, subscriber: Subscriber, body: bytes) -> None:
        if body[0] != BodyType.NAK:
            return
        settings = subscriber.settings
        assert settings.send_naks
        assert now >= self._last.get(subscriber, -60.0) + settings.nak_spacing - ROUNDING
        self._last[subscriber] = now
        reception = self.play.receptions[subscriber]
        self._check_nak(now, subscriber, decode_nak_untrusted(body, reception.lead))

    def _check_nak(self, now: float, subscriber: Subscriber, nak: Nak) -> None:
        assert all(a.last < b.first for a, b in pairwise(nak.spans)), "in order, and none twice"
        reception, settled = self.play.receptions[subscriber], subscriber.transport.settled
        assert settled is not None
        for span in nak.spans:
            assert span.first >= reception.trail, f"{span} is below the trail"
            assert span.first > settled, f"{span} is settled"
            assert span.last <= reception.lead, f"{span} is above the lead"
            for sqn in range(span.first, span.last + 1):
                assert sqn not in reception.here, f"{sqn} is here"
                self._check_named(now, subscriber, reception, sqn)

    def _check_named(
        self, now: float, subscriber: Subscriber, reception: Reception, sqn: int
    ) -> None:
        settings, found = subscriber.settings, reception.found[sqn]
        asked = self._asked.setdefault(subscriber, Counter())
        asked[sqn] += 1
        age = min(now - found, settings.generation)
        assert asked[sqn] <= 1 + age / (0.5 * settings.nak_backoff) + ROUNDING
        if asked[sqn] == 1:
            assert now >= self._soonest(subscriber, reception, found) - ROUNDING, f"{sqn}: too soon"

    def _soonest(self, subscriber: Subscriber, reception: Reception, found: float) -> float:
        """When the first NAK for what was found may leave: it may have joined a burst."""
        settings = subscriber.settings
        if settings.backoff is not Backoff.UNIFORM:
            return found
        most, least = 1.5 * settings.initial_backoff, 0.5 * settings.initial_backoff
        joins = any(found - most < other < found for other in reception.found.values())
        return found if joins else found + least
