"""NAK generation: the times at which a receiver requests missing datagrams, or gives them up.

Missing datagrams stand in the loss map, range by range, until they arrive or are given up; the
states of one range are the table in ``loss_map``. A NAK costs the source a repair, and in a group
it costs every receiver one. So a NAK is held back by four things:

* The initial backoff. The first NAK for a range waits a random time: the datagram may only be late,
  and in a group another receiver may ask first. Ranges found while that timer runs join it, so that
  one burst of losses takes one NAK.
* The NAK backoff. A range that a NAK has named waits for its repair before it is asked for again.
* Suppression. An NCF says that a repair does not come now, and mostly when to ask again. A range
  that is suppressed is not put off by a second NCF, or the NAKs of others could do so for ever.
* NAK spacing and the budget of the receiver. One NAK leaves in ``nak_spacing``, and all of them
  together name no more datagrams than half of what the source takes from one receiver.

A range is given up, for one of five reasons: the source's window has moved on, it was missing for a
whole generation interval, the source repairs no more (NCF), the loss map is full, or the session is
over. That is final for the transport; whether a message is lost with it, ``unrecoverable_loss``
finds out.
"""

from collections import deque
from collections.abc import Iterable
from math import expm1, log, log1p
from typing import Final

from sphtp.core.entropy import Entropy
from sphtp.core.fsm import Runner
from sphtp.core.stream.events import GivenUp, LossReason
from sphtp.core.stream.loss_map import GAP, Gap, GapAction, GapEvent, GapState, LossMap
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.settings import Backoff, StreamSettings
from sphtp.core.stream.statistics import ReceiverCounters, SpreadCounter
from sphtp.core.stream.wire import FURTHER, MOST_RANGES, Nak, Ncf, NcfReason, cut, encode_nak
from sphtp.core.timers import TimerQueue, earliest
from sphtp.core.token_bucket import Pacer

GROUP_BACKOFF: Final = 0.6
"""Share of ``nak_backoff`` that is drawn in a group, behind the half that is certain."""

NCF_EVENTS: Final = {
    NcfReason.NO_RETRY: GapEvent.NO_RETRY,
    NcfReason.IGNORED: GapEvent.IGNORED,
    NcfReason.RX_DELAY: GapEvent.RX_DELAY,
    NcfReason.SHED: GapEvent.SHED,
}

LOSS_REASONS: Final = {
    GapEvent.NO_RETRY: LossReason.NO_RETRY,
    GapEvent.BELOW_TRAIL: LossReason.WINDOW,
    GapEvent.TOO_OLD: LossReason.TIMEOUT,
    GapEvent.CROWDED: LossReason.MAP_OVERFLOW,
    GapEvent.SESSION_OVER: LossReason.SESSION_END,
}


# Backoff: random, so that not all receivers ask at once.


def draw_initial_backoff(entropy: Entropy, settings: StreamSettings) -> float:
    """Draw the wait before the first NAK of a burst, in seconds."""
    if settings.backoff is Backoff.EXPONENTIAL:
        return draw_exponential(entropy, settings.initial_backoff, settings.group_size)
    return draw_uniform(entropy, settings.initial_backoff)


def draw_nak_backoff(entropy: Entropy, settings: StreamSettings) -> float:
    """Draw the wait before a later NAK: at least half of ``nak_backoff``, which is its mean.

    With an even distribution, one of many receivers always draws a short wait, and asks again for a
    repair that is on its way. So in a group the random half is drawn exponentially, too.
    """
    interval = settings.nak_backoff
    if settings.backoff is Backoff.EXPONENTIAL:
        most = GROUP_BACKOFF * interval
        return 0.5 * interval + draw_exponential(entropy, most, settings.group_size)
    return draw_uniform(entropy, interval)


def draw_uniform(entropy: Entropy, interval: float) -> float:
    """Draw between half and one and a half of ``interval``."""
    return interval * (0.5 + entropy.random())


def draw_exponential(entropy: Entropy, most: float, group_size: int) -> float:
    """Draw up to ``most`` seconds, with long times more likely (RFC 5401, 3.2.1).

    So in a group that shares a loss, few receivers ask early, and the repair for them arrives
    before the others ask.
    """
    steepness = log(group_size) + 1
    return most / steepness * log1p(entropy.random() * expm1(steepness))


class NakTimer:
    """One timer for each range; of those that have fired, the lowest is taken first."""

    __slots__ = ("_fired", "_waiting")

    def __init__(self) -> None:
        self._waiting = TimerQueue[Gap]()
        # Ordered by number instead of by time.
        self._fired = TimerQueue[Gap]()

    def __contains__(self, gap: Gap) -> bool:
        return gap in self._waiting or gap in self._fired

    def set(self, gap: Gap, due: float) -> None:
        """Start, or move, the timer of ``gap``."""
        gap.due = due
        self._fired.set(gap, None)
        self._waiting.set(gap, due)

    def stop(self, gap: Gap) -> None:
        """Stop the timer of ``gap`` if it runs."""
        self._fired.set(gap, None)
        self._waiting.set(gap, None)

    def take(self, now: float) -> Gap | None:
        """Stop and return the lowest range whose time has come; None when there is none."""
        for gap in self._waiting.take_due(now):
            self._fired.set(gap, gap.first)
        return self._fired.pop()

    def next_due(self) -> float | None:
        """Return when the next timer fires, a past time if one has; None when none is set."""
        lowest = self._fired.first()
        return earliest(None if lowest is None else lowest.due, self._waiting.next_due())


class NakGenerator:
    """The loss map of a receiver, with the timers and NAKs of each missing range.

    ``given_up`` holds the datagrams that the owner has not polled yet. Times are in seconds.
    """

    def __init__(
        self, entropy: Entropy, settings: StreamSettings, counters: ReceiverCounters
    ) -> None:
        self.missing = LossMap()
        self.given_up: deque[GivenUp] = deque()
        self.nak_stm = SpreadCounter()
        self.nak_tx = SpreadCounter()
        self._entropy = entropy
        self._settings = settings
        self._counters = counters
        self._timer = NakTimer()
        # The first NAK of the present burst, and the next NAK that spacing and budget allow.
        self._burst_nak = 0.0
        self._next_nak = 0.0
        # NAKs may catch up with each other on their way: less at once than the source allows.
        self._budget = Pacer(max(int(settings.nak_budget / 2), 1))

    @property
    def next_due(self) -> float | None:
        """The time of the next timer. There is always one while a datagram is missing."""
        if not self.missing:
            return None
        fires = self._timer.next_due()
        nak = None if fires is None else max(fires, self._next_nak)
        return earliest(nak, self.missing.oldest.since + self._settings.generation)

    # Missing, and here

    def find_missing(self, now: float, first: int, last: int) -> None:
        """Put a range above all known numbers into the loss map, and start its timer."""
        self._counters.lost += last - first + 1
        if not self._settings.send_naks:
            self.missing.add(Gap(first, last, now, GapState.DISABLED))
        else:
            if now >= self._burst_nak:
                self._burst_nak = now + draw_initial_backoff(self._entropy, self._settings)
            gap = Gap(first, last, now, GapState.WAIT_FIRST)
            self.missing.add(gap)
            self._timer.set(gap, self._burst_nak)
        self._make_room()

    def fill(self, now: float, number: int, *, repair: bool) -> None:
        """Take a datagram that has arrived out of the loss map."""
        for gap in self._isolate(number, number):
            self.missing.remove(gap)
            self._timer.stop(gap)
            self._step(gap, GapEvent.REPAIRED if repair else GapEvent.LATE, now)
        self._make_room()

    # NAKs and NCFs

    def poll_nak(self, now: float) -> bytes | None:
        """Return a NAK for the ranges whose timers have fired, if one may leave now."""
        if now < self._next_nak:
            return None
        # The lowest first: they leave the source's window first, and others wait behind them. As
        # many as one NAK holds and the budget allows; a range that is larger is cut.
        budget = self._settings.nak_budget
        asked, ranges = list[Gap](), MOST_RANGES
        left = max(self._budget.budget(now, budget), 1)
        while ranges and left and (gap := self._timer.take(now)) is not None:
            most = min(left, ranges * (FURTHER + 1))
            if gap.size > most:
                rest = self.missing.split(gap, gap.first + most)
                self._timer.set(rest, rest.due)
            asked.append(gap)
            left -= gap.size
            ranges -= -(-gap.size // (FURTHER + 1))
        if not asked:
            return None
        # One draw for all of them, so that they share the next NAK, too.
        due = now + draw_nak_backoff(self._entropy, self._settings)
        for gap in asked:
            gap.naks += 1
            self._step(gap, GapEvent.ASKED, due)
        number = sum([gap.size for gap in asked])
        self._counters.nak_packets_sent += 1
        self._counters.naks_sent += number
        self._budget.sent(now, number, budget)
        ready = self._budget.ready_at(now, 1, budget)
        self._next_nak = max(now + self._settings.nak_spacing, ready)
        return encode_nak(Nak(cut(RangeSet(gap.span for gap in asked))))

    def handle_ncf(self, now: float, ncf: Ncf) -> None:
        """Suppress NAKs for the datagrams that an NCF names; give up those without repair."""
        settings = self._settings
        if ncf.reason is NcfReason.SHED:
            wait = draw_uniform(self._entropy, settings.suppress)
        elif ncf.retry_after:
            # Every receiver of a group has this NCF, and not all may come back at once.
            wait = ncf.retry_after + draw_initial_backoff(self._entropy, settings)
        else:
            wait = settings.suppress + draw_uniform(self._entropy, settings.nak_backoff)
        event = NCF_EVENTS[ncf.reason]
        for span in ncf.spans:
            gaps = self._isolate(*span) if self.missing.touches(*span) else ()
            for gap in gaps:
                self._step(gap, event, now + wait)
                if gap.state is GapState.LOST:
                    self.missing.remove(gap)
                    self._timer.stop(gap)
        self._make_room()

    # Giving up

    def advance_trail(self, trail: int) -> None:
        """Give up the datagrams below the trail of the source's transmission window."""
        if self.missing and self.missing.oldest.first < trail:
            self._split_at(trail)
            self._lose(self.missing.take_below(trail), GapEvent.BELOW_TRAIL)

    def expire(self, now: float) -> None:
        """Give up the datagrams that have been missing for a generation interval."""
        self._lose(self.missing.take_old(now, self._settings.generation), GapEvent.TOO_OLD)

    def end(self) -> None:
        """Give up all missing datagrams."""
        self._lose(self.missing.take_oldest(len(self.missing)), GapEvent.SESSION_OVER)

    def _make_room(self) -> None:
        excess = len(self.missing) - self._settings.loss_map
        if excess > 0:
            self._lose(self.missing.take_oldest(excess), GapEvent.CROWDED)

    def _lose(self, gaps: Iterable[Gap], event: GapEvent) -> None:
        for gap in gaps:
            self._timer.stop(gap)
            self._step(gap, event, 0.0)

    # The loss map

    def _isolate(self, first: int, last: int) -> list[Gap]:
        """Split gaps so that none is partly within these numbers; return those that are within."""
        self._split_at(first)
        self._split_at(last + 1)
        return self.missing.within(first, last)

    def _split_at(self, number: int) -> None:
        gap = self.missing.find(number)
        if gap is None or gap.first == number:
            return
        rest = self.missing.split(gap, number)
        if gap in self._timer:
            self._timer.set(rest, rest.due)

    # Actions of the table

    def _step(self, gap: Gap, event: GapEvent, time: float) -> None:
        """Step the table of a range; ``time`` is when its timer is due, or when it arrived."""
        _RUNNER.step_of(gap, self, event, event, time)

    def _arm(self, gap: Gap, _event: GapEvent, due: float) -> None:
        # However short the wait that an NCF names: a range is asked for at most once in half a NAK
        # backoff, the shortest time that the backoff itself draws.
        soonest = gap.since + 0.5 * self._settings.nak_backoff * gap.naks
        self._timer.set(gap, max(due, soonest))

    def _count_recovered(self, gap: Gap, _event: GapEvent, now: float) -> None:
        # Whatever arrives was split off, and is one.
        self._counters.recovered += 1
        self.nak_stm.add(now - gap.since)
        self.nak_tx.add(gap.naks)

    def _count_out_of_order(self, _gap: Gap, _event: GapEvent, _now: float) -> None:
        self._counters.out_of_order += 1

    def _give_up(self, gap: Gap, event: GapEvent, _time: float) -> None:
        span, reason = gap.span, LOSS_REASONS[event]
        self._counters.count_unrecovered(reason, span.size)
        # Adjacent ranges with one reason are one output.
        if self.given_up:
            before = self.given_up[-1]
            if before.reason is reason and before.span.last + 1 == span.first:
                span = Span(self.given_up.pop().span.first, span.last)
        self.given_up.append(GivenUp(span, reason))

    @classmethod
    def runner(cls) -> Runner[GapState, GapEvent, GapAction]:
        return Runner(
            GAP,
            {
                GapAction.ARM: cls._arm,
                GapAction.COUNT_RECOVERED: cls._count_recovered,
                GapAction.COUNT_OUT_OF_ORDER: cls._count_out_of_order,
                GapAction.GIVE_UP: cls._give_up,
            },
            # NCFs and NAKs of others name whole ranges: some of it is suppressed already, here by
            # now, given up, or nothing that this receiver asks for. Neither is a fault of who sent
            # them.
            ignored=GapEvent,
        )


_RUNNER = NakGenerator.runner()
