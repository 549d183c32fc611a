"""Cut on one side, put together on the other, and never confused by what contradicts itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.fragments import Parts, Plan, Reassembly
from sphtp.core.channel.frames import Fragment
from sphtp.errors import RemoteError

WHOLE, PART = 13, 10


@pytest.mark.parametrize(
    ("size", "count"), [(0, 1), (1, 1), (13, 1), (14, 2), (20, 2), (21, 3), (30, 3), (1000, 100)]
)
def test_a_message_is_cut_only_when_it_must_be(size: int, count: int) -> None:
    parts = Parts(b"x" * size, WHOLE, PART)
    assert parts.count == count
    assert parts.unacked == set(range(count))


@given(st.binary(max_size=300), st.randoms(use_true_random=False))
def test_parts_in_any_order_and_number_make_the_message(payload: bytes, random: object) -> None:
    parts = Parts(payload, WHOLE, PART)
    order = [*range(parts.count), *range(parts.count)]
    random.shuffle(order)  # type: ignore[attr-defined]
    reassembly = Reassembly(parts.count)
    missing = set(range(parts.count))
    for index in order:
        if not missing:
            break
        assert (index in reassembly) == (index not in missing)
        assert reassembly.finish() is None
        reassembly.add(index, parts.part(index))
        missing.discard(index)
    assert reassembly.finish() == payload
    assert reassembly.size == len(payload)


def test_memory_is_what_arrived_and_not_what_was_claimed() -> None:
    reassembly = Reassembly(65_535)
    assert reassembly.held == 0
    reassembly.add(7, b"abc")
    reassembly.add(7, b"abc")
    assert reassembly.held == 3 + Reassembly.PART_COST


def test_a_plan_says_what_parts_cost() -> None:
    known = Reassembly(3)
    known.add(0, b"abc")
    plan = Plan(known, 3)
    assert plan.add(Fragment(0, 0, 3, b"abc"), 100) == 0
    assert plan.add(Fragment(0, 1, 3, b"de"), 100) == 2 + Reassembly.PART_COST
    assert plan.add(Fragment(0, 1, 3, b"de"), 100) == 0


@pytest.mark.parametrize("known", [None, Reassembly(3)])
def test_another_count_is_refused(known: Reassembly | None) -> None:
    plan = Plan(known, 3)
    plan.add(Fragment(0, 0, 3, b"a"), 100)
    with pytest.raises(RemoteError, match="3 parts now has 4"):
        plan.add(Fragment(0, 3, 4, b"a"), 100)


def test_more_bytes_or_parts_than_the_limit_are_refused() -> None:
    plan = Plan(None, 3)
    plan.add(Fragment(0, 0, 3, b"abc"), 5)
    plan.add(Fragment(0, 1, 3, b"de"), 5)
    with pytest.raises(RemoteError, match="limit of 5"):
        plan.add(Fragment(0, 2, 3, b"f"), 5)
    with pytest.raises(RemoteError, match="6 parts"):
        Plan(None, 6).add(Fragment(0, 0, 6, b"a"), 5)
