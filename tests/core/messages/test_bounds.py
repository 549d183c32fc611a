"""Bounds refuse to contradict themselves; compressed floats land on the nearest step."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sphtp.core.messages import Bits, Compressed, Limit, Range
from sphtp.errors import SettingsError, WireError
from tests.cases import each

ends = st.floats(-1e9, 1e9)


@st.composite
def bounds(draw: st.DrawFn) -> Compressed:
    low, high = sorted((draw(ends), draw(ends)))
    assume(low < high)
    resolution = draw(st.floats(1e-5, 1e9))
    assume(resolution > (high - low) * 2.0**-40)
    return Compressed(low, high, resolution)


@given(bounds(), st.floats(0.0, 1.0), st.integers(0))
def test_a_value_comes_back_within_half_a_step_and_a_step_and_both_ends_as_themselves(
    bound: Compressed, part: float, number: int
) -> None:
    value = min(max(bound.low + part * (bound.high - bound.low), bound.low), bound.high)
    back = bound.value_of(bound.step_of(value))
    assert bound.low <= back <= bound.high
    # Eight roundings on the way there and back, each of at most half a place of the largest.
    rounding = 8 * math.ulp(max(abs(bound.low), abs(bound.high)))
    assert abs(back - value) <= bound.resolution / 2 + rounding
    step = number % (bound.steps + 1)
    assert bound.step_of(bound.value_of(step)) == step
    assert bound.value_of(bound.step_of(bound.low)) == bound.low
    assert bound.value_of(bound.step_of(bound.high)) == bound.high


@each("value", [-1.0001, 1.0001, math.nan, math.inf, -math.inf])
def test_what_is_outside_is_refused(value: float) -> None:
    with pytest.raises(WireError):
        Compressed(-1.0, 1.0, 0.5).step_of(value)


def test_steps_of_an_odd_resolution_are_finer() -> None:
    assert [Compressed(0.0, 1.0, 0.3).value_of(step) for step in range(5)] == [
        0,
        0.25,
        0.5,
        0.75,
        1,
    ]


@each(
    "make",
    [
        lambda: Range(1, 0),
        lambda: Bits(-1),
        lambda: Limit(-1),
        lambda: Compressed(1.0, 1.0, 0.1),
        lambda: Compressed(2.0, 1.0, 0.1),
        lambda: Compressed(0.0, math.inf, 0.1),
        lambda: Compressed(math.nan, 1.0, 0.1),
        lambda: Compressed(-1e308, 1e308, 1e300),
        lambda: Compressed(0.0, 1e-318, 5e-324),
        lambda: Compressed(0.0, 1.0, 0.0),
        lambda: Compressed(0.0, 1.0, math.nan),
        lambda: Compressed(0.0, 1.0, math.inf),
        lambda: Compressed(1e18, 1e18 + 4096, 0.01),
    ],
)
def test_contradictions_are_refused(make) -> None:
    with pytest.raises(SettingsError):
        make()


def test_a_resolution_at_the_edge_of_a_double_still_comes_back() -> None:
    bound = Compressed(-1e6, 1e6, 1e6 * 2.0**-48)
    for step in (0, 1, 2, bound.steps // 3, bound.steps // 2, bound.steps - 1, bound.steps):
        assert bound.step_of(bound.value_of(step)) == step


def test_a_range_far_below_its_resolution_keeps_both_ends() -> None:
    bound = Compressed(0.0, 5e-324, 1e9)
    assert [bound.value_of(bound.step_of(value)) for value in (0.0, 5e-324)] == [0.0, 5e-324]
