"""Fragments put together again: in any order, overlapping, never confused by what they claim."""

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sphtp.core.channel.fragments import OversizeError, Reassembly
from sphtp.core.channel.frames import Fragment
from sphtp.core.channel.reorder import Ordered
from sphtp.errors import RemoteError


def test_fragments_in_any_order_make_the_message() -> None:
    reassembly = Reassembly(7)
    for offset, part in ((3, b"def"), (6, b"g")):
        reassembly.add(offset, part)
        assert reassembly.finish() is None
    reassembly.add(0, b"abc")
    assert reassembly.finish() == b"abcdefg"


@given(st.binary(min_size=1, max_size=300), st.randoms(use_true_random=False))
def test_overlapping_fragments_make_the_message(payload: bytes, random: Random) -> None:
    """Cut at random, again and again, as when the path takes smaller and smaller packets."""
    reassembly = Reassembly(len(payload))
    covered: set[int] = set()
    while len(covered) < len(payload):
        assert reassembly.finish() is None
        start = random.randrange(len(payload))
        end = min(len(payload), start + random.randint(1, 60))
        reassembly.add(start, payload[start:end])
        covered |= set(range(start, end))
        assert reassembly.size == len(covered)
    assert reassembly.finish() == payload


def test_memory_is_what_arrived_and_not_what_was_claimed() -> None:
    reassembly = Reassembly(2**26)
    assert reassembly.held == 0
    for _ in range(3):
        reassembly.add(7, b"abc")
    assert reassembly.held == 3 + Reassembly.COST
    reassembly.add(6, b"xabcy")
    assert reassembly.held == 5 + 3 * Reassembly.COST


def test_what_came_first_is_kept() -> None:
    reassembly = Reassembly(4)
    reassembly.add(1, b"bc")
    reassembly.add(0, b"XXXX")
    assert reassembly.finish() == b"XbcX"


@given(st.lists(st.tuples(st.integers(0, 100), st.binary(max_size=100)), max_size=50))
@example([(0, bytes(50))])
def test_whatever_is_claimed_no_more_than_the_whole_is_kept(parts: list[tuple[int, bytes]]) -> None:
    reassembly = Reassembly(40)
    for offset, part in parts:
        reassembly.add(offset, part)
        assert reassembly.size <= 40
    whole = reassembly.finish()
    assert whole is None or len(whole) == 40


def test_another_total_is_refused() -> None:
    with pytest.raises(RemoteError, match="3 bytes now has 4"):
        Reassembly(3).check(Fragment(0, 0, 0, 4, b"a"))


def test_a_total_over_the_limit_is_refused() -> None:
    lane = Ordered(0, 1024, 100)
    assert lane.admits(Fragment(0, 0, 0, 100, b"a"), 10)
    with pytest.raises(OversizeError, match="101 bytes is over the limit of 100"):
        lane.admits(Fragment(0, 0, 0, 101, b"a"), 10)
