"""The loss map against a set of numbers."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.loss_map import Gap, GapState, LossMap
from tests.profiles import brisk

numbers = st.integers(0, 40)


def gap(first: int, last: int, since: float = 0.0) -> Gap:
    return Gap(first, last, since, GapState.WAIT_FIRST)


def numbers_in(gaps: list[Gap]) -> set[int]:
    return {number for it in gaps for number in range(it.first, it.last + 1)}


def build(sizes: list[tuple[int, int]]) -> tuple[LossMap, list[Gap]]:
    """Gaps of these sizes, each so far from the one before, found a second apart."""
    missing, gaps, at = LossMap(), list[Gap](), 0
    for second, (distance, size) in enumerate(sizes):
        gaps.append(gap(at + distance, at + distance + size - 1, float(second)))
        missing.add(gaps[-1])
        at += distance + size
    return missing, gaps


shapes = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), max_size=8)


@brisk
@given(shapes, numbers, numbers)
def test_it_finds_what_is_in(sizes: list[tuple[int, int]], a: int, b: int) -> None:
    missing, gaps = build(sizes)
    model = numbers_in(gaps)
    assert (len(missing), missing.total) == (len(gaps), len(model))
    for number in range(50):
        found = missing.find(number)
        assert (found is not None) == (number in model)
        assert found is None or found.first <= number <= found.last
    assert missing.touches(a, b) == bool(model & set(range(a, b + 1)))
    assert missing.within(a, b) == [it for it in gaps if a <= it.first <= b]


@brisk
@given(shapes, st.lists(numbers, max_size=10), numbers)
def test_splitting_loses_nothing(sizes: list[tuple[int, int]], cuts: list[int], below: int) -> None:
    missing, gaps = build(sizes)
    model = numbers_in(gaps)
    for at in cuts:
        found = missing.find(at)
        if found is not None and found.first < at:
            rest = missing.split(found, at)
            assert (rest.first, found.last) == (at, at - 1)
            assert (rest.since, rest.state) == (found.since, found.state)
            assert missing.find(at) is rest
    assert missing.total == len(model)
    taken = missing.take_below(below)
    assert all(it.first < below for it in taken)
    left = missing.take_oldest(len(missing))
    assert all(it.first >= below for it in left)
    assert numbers_in(taken + left) == model


@brisk
@given(shapes, st.floats(0, 10), st.floats(0, 5))
def test_those_are_old_that_were_found_so_long_ago(
    sizes: list[tuple[int, int]], now: float, age: float
) -> None:
    missing, gaps = build(sizes)
    assert missing.take_old(now, age) == [it for it in gaps if it.since + age <= now]


def test_a_gap_taken_out_is_out() -> None:
    missing, gaps = build([(1, 2), (1, 2), (1, 2)])
    missing.remove(gaps[1])
    assert [missing.find(number) for number in (1, 4, 7)] == [gaps[0], None, gaps[2]]
    assert missing.oldest is gaps[0]
