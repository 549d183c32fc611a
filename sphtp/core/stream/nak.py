"""How long a receiver waits before it asks: random, so that not all ask at once."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
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


def draw_uniform(entropy: Entropy, interval: float) -> float:
    """Draw between half and one and a half of ``interval``."""
    return interval * (0.5 + entropy.random())


def draw_exponential(entropy: Entropy, most: float, group_size: int) -> float:
    """Draw up to ``most`` seconds, the later the likelier (RFC 5401, 3.2.1).

    Of a group that shares a loss few draw early, and their repair comes before the others ask.
    """
    steepness = log(group_size) + 1
    return most / steepness * log1p(entropy.random() * expm1(steepness))


INITIAL: Final[Mapping[Backoff, Callable[[Entropy, float, int], float]]] = {
    Backoff.UNIFORM: lambda entropy, interval, _: draw_uniform(entropy, interval),
    Backoff.EXPONENTIAL: draw_exponential,
}
"""How the wait before a first NAK is drawn, of generator, interval and group size."""

LATE: Final = 0.6
"""What of the interval is drawn from in a group: on average that is half of it."""

AGAIN: Final[Mapping[Backoff, Callable[[Entropy, float, int], float]]] = {
    Backoff.UNIFORM: lambda entropy, interval, _: draw_uniform(entropy, interval),
    Backoff.EXPONENTIAL: lambda entropy, interval, group: (
        0.5 * interval + draw_exponential(entropy, LATE * interval, group)
    ),
}
"""The same for later NAKs: half of the interval at least, and all of it on average.

Of many who draw evenly somebody always draws the least, and asks anew for what is on its way.
"""


# When which missing range is to be asked for; of those that are due, the lowest first.


class NakTimer:
    """One timer for each range. Times in seconds."""

    __slots__ = ("_rung", "_waiting")

    def __init__(self) -> None:
        self._waiting = TimerQueue[Gap]()
        # Those that rang, by number instead of by time.
        self._rung = TimerQueue[Gap]()

    def __contains__(self, gap: Gap) -> bool:
        return gap in self._waiting or gap in self._rung

    def set(self, gap: Gap, due: float) -> None:
        """Let the timer of ``gap`` ring at ``due``, and at no other time."""
        gap.due = due
        self._rung.set(gap, None)
        self._waiting.set(gap, due)

    def stop(self, gap: Gap) -> None:
        """Let it not ring."""
        self._rung.set(gap, None)
        self._waiting.set(gap, None)

    def take(self, now: float) -> Gap | None:
        """Stop and return the lowest range whose time has come; None when there is none."""
        for gap in self._waiting.take_due(now):
            self._rung.set(gap, gap.first)
        return self._rung.pop()

    def next_due(self) -> float | None:
        """When the next one rings, some time in the past if one rang; None when none is set."""
        lowest = self._rung.first()
        return earliest(None if lowest is None else lowest.due, self._waiting.next_due())


# A receiver's part in recovery: what is missing, when it is asked for, when it is given up.


NCFS: Final = {
    NcfReason.NO_RETRY: GapEvent.NO_RETRY,
    NcfReason.IGNORED: GapEvent.IGNORED,
    NcfReason.RX_DELAY: GapEvent.RX_DELAY,
    NcfReason.SHED: GapEvent.SHED,
}

REASONS: Final = {
    GapEvent.NO_RETRY: LossReason.NO_RETRY,
    GapEvent.BELOW_TRAIL: LossReason.WINDOW,
    GapEvent.TOO_OLD: LossReason.TIMEOUT,
    GapEvent.CROWDED: LossReason.MAP_OVERFLOW,
    GapEvent.SESSION_OVER: LossReason.SESSION_END,
}


class NakGenerator:
    """The loss map and its timers: whatever is missing arrives, or is given up.

    ``given_up`` is what has not been told yet. Times in seconds.
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
        self._first_nak = 0.0
        self._next_nak = 0.0
        # NAKs may draw together on their way: less at once than the source allows.
        self._budget = Pacer(max(int(settings.nak_budget / 2), 1))

    @property
    def next_due(self) -> float | None:
        """When to come back; there is always a time while something is missing."""
        if not self.missing:
            return None
        rings = self._timer.next_due()
        nak = None if rings is None else max(rings, self._next_nak)
        return earliest(nak, self.missing.oldest.since + self._settings.generation)

    # What is seen of the stream

    def find_missing(self, now: float, first: int, last: int) -> None:
        """Note that these are missing; they are above all that was known."""
        self._counters.lost += last - first + 1
        if not self._settings.send_naks:
            self.missing.add(Gap(first, last, now, GapState.DISABLED))
        else:
            gap = Gap(first, last, now, GapState.WAIT_FIRST)
            self.missing.add(gap)
            self._timer.set(gap, self._first_nak_of_burst(now))
        self._make_room()

    def fill(self, now: float, number: int, *, repair: bool) -> None:
        """Take note that a missing one is here."""
        for gap in self._isolate(number, number):
            self.missing.remove(gap)
            self._timer.stop(gap)
            self._step(gap, GapEvent.REPAIRED if repair else GapEvent.LATE, now)
        self._make_room()

    def advance_trail(self, trail: int) -> None:
        """Give up what the source holds no longer."""
        if self.missing and self.missing.oldest.first < trail:
            self._split_at(trail)
            self._lose(self.missing.take_below(trail), GapEvent.BELOW_TRAIL)

    def hear_ncf(self, now: float, ncf: Ncf) -> None:
        """Do not ask for these now; or never, if the source says so."""
        event, due = NCFS[ncf.reason], now + self._put_off(ncf)
        for span in ncf.spans:
            gaps = self._isolate(*span) if self.missing.touches(*span) else ()
            for gap in gaps:
                self._step(gap, event, due)
                if gap.state is GapState.LOST:
                    self.missing.remove(gap)
                    self._timer.stop(gap)
        self._make_room()

    # Time

    def expire(self, now: float) -> None:
        """Give up what has been missing for a generation interval."""
        self._lose(self.missing.take_old(now, self._settings.generation), GapEvent.TOO_OLD)

    def end(self) -> None:
        """Give up everything."""
        self._lose(self.missing.take_oldest(len(self.missing)), GapEvent.SESSION_OVER)

    def poll_nak(self, now: float) -> bytes | None:
        """Return a NAK for what is due, the oldest first, if one may leave."""
        asked = self._take_due(now) if now >= self._next_nak else []
        if not asked:
            return None
        due = now + self._draw_again()
        for gap in asked:
            gap.naks += 1
            self._step(gap, GapEvent.ASKED, due)
        self._note_sent(now, sum([gap.size for gap in asked]))
        return encode_nak(Nak(cut(RangeSet(gap.span for gap in asked))))

    def _take_due(self, now: float) -> list[Gap]:
        asked, ranges = list[Gap](), MOST_RANGES
        left = max(self._budget.budget(now, self._settings.nak_budget), 1)
        while ranges and left and (gap := self._timer.take(now)) is not None:
            most = min(left, ranges * (FURTHER + 1))
            if gap.size > most:
                rest = self.missing.split(gap, gap.first + most)
                self._timer.set(rest, rest.due)
            asked.append(gap)
            left -= gap.size
            ranges -= -(-gap.size // (FURTHER + 1))
        return asked

    def _note_sent(self, now: float, number: int) -> None:
        self._counters.nak_packets_sent += 1
        self._counters.naks_sent += number
        rate = self._settings.nak_budget
        self._budget.sent(now, number, rate)
        ready = self._budget.ready_at(now, 1, rate)
        self._next_nak = max(now + self._settings.nak_spacing, ready)

    # Waits

    def _first_nak_of_burst(self, now: float) -> float:
        """When to ask for what was just found: a burst has one draw, which later gaps join."""
        if now >= self._first_nak:
            self._first_nak = now + self._draw_initial()
        return self._first_nak

    def _draw_initial(self) -> float:
        settings = self._settings
        draw = INITIAL[settings.backoff]
        return draw(self._entropy, settings.initial_backoff, settings.group_size)

    def _draw_again(self) -> float:
        settings = self._settings
        draw = AGAIN[settings.backoff]
        return draw(self._entropy, settings.nak_backoff, settings.group_size)

    def _put_off(self, ncf: Ncf) -> float:
        """How long not to ask."""
        settings = self._settings
        if ncf.reason is NcfReason.SHED:
            return draw_uniform(self._entropy, settings.suppress)
        if ncf.retry_after:
            # All receivers heard it, and must not come back at once.
            return ncf.retry_after + self._draw_initial()
        return settings.suppress + draw_uniform(self._entropy, settings.nak_backoff)

    # The loss map

    def _isolate(self, first: int, last: int) -> list[Gap]:
        """Split gaps so that none is partly within these numbers; return those that are."""
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

    def _make_room(self) -> None:
        excess = len(self.missing) - self._settings.loss_map
        if excess > 0:
            self._lose(self.missing.take_oldest(excess), GapEvent.CROWDED)

    def _lose(self, gaps: Iterable[Gap], event: GapEvent) -> None:
        for gap in gaps:
            self._timer.stop(gap)
            self._step(gap, event, 0.0)

    # Actions

    def _step(self, gap: Gap, event: GapEvent, time: float) -> None:
        """Do what the table says; ``time`` is when to come back, or when it came."""
        self._RUNNER.step_of(gap, self, event, event, time)

    def _arm(self, gap: Gap, _event: GapEvent, due: float) -> None:
        # However an NCF puts it: on average no sooner than the backoff has it at the soonest.
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
        span, reason = gap.span, REASONS[event]
        self._counters.count_unrecovered(reason, span.size)
        if self.given_up and _continues(self.given_up[-1], span, reason):
            span = Span(self.given_up.pop().span.first, span.last)
        self.given_up.append(GivenUp(span, reason))

    _RUNNER = Runner(
        GAP,
        {
            GapAction.ARM: _arm,
            GapAction.COUNT_RECOVERED: _count_recovered,
            GapAction.COUNT_OUT_OF_ORDER: _count_out_of_order,
            GapAction.GIVE_UP: _give_up,
        },
        # An NCF about a range that is suppressed already, or that others may ask for.
        ignored=GapEvent,
    )


def _continues(before: GivenUp, span: Span, reason: LossReason) -> bool:
    return before.reason is reason and before.span.last + 1 == span.first
