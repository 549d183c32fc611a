"""Sets of numbers as ranges, against sets of numbers."""

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.ranges import RangeSet, Span
from tests.profiles import brisk

numbers = st.integers(0, 40)
spans = st.tuples(numbers, numbers).map(lambda pair: Span(min(pair), max(pair)))
steps = st.lists(st.tuples(st.sampled_from(["add", "discard"]), spans), max_size=30)


def numbers_in(spans: Iterable[Span]) -> set[int]:
    return {number for span in spans for number in range(span.first, span.last + 1)}


@brisk
@given(steps, spans)
def test_it_holds_what_a_set_holds(steps: list[tuple[str, Span]], asked: Span) -> None:
    ranges, model = RangeSet(), set[int]()
    for step, span in steps:
        meant = numbers_in([span])
        if step == "add":
            ranges.add(*span)
            model |= meant
        else:
            assert numbers_in(ranges.discard(*span)) == model & meant
            model -= meant
        assert numbers_in(ranges) == model
        assert ranges.total == len(model)
    wanted = numbers_in([asked])
    assert numbers_in(ranges.within(*asked)) == model & wanted
    assert numbers_in(ranges.without(*asked)) == wanted - model
    assert {number for number in wanted if number in ranges} == model & wanted
    if model:
        assert (ranges.first, ranges.last) == (min(model), max(model))


@brisk
@given(steps)
def test_its_spans_are_in_order_and_do_not_touch(steps: list[tuple[str, Span]]) -> None:
    ranges = RangeSet()
    for step, span in steps:
        getattr(ranges, step)(*span)
    held = list(ranges)
    assert all(span.size > 0 for span in held)
    assert all(a.last + 1 < b.first for a, b in pairwise(held))


def test_a_hole_of_billions_is_one_span() -> None:
    ranges = RangeSet([Span(0, 2**40)])
    ranges.discard(2**20, 2**20)
    assert list(ranges) == [Span(0, 2**20 - 1), Span(2**20 + 1, 2**40)]
    ranges.clear()
    assert len(ranges) == 0
