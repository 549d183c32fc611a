"""How often: never more than the rate, and no less than it either."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.rate import MOST_KEYS, RateLimit, RateLimits


@given(
    st.floats(0.1, 1000),
    st.lists(st.floats(0, 3), min_size=1, max_size=200),
)
def test_never_more_than_a_bucket_and_what_flowed_in(rate: float, waits: list[float]):
    limit, now, taken = RateLimit(rate), 0.0, 0
    for wait in waits:
        now += wait
        taken += limit.take(now)
        assert taken <= max(rate, 1.0) + now * rate + 1e-6


@pytest.mark.parametrize("rate", [0.5, 1.0, 10.0, 500.0])
def test_asked_all_the_time_it_gives_its_rate(rate: float):
    limit = RateLimit(rate)
    step = 1 / rate / 7
    taken = sum(limit.take(number * step) for number in range(7 * 1000))
    assert taken == pytest.approx(1000 + max(rate, 1.0), abs=2)


def test_after_a_long_silence_it_gives_a_second_and_no_more():
    limit = RateLimit(10)
    assert sum(limit.take(0.0) for _ in range(50)) == 10
    assert sum(limit.take(1e6) for _ in range(50)) == 10


def test_a_clock_that_steps_back_gives_nothing():
    limit = RateLimit(10)
    assert sum(limit.take(100.0) for _ in range(50)) == 10
    assert not limit.take(50.0)


def test_each_key_has_its_own_and_the_keys_are_bounded():
    limits = RateLimits[int](2)
    assert [limits.take(0.0, key) for key in (1, 1, 1, 2)] == [True, True, False, True]
    assert all(limits.take(0.0, key) for key in range(2, MOST_KEYS + 2))
    assert limits.take(0.0, 1), "it was seen longest ago"
    assert limits.take(0.0, MOST_KEYS + 1)
    assert not limits.take(0.0, MOST_KEYS + 1)
