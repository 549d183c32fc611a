"""NAKs: the rows of the table of missing ranges, NCFs and counters; random waits; and timers."""

from math import exp, log
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.events import GivenUp, LossReason
from sphtp.core.stream.loss_map import GAP, MISSING, Gap, GapEvent, GapState
from sphtp.core.stream.nak import (
    LOSS_REASONS,
    NCF_EVENTS,
    NakTimer,
    draw_exponential,
    draw_nak_backoff,
    draw_uniform,
)
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.settings import Backoff, StreamSettings
from sphtp.core.stream.statistics import NCF_COUNTERS as COUNTERS
from sphtp.core.stream.wire import BodyFlag, NcfReason
from tests.cases import each
from tests.core.stream.receivers import DrivenReceiver
from tests.profiles import brisk

ONE_MS = 0.001


def test_there_is_a_name_for_every_reason() -> None:
    assert set(NCF_EVENTS) == set(COUNTERS) == set(NcfReason)
    losing = {row.on for row in GAP.rows if row.to is GapState.LOST}
    assert losing == set(LOSS_REASONS)


def test_whatever_is_missing_can_arrive_and_can_be_given_up() -> None:
    ends = {GapEvent.REPAIRED, GapEvent.LATE, *LOSS_REASONS}
    assert all(GAP.find(state, event) is not None for state in MISSING for event in ends)


def gap_in(driven: DrivenReceiver, sqn: int) -> GapState | None:
    gap = driven.receiver.missing.find(sqn)
    return None if gap is None else gap.state


# WAIT_FIRST


def test_the_first_nak_waits_for_a_random_time_around_the_initial_backoff() -> None:
    waits = list[float]()
    for seed in range(200):
        driven = DrivenReceiver(seed=seed, initial_backoff=0.1)
        driven.lose()
        driven.send()
        assert gap_in(driven, 0) is GapState.WAIT_FIRST
        driven.wait_for_nak()
        waits.append(driven.now)
    assert 0.05 <= min(waits) < 0.055
    assert 0.145 < max(waits) <= 0.15


def test_in_a_group_it_is_late_mostly_and_never_later_than_the_interval() -> None:
    waits = list[float]()
    for seed in range(200):
        driven = DrivenReceiver(
            seed=seed, initial_backoff=0.1, backoff=Backoff.EXPONENTIAL, group_size=100
        )
        driven.lose()
        driven.send()
        driven.wait_for_nak()
        waits.append(driven.now)
    assert 0.0 <= min(waits) < 0.05
    assert max(waits) <= 0.1
    assert sum(wait > 0.05 for wait in waits) > 160


def test_without_backoff_it_asks_at_once() -> None:
    driven = DrivenReceiver(initial_backoff=0.0)
    driven.lose()
    driven.send()
    assert driven.naks == [(0.0, [Span(0, 0)])]


def test_gaps_found_later_join_the_burst() -> None:
    driven = DrivenReceiver(initial_backoff=0.1)
    for _ in range(5):
        driven.lose()
        driven.send()
        driven.wait(0.009)
    assert driven.naks == []
    driven.wait_for_nak()
    assert driven.now <= 0.15
    assert driven.naks[0][1] == [Span(sqn, sqn) for sqn in (0, 2, 4, 6, 8)]
    driven.lose()
    driven.send()
    driven.wait(0.049)
    assert len(driven.naks) == 1, "the next burst has its own draw"


@pytest.mark.parametrize("repair", [False, True])
def test_what_comes_before_the_first_nak_is_never_asked_for(repair: bool) -> None:
    driven = DrivenReceiver()
    driven.lose()
    driven.send()
    driven.data(0, repair=repair)
    driven.wait(1)
    assert driven.heard == [1, 0]
    assert driven.naks == []
    statistics = driven.receiver.statistics()
    assert (statistics.recovered, statistics.out_of_order) == (int(repair), int(not repair))


def test_an_ncf_for_somebody_else_silences_this_one_too() -> None:
    driven = DrivenReceiver()
    driven.lose()
    driven.send()
    driven.ncf(NcfReason.IGNORED, (0, 0), after=0.03)
    assert gap_in(driven, 0) is GapState.SUPPRESSED
    driven.wait_for_nak()
    assert driven.now >= 0.03


# WAIT_REPAIR


def asked(**changes: Any) -> DrivenReceiver:
    """One that has asked for 0."""
    driven = DrivenReceiver(**changes)
    driven.lose()
    driven.send()
    driven.wait_for_nak()
    assert gap_in(driven, 0) is GapState.WAIT_REPAIR
    return driven


def test_it_asks_again_after_the_backoff() -> None:
    driven = asked()
    for _ in range(20):
        before = driven.now
        assert driven.wait_for_nak() == [Span(0, 0)]
        assert 0.05 <= driven.now - before <= 0.15
    assert gap_in(driven, 0) is GapState.WAIT_REPAIR


def test_a_repair_is_counted_with_the_time_and_the_naks_it_took() -> None:
    driven = asked()
    driven.wait_for_nak()
    took = driven.now
    driven.repair(0)
    statistics = driven.receiver.statistics()
    assert statistics.nak_stm == (took, took, took)
    assert statistics.nak_tx == (2, 2, 2)
    driven.lose(2)
    driven.send()
    driven.wait(ONE_MS)
    driven.repair(2, 3)
    statistics = driven.receiver.statistics()
    assert statistics.nak_stm == pytest.approx((ONE_MS, (took + 2 * ONE_MS) / 3, took))
    assert statistics.nak_tx == pytest.approx((0, 2 / 3, 2))
    assert statistics.naks_sent == statistics.nak_packets_sent == 2


def test_an_original_that_comes_after_all_was_only_overtaken() -> None:
    driven = asked()
    driven.data(0)
    assert driven.receiver.statistics().out_of_order == 1
    assert driven.receiver.statistics().nak_tx is None


def test_a_range_is_split_where_a_part_is_repaired() -> None:
    driven = DrivenReceiver()
    driven.lose(10)
    driven.send()
    assert driven.wait_for_nak() == [Span(0, 9)]
    driven.repair(0, 4, 5, 9)
    assert driven.pending == [Span(1, 3), Span(6, 8)]
    assert driven.wait_for_nak() == [Span(1, 3), Span(6, 8)]
    driven.repair(1, 2, 3, 6, 7, 8)
    assert driven.receiver.statistics().nak_tx == (1, 1.6, 2)


# SUPPRESSED


@pytest.mark.parametrize(
    ("reason", "after", "least", "most"),
    [
        # Retry-after, then as after a burst.
        (NcfReason.IGNORED, 0.06, 0.0625, 0.0675),
        (NcfReason.RX_DELAY, 0.06, 0.0625, 0.0675),
        # Suppress, then the backoff.
        (NcfReason.IGNORED, 0.0, 0.25, 0.35),
        (NcfReason.RX_DELAY, 0.0, 0.25, 0.35),
        # Suppress, more or less, whatever it says.
        (NcfReason.SHED, 0.0, 0.1, 0.3),
        (NcfReason.SHED, 0.06, 0.1, 0.3),
    ],
)
def test_an_ncf_puts_the_next_nak_off(
    reason: NcfReason, after: float, least: float, most: float
) -> None:
    waits = list[float]()
    for seed in range(50):
        driven = asked(seed=seed)
        before = driven.now
        driven.ncf(reason, (0, 0), after=after)
        assert gap_in(driven, 0) is GapState.SUPPRESSED
        assert driven.wait_for_nak() == [Span(0, 0)]
        assert gap_in(driven, 0) is GapState.WAIT_REPAIR
        waits.append(driven.now - before)
    assert min(waits) >= least - 1e-9
    assert max(waits) <= most + 1e-9
    assert max(waits) - min(waits) > 0.8 * (most - least), "they would all come back at once"


def test_ncfs_cannot_put_it_off_again_and_again() -> None:
    driven = asked()
    before = driven.now
    for _ in range(100):
        driven.ncf(NcfReason.IGNORED, (0, 0), after=0.06)
        driven.wait(ONE_MS)
    assert len(driven.naks) == 2
    assert driven.naks[1][0] - before <= 0.0675


def test_ncfs_cannot_make_it_ask_faster_than_the_backoff_does() -> None:
    driven = asked()
    while driven.now < 5:
        driven.ncf(NcfReason.IGNORED, (0, 0), after=ONE_MS)
        driven.wait_for_nak()
    assert len(driven.naks) <= 1 + 5.15 / 0.05


def test_only_what_an_ncf_names_is_put_off() -> None:
    driven = DrivenReceiver()
    driven.lose(10)
    driven.send()
    driven.wait_for_nak()
    driven.ncf(NcfReason.RX_DELAY, (2, 3), (9, 10), after=0.5)
    states = [gap_in(driven, sqn) for sqn in range(11)]
    waits, suppressed = GapState.WAIT_REPAIR, GapState.SUPPRESSED
    assert states == [*[waits] * 2, *[suppressed] * 2, *[waits] * 5, suppressed, None]
    assert driven.wait_for_nak() == [Span(0, 1), Span(4, 8)]
    assert driven.receiver.statistics().ncfs_rx_delay == 4


@pytest.mark.parametrize("after", ["nothing", "a NAK", "an NCF"])
def test_what_will_not_be_repaired_is_lost_at_once(after: str) -> None:
    driven = DrivenReceiver()
    driven.lose(3)
    driven.send()
    if after == "a NAK":
        driven.wait_for_nak()
    elif after == "an NCF":
        driven.ncf(NcfReason.SHED, (0, 2))
    driven.ncf(NcfReason.NO_RETRY, (1, 1))
    assert driven.given_up == [GivenUp(Span(1, 1), LossReason.NO_RETRY)]
    assert driven.pending == [Span(0, 0), Span(2, 2)]
    assert driven.receiver.statistics().unrecovered_ncf == 1


def test_an_ncf_for_what_was_not_sent_is_dropped() -> None:
    driven = DrivenReceiver()
    driven.lose(2)
    driven.session()
    driven.ncf(NcfReason.NO_RETRY, (0, 2))
    assert driven.pending == [Span(0, 1)]
    assert driven.receiver.statistics().implausible == 1


def test_an_ncf_tells_of_the_lead() -> None:
    driven = DrivenReceiver()
    driven.send()
    driven.lose(2)
    driven.ncf(NcfReason.SHED, (2, 2))
    assert driven.pending == [Span(1, 2)]
    assert gap_in(driven, 1) is GapState.WAIT_FIRST
    assert gap_in(driven, 2) is GapState.SUPPRESSED


# LOST


@pytest.mark.parametrize("is_asked", [False, True])
def test_what_is_below_the_trail_is_given_up_at_once(is_asked: bool) -> None:
    driven = DrivenReceiver()
    driven.lose(10)
    driven.send()
    if is_asked:
        driven.wait_for_nak()
    driven.drop(7)
    driven.send()
    assert driven.given_up == [GivenUp(Span(0, 6), LossReason.WINDOW)]
    assert driven.pending == [Span(7, 9)]
    driven.repair(7, 8, 9)
    assert driven.receiver.statistics().unrecovered_txw == 7


def test_what_is_below_the_trail_when_it_is_found_is_never_asked_for() -> None:
    driven = DrivenReceiver(initial_backoff=0.0)
    driven.lose(1_000_000)
    driven.drop(999_999)
    driven.send()
    assert driven.given_up == [GivenUp(Span(0, 999_998), LossReason.WINDOW)]
    assert driven.naks == [(0.0, [Span(999_999, 999_999)])]


def test_what_comes_after_it_was_given_up_is_not_handed_on() -> None:
    driven = DrivenReceiver()
    driven.lose(2)
    driven.drop(1)
    driven.send()
    window = driven.window._replace(trail=0)
    driven.data(0, repair=True, window=window)
    assert driven.heard == [2]
    assert driven.receiver.statistics().duplicates == 1


def test_after_a_generation_interval_it_is_lost() -> None:
    driven = DrivenReceiver(generation=1.0)
    driven.lose()
    driven.send()
    driven.wait(0.5)
    driven.lose()
    driven.send()
    driven.wait(0.499)
    assert driven.given_up == []
    driven.wait(0.002)
    assert driven.given_up == [GivenUp(Span(0, 0), LossReason.TIMEOUT)]
    driven.wait(0.5)
    assert [given_up.span.first for given_up in driven.given_up] == [0, 2]
    assert driven.receiver.statistics().unrecovered_tmo == 2


def test_of_too_many_ranges_the_oldest_are_lost() -> None:
    driven = DrivenReceiver(loss_map=4)
    for _ in range(6):
        driven.lose()
        driven.send()
    assert driven.given_up == [
        GivenUp(Span(0, 0), LossReason.MAP_OVERFLOW),
        GivenUp(Span(2, 2), LossReason.MAP_OVERFLOW),
    ]
    driven.lose(9)
    driven.session()
    assert len(driven.pending) == 4
    driven.repair(14)
    assert [given_up.span.first for given_up in driven.given_up] == [0, 2, 4, 6]
    assert driven.receiver.statistics().unrecovered_map == 4


def test_ncfs_cannot_make_ranges_of_too_many() -> None:
    driven = DrivenReceiver(loss_map=4)
    driven.lose(9)
    driven.session()
    driven.ncf(NcfReason.SHED, (2, 2), (4, 4), (6, 6))
    assert driven.given_up == [GivenUp(Span(0, 3), LossReason.MAP_OVERFLOW)]


# DISABLED


def test_one_that_sends_no_naks_takes_what_others_asked_for() -> None:
    driven = DrivenReceiver(send_naks=False, generation=1.0)
    driven.lose(4)
    driven.send()
    assert gap_in(driven, 0) is GapState.DISABLED
    for reason in (NcfReason.IGNORED, NcfReason.RX_DELAY, NcfReason.SHED):
        driven.ncf(reason, (0, 1))
    driven.ncf(NcfReason.NO_RETRY, (3, 3))
    assert gap_in(driven, 0) is GapState.DISABLED
    driven.repair(1)
    driven.wait(2)
    assert driven.naks == []
    assert driven.heard == [4, 1]
    assert [given_up.reason for given_up in driven.given_up] == [
        LossReason.NO_RETRY,
        LossReason.TIMEOUT,
        LossReason.TIMEOUT,
    ]


# NAKs


def test_a_nak_names_as_many_ranges_as_fit_the_oldest_first() -> None:
    driven = DrivenReceiver(nak_budget=1e6)
    for _ in range(200):
        driven.lose()
        driven.send()
    assert driven.wait_for_nak() == [Span(sqn, sqn) for sqn in range(0, 256, 2)]
    before = driven.now
    assert driven.wait_for_nak() == [Span(sqn, sqn) for sqn in range(256, 400, 2)]
    assert driven.now == pytest.approx(before + driven.settings.nak_spacing)


def test_one_nak_of_many_bursts_is_in_order() -> None:
    driven = DrivenReceiver(nak_spacing=0.2, initial_backoff=0.0)
    driven.lose(3)
    driven.send()
    driven.ncf(NcfReason.IGNORED, (1, 1), after=0.1)
    for _ in range(3):
        driven.wait(0.02)
        driven.lose()
        driven.send()
    assert len(driven.naks) == 1
    assert driven.wait_for_nak() == [Span(0, 2), Span(4, 4), Span(6, 6), Span(8, 8)]


def test_a_long_range_is_asked_for_piece_by_piece() -> None:
    driven = DrivenReceiver(nak_budget=1e9)
    driven.lose(10_000_000)
    driven.send()
    pieces = driven.wait_for_nak()
    assert len(pieces) == 128
    assert pieces[-1].last == 128 * 65_536 - 1
    assert driven.wait_for_nak()[0].first == 128 * 65_536
    assert driven.naks[-1][1][-1].last == 9_999_999


@pytest.mark.parametrize("spacing", [0.0, 0.005])
def test_it_keeps_to_the_budget_that_a_source_gives_each_receiver(spacing: float) -> None:
    driven = DrivenReceiver(nak_budget=1000.0, nak_spacing=spacing)
    driven.lose(100_000)
    driven.send()
    driven.wait(2)
    assert driven.receiver.state.name == "ACTIVE"
    named = sum(span.size for _, spans in driven.naks for span in spans)
    assert 1900 <= named <= 500 + 2 * 1000 + 10
    assert driven.naks[0][1] == [Span(0, 499)]


def test_with_the_end_of_the_session_every_state_is_settled() -> None:
    driven = DrivenReceiver()
    driven.lose(3)
    driven.send()
    driven.wait_for_nak()
    driven.ncf(NcfReason.SHED, (1, 1))
    driven.lose()
    driven.session(BodyFlag.CLOSED)
    driven.wait(1)
    assert [tuple(given_up) for given_up in driven.given_up] == [
        (Span(0, 2), LossReason.SESSION_END),
        (Span(4, 4), LossReason.SESSION_END),
    ]
    assert driven.pending == []


class Fixed(Random):
    """Draws what it is told."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def random(self) -> float:
        return self._value


def test_uniform_is_between_half_and_one_and_a_half() -> None:
    assert [draw_uniform(Fixed(it), 0.2) for it in (0.0, 0.5, 1.0)] == pytest.approx(
        [0.1, 0.2, 0.3]
    )


@each("group_size", [1, 10, 100, 1_000_000])
@each("uniform", [0.0, 0.1, 0.5, 0.999])
def test_exponential_is_the_formula_of_rfc_5401(group_size: int, uniform: float) -> None:
    most = 0.03
    steepness = log(group_size) + 1
    least = steepness / (most * (exp(steepness) - 1))
    drawn = uniform * steepness / most + least
    told = most / steepness * log(drawn * (exp(steepness) - 1) * most / steepness)
    assert draw_exponential(Fixed(uniform), most, group_size) == pytest.approx(told, abs=1e-12)


@pytest.mark.parametrize("group_size", [1, 100, 1_000_000])
def test_exponential_is_between_nothing_and_the_most(group_size: int) -> None:
    assert draw_exponential(Fixed(0.0), 0.03, group_size) == 0
    assert draw_exponential(Fixed(1.0), 0.03, group_size) == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("receivers", "most_naks"),
    [(10, 1.1), (100, 1.2), pytest.param(1000, 1.6, marks=pytest.mark.soak)],
)
def test_of_many_that_share_a_loss_few_ask(seed: int, receivers: int, most_naks: float) -> None:
    """One round trip after the first NAK its repair is there, in time for those that draw later."""
    entropy, round_trip, asked, times = Random(seed), 0.0003, 0, 40
    for _ in range(times):
        waits = [draw_exponential(entropy, 0.03, 100) for _ in range(receivers)]
        asked += sum(wait < min(waits) + round_trip for wait in waits)
    assert asked / times < most_naks


@pytest.mark.parametrize("backoff", Backoff)
def test_later_waits_are_half_at_least_and_all_of_it_on_average(
    seed: int, backoff: Backoff
) -> None:
    entropy = Random(seed)
    settings = StreamSettings(nak_backoff=0.1, backoff=backoff)
    waits = [draw_nak_backoff(entropy, settings) for _ in range(4000)]
    assert 0.05 <= min(waits) < 0.07
    assert max(waits) <= 0.15
    assert sum(waits) / len(waits) == pytest.approx(0.1, rel=0.04)


def test_in_a_group_the_first_one_waits_much_longer_than_half(seed: int) -> None:
    entropy, groups = Random(seed), 200
    firsts = dict.fromkeys(Backoff, 0.0)
    for backoff in Backoff:
        settings = StreamSettings(nak_backoff=0.1, backoff=backoff)
        for _ in range(groups):
            waits = (draw_nak_backoff(entropy, settings) for _ in range(20))
            firsts[backoff] += min(waits) / groups
    assert firsts[Backoff.UNIFORM] < 0.06
    assert firsts[Backoff.EXPONENTIAL] > 0.07


gaps = st.integers(0, 9)
steps = st.one_of(
    st.tuples(st.just("set"), gaps, st.floats(0, 10)),
    st.tuples(st.just("stop"), gaps, st.none()),
    st.tuples(st.just("take"), st.none(), st.floats(0, 10)),
)


@brisk
@given(st.lists(steps, max_size=60))
def test_it_is_as_good_as_looking_at_all(script: list[tuple[str, int, float]]) -> None:
    timer, model = NakTimer(), dict[int, float]()
    all_gaps = [Gap(number, number, 0.0, GapState.WAIT_FIRST) for number in range(10)]
    now = 0.0
    for what, number, time in script:
        if what == "set":
            timer.set(all_gaps[number], now + time)
            model[number] = now + time
        elif what == "stop":
            timer.stop(all_gaps[number])
            model.pop(number, None)
        else:
            now += time
            rung = min((it for it, due in model.items() if due <= now), default=None)
            taken = timer.take(now)
            assert (taken and taken.first) == rung
            model.pop(-1 if rung is None else rung, None)
        due, soonest = timer.next_due(), min(model.values(), default=None)
        assert due == soonest or (due is not None and soonest is not None and soonest <= due <= now)
        assert {it.first for it in all_gaps if it in timer} == set(model)
