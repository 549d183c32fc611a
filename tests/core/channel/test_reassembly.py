"""Fragments put together again: in any order, overlapping, never confused by what they claim."""

import tracemalloc
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sphtp.core.channel.frames import Fragment
from sphtp.core.channel.reassembly import OversizeError, Reassembly
from sphtp.core.channel.receive_queue import ReceiveQueue
from sphtp.core.channel.settings import ChannelSettings
from sphtp.errors import RemoteError
from tests.profiles import brisk, few


def test_fragments_in_any_order_make_the_message() -> None:
    reassembly = Reassembly(7)
    for offset, part in ((3, b"def"), (6, b"g")):
        reassembly.add(offset, part)
        assert reassembly.finish() is None
    reassembly.add(0, b"abc")
    assert reassembly.finish() == b"abcdefg"


@few
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


def memory_of(total: int, offsets: Iterable[int], step: int = 1) -> int:
    """What a message takes of which ``step`` bytes have come at each offset."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    reassembly = Reassembly(total)
    for offset in offsets:
        reassembly.add(offset, bytes([offset & 0xFF]) * step)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reassembly.size <= total
    return after - before


def test_memory_is_what_arrived_and_not_what_was_claimed() -> None:
    assert memory_of(2**26, ()) < 1000
    assert memory_of(2**26, (2**26 - 1, 7, 7, 7)) < 2000


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_in_any_order_bytes_cost_little_more_than_bytes(order: str) -> None:
    """Or a message of single bytes would be a flood: each of them weighs a hundred."""
    offsets = list(range(10_000))
    if order == "reverse":
        offsets.reverse()
    elif order == "random":
        # In blocks, so that there are not as many gaps as bytes.
        Random(1).shuffle(offsets)
        offsets.sort(key=lambda offset: offset // 500, reverse=True)
    assert memory_of(10_001, offsets) < 60_000


@brisk
@given(
    st.lists(st.tuples(st.integers(0, 199), st.integers(1, 30)), max_size=20),
    st.integers(0, 199),
    st.integers(1, 20),
)
def test_gaps_are_counted(parts: list[tuple[int, int]], offset: int, size: int) -> None:
    reassembly, covered = Reassembly(200), set[int]()
    for start, length in parts:
        reassembly.add(start, bytes(length))
        covered |= set(range(start, min(start + length, 200)))
    islands = sum(byte - 1 not in covered for byte in covered)
    assert (reassembly.islands, reassembly.size) == (islands, len(covered))
    assert reassembly.gaps == max(islands - 1, 0)
    fragment = Fragment(0, 0, offset, 300, bytes(size))
    assert reassembly.is_apart(fragment) == covered.isdisjoint(range(offset - 1, offset + size + 1))


def test_what_came_first_is_kept() -> None:
    reassembly = Reassembly(4)
    reassembly.add(1, b"bc")
    reassembly.add(0, b"XXXX")
    assert reassembly.finish() == b"XbcX"


@brisk
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
    box = ReceiveQueue(ChannelSettings(max_message=100), 0)
    assert box.insert([Fragment(0, 0, 0, 100, b"a")], 0)
    with pytest.raises(OversizeError, match="101 bytes is over the limit of 100"):
        box.insert([Fragment(0, 1, 0, 101, b"a")], 1)
