"""How fast a source may send: as it likes, until its repairs are too many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.rate_limit import CALM, EASE, LEAST, PAUSE, MeanRate, RateLimit, RateState
from sphtp.core.stream.settings import StreamSettings

RATE = 1e6
"""Bytes a second that a test sends, a datagram each millisecond."""

SETTINGS = StreamSettings(repair_share=3.0, nak_backoff=0.1, repair_rate=1e9)


def steady(
    pulse: RateLimit, start: float, seconds: float, rate: float = RATE, *, waits: bool = False
) -> float:
    """Send at a rate for a while; return when that ends."""
    for tick in range(round(seconds * 1000)):
        pulse.handle_data(start + tick / 1000, round(rate / 1000), waits=waits)
    return start + seconds


def state_of(pulse: RateLimit) -> RateState:
    return pulse.state


def test_without_trouble_only_the_settings_count() -> None:
    pulse = RateLimit(SETTINGS)
    assert (pulse.data_rate(0.0), pulse.repair_rate(0.0)) == (None, 1e9)
    now = steady(pulse, 0.0, 2.0)
    assert pulse.data_rate(now) is None
    assert pulse.repair_rate(now) == pytest.approx(3 * RATE, rel=0.01)


def test_a_source_that_sends_little_may_still_repair() -> None:
    pulse = RateLimit(SETTINGS)
    now = steady(pulse, 0.0, 2.0, rate=1000)
    assert pulse.repair_rate(now) == 3 * LEAST


def test_a_quiet_source_repairs_as_fast_as_it_sent() -> None:
    pulse = RateLimit(SETTINGS)
    now = steady(pulse, 0.0, 2.0)
    assert pulse.repair_rate(now + 60) > 2.5 * RATE


def test_repairs_that_wait_for_a_moment_are_no_trouble() -> None:
    pulse = RateLimit(SETTINGS)
    now = steady(pulse, 0.0, 2.0)
    pulse.handle_waiting_repairs(now, round(0.09 * 3 * RATE))
    assert state_of(pulse) is RateState.FREE


def test_while_repairs_wait_too_long_data_does_not_grow() -> None:
    pulse = RateLimit(SETTINGS)
    now = steady(pulse, 0.0, 2.0)
    pulse.handle_waiting_repairs(now, round(0.11 * 3 * RATE))
    assert state_of(pulse) is RateState.BRAKING
    assert pulse.data_rate(now) == pytest.approx(RATE, rel=0.01)
    pulse.handle_data(now, 0, waits=True)
    slower = pulse.data_rate(now + 0.5)
    assert slower is not None
    assert slower < 0.7 * RATE, "receivers make it wait: the path takes less"
    assert pulse.data_rate(now + 60.0) == EASE * LEAST, "it may always try"


def test_it_goes_on_a_little_faster_each_second_until_nothing_waits() -> None:
    pulse = RateLimit(SETTINGS)
    now = steady(pulse, 0.0, 2.0)
    pulse.handle_waiting_repairs(now, round(RATE))
    now = steady(pulse, now, CALM, waits=True)
    assert pulse.data_rate(now) == pytest.approx(EASE * RATE, rel=0.02)
    assert state_of(pulse) is RateState.EASING
    now = steady(pulse, now, 5.0, EASE * RATE, waits=True)
    assert pulse.data_rate(now) == pytest.approx(EASE * EASE * RATE, rel=0.02)
    pulse.handle_waiting_repairs(now, round(RATE))
    assert state_of(pulse) is RateState.BRAKING
    now = steady(pulse, now, CALM, waits=True)
    pulse.handle_data(now, 1000, waits=False)
    assert state_of(pulse) is RateState.FREE
    assert pulse.data_rate(now) is None


def test_a_data_rate_is_a_limit_all_the_same() -> None:
    pulse = RateLimit(StreamSettings(data_rate=RATE / 2, repair_rate=RATE / 2))
    now = steady(pulse, 0.0, 2.0)
    assert pulse.data_rate(now) == RATE / 2
    pulse.handle_waiting_repairs(now, round(RATE))
    assert state_of(pulse) is RateState.BRAKING
    assert pulse.data_rate(now) == RATE / 2


def test_without_a_share_nothing_is_held_back() -> None:
    pulse = RateLimit(StreamSettings(repair_share=None, repair_rate=1e9))
    now = steady(pulse, 0.0, 2.0)
    pulse.handle_waiting_repairs(now, 10**12)
    assert (pulse.data_rate(now), pulse.repair_rate(now)) == (None, 1e9)


def test_pauses_do_not_count_unless_something_waits() -> None:
    mean = MeanRate()
    assert mean.at(0.0) is None
    for tick in range(3000):
        mean.add(tick / 1000, 1000, waits=False)
    assert mean.at(3.0 + 60.0) == pytest.approx(mean.at(3.0 + PAUSE), rel=1e-3)
    mean.add(63.0, 0, waits=True)
    assert (mean.at(64.0) or 0.0) < 0.4 * RATE


@given(
    st.lists(st.tuples(st.floats(1e-6, 2.0), st.integers(0, 10_000), st.booleans()), max_size=60)
)
def test_a_mean_is_between_nothing_and_the_most(steps: list[tuple[float, int, bool]]) -> None:
    mean, now, sizes = MeanRate(), 0.0, list[int]()
    shortest = min([seconds for seconds, _, _ in steps], default=1.0)
    for seconds, size, waits in steps:
        mean.add(now, size, waits=waits)
        sizes.append(size)
        now += seconds
        found = mean.at(now)
        assert found is not None
        assert 0 <= found <= sum(sizes) / min(shortest, PAUSE) + 1


def test_what_is_sent_all_at_once_has_no_rate() -> None:
    pulse = RateLimit(SETTINGS)
    pulse.handle_data(1.0, 100_000, waits=False)
    pulse.handle_waiting_repairs(1.0, 10**12)
    assert state_of(pulse) is RateState.BRAKING
    assert (pulse.data_rate(1.0), pulse.repair_rate(1.0)) == (None, 1e9)
