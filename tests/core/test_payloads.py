"""Payloads of one length, cut by one call."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.wire import MOST_LAID_OUT, cut_payloads, take_equal
from sphtp.errors import RemoteError


@given(
    start=st.integers(0, 9),
    count=st.integers(0, 60),
    length=st.integers(1, 20),
    rest=st.integers(0, 19),
    behind=st.integers(0, 5),
)
def test_payloads_are_slices(start: int, count: int, length: int, rest: int, behind: int) -> None:
    end = start + count * length + min(rest, length - 1)
    data = bytes(n % 251 for n in range(end + behind))
    payloads = cut_payloads(data, start, end, length)
    assert b"".join(payloads) == data[start:end]
    assert {len(payload) for payload in payloads[:-1]} <= {length}
    assert len(payloads) == -(-(end - start) // length)


@pytest.mark.parametrize("count", [MOST_LAID_OUT - 1, MOST_LAID_OUT, MOST_LAID_OUT + 1, 20_000])
def test_more_are_cut_as_well(count: int) -> None:
    assert take_equal(b"ab" * count, 0, count, 2) == ([b"ab"] * count, 2 * count)


def test_who_says_something_else_each_time_fills_no_memory() -> None:
    tracemalloc.start()
    try:
        for count in (*range(1, 1000), 20_000, 20_001):
            take_equal(bytes(count), 0, count, 1)
        assert tracemalloc.get_traced_memory()[0] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("count", "length"), [(3, 2), (2, 3), (5, 2**16), (0, 4)])
def test_more_than_there_is_is_refused(count: int, length: int) -> None:
    with pytest.raises(RemoteError):
        take_equal(bytes(5), 0, count, length)
