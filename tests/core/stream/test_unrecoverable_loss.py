"""Gaps, against a table of what is missing, and where it can be."""

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.ranges import Span
from sphtp.core.stream.unrecoverable_loss import MessageGap, MessageGaps
from tests.profiles import brisk

numbers = st.integers(0, 30)
spans = st.tuples(numbers, numbers).map(lambda pair: Span(min(pair), max(pair)))


class Where(NamedTuple):
    """The datagrams that a message may be between."""

    after: int
    before: int


@brisk
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=8), st.lists(spans))
def test_they_hold_what_a_table_holds(layout: list[tuple[int, int]], taken: list[Span]) -> None:
    gaps, model, number = MessageGaps(), dict[int, Where](), 0
    for between, missing in layout:
        number += between
        span = Span(number, number + missing - 1)
        # One message in a datagram each, of the same number.
        where = Where(span.first - 1, span.last + 1)
        gaps.open(MessageGap(span, *where, since=float(number)))
        model.update(dict.fromkeys(range(span.first, span.last + 1), where))
        number += missing
    for first, last in taken:
        within = [n for span in gaps.within(first, last) for n in range(span.first, span.last + 1)]
        assert within == [n for n in sorted(model) if first <= n <= last]
        came = [n for span in gaps.take(first, last) for n in range(span.first, span.last + 1)]
        assert came == within
        if came:
            for n in came:
                del model[n]
            # They came together, in the last of their datagrams.
            gaps.narrow(first, last, last)
            for n, where in model.items():
                before = min(where.before, last) if n < first else where.before
                after = max(where.after, last) if n > last else where.after
                model[n] = Where(after, before)
        found = {n: Where(gap.after, gap.before) for gap in gaps
                 for n in range(gap.first, gap.last + 1)}  # fmt: skip
        assert found == model
        assert len(gaps) == len(list(gaps))
        assert all(a.last < b.first and a.since <= b.since for a, b in pairwise(gaps))
        assert {n for gap in gaps.around(first, last) for n in range(gap.first, gap.last + 1)} == {
            n for n, where in model.items() if where.before >= first and where.after <= last
        }


def test_a_part_of_a_gap_is_as_old_as_the_gap() -> None:
    gaps = MessageGaps()
    gaps.open(MessageGap(Span(3, 9), 0, 20, 1.5))
    assert gaps.take(5, 6) == [Span(5, 6)]
    assert [(gap.span, gap.since) for gap in gaps] == [(Span(3, 4), 1.5), (Span(7, 9), 1.5)]
    assert gaps.oldest.span == Span(3, 4)
