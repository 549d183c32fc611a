"""msgpack for many values at a time: all of them, or word that they go one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.packing import LARGE, MALFORMED, pack, unpack, unpack_many

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=10,
)


@given(st.lists(VALUES, min_size=2, max_size=5))
def test_many_are_what_they_are_one_by_one(values: list[object]) -> None:
    payloads = [pack(value) for value in values]
    assert [unpack(payload) for payload in payloads] == values
    if sum(map(len, payloads)) <= LARGE * len(payloads):
        assert unpack_many(payloads) == values


@pytest.mark.parametrize(
    "payloads",
    [
        [pack(1)],
        [pack(b"x" * LARGE), pack(b"x" * LARGE)],
        [pack(1), b""],
        [pack(1), b"\xc1"],
        [pack(1) + pack(2), pack(3)],
        [pack(1), pack("text")[:-1]],
        [pack(1), b"\x81\x90\x01"],
    ],
)
def test_one_large_ones_and_malformed_ones_go_one_by_one(payloads: list[bytes]) -> None:
    assert unpack_many(payloads) is None


@given(st.lists(st.binary(max_size=20)))
def test_random_bytes_raise_nothing_else(payloads: list[bytes]) -> None:
    values = unpack_many(payloads)
    assert values is None or len(values) == len(payloads)
    for payload in payloads:
        try:
            unpack(payload)
        except MALFORMED:
            continue
