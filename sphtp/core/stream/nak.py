"""NAK generation: the times at which a receiver requests missing datagrams, or gives them up.

Missing datagrams are in the loss map, range by range, until they arrive or the receiver gives them
up; the states of one range are the table in ``loss_map``. A NAK costs the source a repair, and in a
multicast group every receiver gets this repair. So five mechanisms hold NAKs back:

* The initial backoff (``find_missing``). The first NAK for a range waits a random time: the
  datagram may only be late, and in a group another receiver may send a NAK first. Ranges detected
  during this time share the NAK, so that one burst of losses takes one NAK.
* The NAK backoff (``poll_nak``). A range that a NAK has named waits for its repair before another
  NAK names it.
* The limit for one range (``_arm``): one NAK in half a NAK backoff, on average since its detection.
* Suppression (``handle_ncf``). An NCF announces that a repair does not come now, and mostly the
  time after which to request it again. A second NCF does not postpone a suppressed range any
  further. Otherwise the NCFs for other receivers could postpone it for ever.
* NAK spacing and the NAK budget (``poll_nak``). One NAK leaves in ``nak_spacing`` seconds. All NAKs
  together name at most ``nak_budget`` datagrams per second, the most that a source with the same
  settings takes from one receiver, and half as many at once.

A receiver gives a range up for one of five reasons: the source's window has moved on
(``advance_trail``), the range was missing for a whole generation interval (``expire``), the source
refuses a repair (NCF ``NO_RETRY``, in ``handle_ncf``), the loss map is full (``_make_room``), or
the session is over (``end``). That is final for the transport; ``delivery`` lists the functions
that decide on the loss of messages. The sources of this implementation never send ``NO_RETRY``:
they announce the trail of their window instead. Receivers obey it, because other implementations
may send it.
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
"""The longest random part of the NAK backoff in a group, as a share of ``nak_backoff``. The other
part is always half of ``nak_backoff``.
"""

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


# Backoff: random, so that not all receivers send NAKs at once.


def draw_initial_backoff(entropy: Entropy, settings: StreamSettings) -> float:
    """Draw the wait before the first NAK of a burst, in seconds."""
    if settings.backoff is Backoff.EXPONENTIAL:
        return draw_exponential(entropy, settings.initial_backoff, settings.group_size)
    return draw_uniform(entropy, settings.initial_backoff)


def draw_nak_backoff(entropy: Entropy, settings: StreamSettings) -> float:
    """Draw the wait before a later NAK, in seconds.

    It is at least half of ``nak_backoff``, and about ``nak_backoff`` on average. With a uniform
    distribution, one of many receivers mostly draws a short wait, and requests again a repair that
    is on its way. So in a group the random part has an exponential distribution.
    """
    interval = settings.nak_backoff
    if settings.backoff is Backoff.EXPONENTIAL:
        most = GROUP_BACKOFF * interval
        return 0.5 * interval + draw_exponential(entropy, most, settings.group_size)
    return draw_uniform(entropy, interval)


def draw_uniform(entropy: Entropy, interval: float) -> float:
    """Draw a time between half and one and a half of ``interval``."""
    return interval * (0.5 + entropy.random())


def draw_exponential(entropy: Entropy, most: float, group_size: int) -> float:
    """Draw a time up to ``most`` seconds, with long times more likely (RFC 5401, 3.2.1).

    So in a group that misses the same datagram, few receivers send an early NAK, and the repair for
    them arrives before the others send one.
    """
    steepness = log(group_size) + 1
    return most / steepness * log1p(entropy.random() * expm1(steepness))


class NakTimer:
    """The timers of missing ranges, one for each; of those that have fired, the lowest range is
    taken first.
    """

    __slots__ = ("_fired", "_waiting")

    def __init__(self) -> None:
        self._waiting = TimerQueue[Gap]()
        # Ordered by number instead of by time.
        self._fired = TimerQueue[Gap]()

    def __contains__(self, gap: Gap) -> bool:
        return gap in self._waiting or gap in self._fired

    def set(self, gap: Gap, due: float) -> None:
        """Start or restart the timer of ``gap``, which fires at the time ``due``."""
        gap.due = due
        self._fired.set(gap, None)
        self._waiting.set(gap, due)

    def stop(self, gap: Gap) -> None:
        """Stop the timer of ``gap`` if it runs."""
        self._fired.set(gap, None)
        self._waiting.set(gap, None)

    def take(self, now: float) -> Gap | None:
        """Remove and return the lowest range whose timer has fired; None if none has."""
        for gap in self._waiting.take_due(now):
            self._fired.set(gap, gap.first)
        return self._fired.pop()

    def next_due(self) -> float | None:
        """Return the time of the next timer, a past time if one has fired; None if none is set."""
        lowest = self._fired.first()
        return earliest(None if lowest is None else lowest.due, self._waiting.next_due())


class NakGenerator:
    """The loss map of a receiver, with the timers and NAKs of each missing range.

    ``given_up`` is the queue of outputs for datagrams that the receiver has given up. Times are in
    seconds.
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
        # The time of the present burst's first NAK, and the time from which a NAK may leave.
        self._burst_nak = 0.0
        self._next_nak = 0.0
        # NAKs may arrive closer together than they left, so the receiver sends less at once than
        # the source takes.
        self._budget = Pacer(max(int(settings.nak_budget / 2), 1))

    @property
    def next_due(self) -> float | None:
        """The time of the next timer. There is always one while a datagram is missing."""
        if not self.missing:
            return None
        fires = self._timer.next_due()
        nak = None if fires is None else max(fires, self._next_nak)
        return earliest(nak, self.missing.oldest.since + self._settings.generation)

    # Detected losses, and arrivals

    def find_missing(self, now: float, first: int, last: int) -> None:
        """Add a range above all known numbers to the loss map.

        Start its timer, unless this receiver sends no NAKs.
        """
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
        """Remove a datagram from the loss map, because it has arrived."""
        for gap in self._isolate(number, number):
            self.missing.remove(gap)
            self._timer.stop(gap)
            self._step(gap, GapEvent.REPAIRED if repair else GapEvent.LATE, now)
        self._make_room()

    # NAKs and NCFs

    def poll_nak(self, now: float) -> bytes | None:
        """Return a NAK for the ranges whose timers have fired; None if none may leave now."""
        if now < self._next_nak:
            return None
        # The lowest first: they leave the source's window first, and later messages wait for them.
        # A NAK takes as many as it holds and the budget allows; a larger range is split.
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
        # All ranges of this NAK wait for the same time, so that they share the next NAK, too.
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
        """Suppress NAKs for the datagrams that an NCF names; with ``NO_RETRY``, give them up."""
        settings = self._settings
        if ncf.reason is NcfReason.SHED:
            wait = draw_uniform(self._entropy, settings.suppress)
        elif ncf.retry_after:
            # Every receiver of a group has this NCF, so the times of their NAKs have to differ.
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
        """Split gaps at the limits of this range, and return the gaps within it."""
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
        """Step the table of a range.

        ``time`` is the next timeout, or the time of the arrival; a loss does not use it.
        """
        _RUNNER.step_of(gap, self, event, event, time)

    def _arm(self, gap: Gap, _event: GapEvent, due: float) -> None:
        # However short the wait in an NCF is, NAKs name a range at most once in half a NAK backoff
        # on average since its detection. That is the shortest time that the backoff itself draws.
        soonest = gap.since + 0.5 * self._settings.nak_backoff * gap.naks
        self._timer.set(gap, max(due, soonest))

    def _count_recovered(self, gap: Gap, _event: GapEvent, now: float) -> None:
        # The gap was split, and is one datagram.
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
            # An NCF names whole ranges. Parts of them may already be suppressed, or belong to a
            # receiver that sends no NAKs. Neither is an error of the source.
            ignored=GapEvent,
        )


_RUNNER = NakGenerator.runner()
