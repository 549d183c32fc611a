"""msgpack within bounds; and of many values at a time all, or word that they go one by one."""

import gc
import time
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.packing import (
    DEFAULT,
    LARGE,
    MALFORMED,
    MAX_DEPTH,
    MAX_ELEMENTS,
    Packing,
    count_elements,
    pack,
    pack_parts,
    pack_unbounded,
    unpack,
    unpack_many,
    unpack_shared_untrusted,
)
from sphtp.errors import MessageTooLargeError, SettingsError
from tests.cases import each
from tests.profiles import brisk

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=10,
)


@brisk
@given(st.lists(VALUES, min_size=2, max_size=5))
def test_many_are_what_they_are_one_by_one(values: list[object]) -> None:
    payloads = [pack(value) for value in values]
    assert [unpack(payload) for payload in payloads] == values
    assert Packing().pack_many(value for value in values) == payloads
    if sum(map(len, payloads)) <= LARGE * len(payloads):
        assert unpack_many(payloads) == values


@each(
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


@pytest.mark.parametrize("last", [b"", bytes(LARGE), bytes(LARGE + 1), bytearray(3), 1])
def test_many_bytes_are_what_they_are_one_by_one(last: Any) -> None:
    for values in ([], [last], [b"", bytes(64), last]):
        assert Packing().pack_many(values) == [pack(value) for value in values]


@given(st.lists(st.binary(max_size=20)))
def test_random_bytes_raise_nothing_else(payloads: list[bytes]) -> None:
    values = unpack_many(payloads)
    assert values is None or len(values) == len(payloads)
    for payload in payloads:
        try:
            unpack(payload)
        except MALFORMED:
            continue


MIB = 1 << 20
TIMES = 85
"""Bytes of memory that a byte of a message becomes, at most."""

SECONDS = 0.1
"""What a MiB takes to decode, at most, on the machine of ``benchmarks.md``."""


def many(value: bytes, size: int = MIB) -> bytes:
    """Return a list of equal values, in about so many bytes."""
    number = size // len(value)
    return b"\xdd" + number.to_bytes(4, "big") + value * number


LEGAL = {
    "lists": b"\x90",
    "maps": b"\x80",
    "maps-of-one": b"\x81\x01\x01",
    "lists-of-one": b"\x91\x90",
    "integers": b"\xe0",
    "texts": b"\xa2ab",
    "extensions": b"\xd4\x05\x01",
    "empty-extensions": b"\xc7\x00\x05",
    "timestamps": b"\xd6\xff\x01\x02\x03\x04",
}

HOSTILE = {
    "headers-of-4-kB": b"\xdc\x0f\xff" * 1365,
    "headers-of-1-MiB": b"\xdd\x00\x0f\xff\xff" * (MIB // 5),
    "headers-of-maps": b"\xdf\x00\x07\xff\xff" * (MIB // 5),
    "too-many": many(b"\x90", MAX_ELEMENTS + 1),
    "too-many-in-parts": b"\x93" + many(b"\xe0", MAX_ELEMENTS // 3) * 3,
    "too-many-and-open": (b"\xdd\x00\x10\x00\x00" + b"\xe0" * 0xFFFFF) * 3 + b"\xc0",
    "too-deep": b"\x91" * MAX_DEPTH + b"\x90",
    "too-deep-in-maps": b"\x81\xa1x" * MAX_DEPTH + b"\x90",
    "too-deep-in-much": b"\x92" + pack("x" * 5000) + b"\x91" * (MAX_DEPTH - 1) + b"\x90",
}


@pytest.mark.parametrize("value", LEGAL.values(), ids=LEGAL)
def test_what_a_message_becomes_is_within_the_stated_bounds(value: bytes) -> None:
    payload = many(value, MIB // 32)
    peak, values = cost_of(payload)
    assert values is not None
    assert len(values) == MIB // 32 // len(value)
    assert peak < TIMES * len(payload)
    assert is_read_in_time(payload)


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE)
def test_what_is_out_of_bounds_is_refused_before_it_is_built(payload: bytes) -> None:
    peak, values = cost_of(payload)
    assert values is None
    assert peak < 2 * len(payload) + 100_000
    assert is_read_in_time(payload)
    assert unpack_many([payload, pack(1)]) is None


def cost_of(payload: bytes) -> tuple[int, Any]:
    """Return bytes of memory, and what it becomes, if anything."""
    tracemalloc.start()
    try:
        values = attempt(payload)
        return tracemalloc.get_traced_memory()[1], values
    finally:
        tracemalloc.stop()


def is_read_in_time(payload: bytes) -> bool:
    """Return whether reading takes the seconds of processor time that are stated.

    One of five tries is enough: those whose caches another process has used take longer.
    """
    gc.collect()
    for _ in range(5):
        started = time.process_time()
        attempt(payload)
        if time.process_time() - started < allowed(len(payload)):
            return True
    return False


def attempt(payload: bytes) -> Any:
    try:
        return unpack(payload)
    except MALFORMED:
        return None


def allowed(size: int) -> float:
    """Return twice the seconds stated, in a unit of this machine: it may be slower, or busy."""
    started = time.process_time()
    msgpack.unpackb(many(b"\xe0", MIB // 8))
    slowness = max(1.0, (time.process_time() - started) / 0.005)
    return 2 * SECONDS * slowness * (size / MIB + 0.02)


def test_lists_of_a_simulation_are_within_bounds() -> None:
    value = [{"place": [0.1, 0.2, 0.3], "name": "sphere"}] * 5000
    assert unpack(pack(value)) == value
    floats = many(pack(0.1), 4 * MIB)
    assert count_elements(floats, MAX_ELEMENTS) == 1 + 4 * MIB // 9


def test_what_the_peer_would_refuse_is_not_sent() -> None:
    small = Packing(max_elements=1000, max_depth=3)
    value: Any
    for value in ([0] * 999, [[[0]]], [{"x": [0] * 500}], "x" * 5000):
        assert small.unpack(small.pack(value)) == value
    for value in ([1.5] * 1000, [[0] * 333] * 3, dict.fromkeys(range(500), 0)):
        with pytest.raises(MessageTooLargeError, match="more values than max_elements, 1000"):
            small.pack(value)
        with pytest.raises(ValueError, match="more than 1000 values"):
            small.unpack(pack(value))
    for value in ([[[[0]]]], {1: {2: {3: {4: 5}}}}, ["x" * 3000, [[[]]]]):
        with pytest.raises(MessageTooLargeError, match="nested deeper than max_depth, 3"):
            small.pack(value)
        with pytest.raises(msgpack.StackError):
            small.unpack(pack(value))
    with pytest.raises(MessageTooLargeError, match="max_elements, 2097152"):
        pack([0] * MAX_ELEMENTS)


def test_a_limit_of_few_values_holds_for_short_messages() -> None:
    few = Packing(max_elements=10)
    assert few.unpack(few.pack([0] * 9)) == [0] * 9
    with pytest.raises(MessageTooLargeError, match="more values than max_elements, 10"):
        few.pack([0] * 10)
    with pytest.raises(ValueError, match="more than 10 values"):
        few.unpack(pack([0] * 10))


def test_what_msgpack_itself_refuses() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for inside in (None, bytearray(b"x")):
        with pytest.raises(TypeError, match="surrogate"):
            pack([inside, "\ud800"])
        with pytest.raises(MessageTooLargeError, match="recursion limit"):
            pack([inside, circle])
    assert unpack(pack([1])) == [1], "the packer is as it was"


def test_a_dict_with_tuples_as_keys_is_refused_where_it_is_packed() -> None:
    """What must hold: no receiver has to drop it."""
    by_place = {(x, y): x * y for x in range(3) for y in range(3)}
    packed = msgpack.packb(by_place)
    with pytest.raises(MALFORMED):
        unpack(packed)
    for encode in (pack, pack_parts, lambda value: DEFAULT.pack_many([b"", value])):
        with pytest.raises(TypeError, match="a tuple as a key"):
            encode(by_place)
        encode({})


def test_no_value_in_shared_memory() -> None:
    for start in (0, 8):
        with pytest.raises(MALFORMED):
            unpack_shared_untrusted(memoryview(bytes(8))[:start], start)


@pytest.mark.parametrize("depth", [1, 5, MAX_DEPTH])
def test_as_deep_as_allowed_and_one_more_alone_and_among_others(depth: int) -> None:
    packing = Packing(max_depth=depth)
    fine, deep = b"\x91" * (depth - 1) + b"\x90", b"\x91" * depth + b"\x90"
    assert pack_unbounded(packing.unpack(fine)) == fine
    assert packing.unpack_many([fine, fine]) is not None
    with pytest.raises(msgpack.StackError):
        packing.unpack(deep)
    assert packing.unpack_many([fine, deep]) is None


def test_times_with_equal_hashes_are_few_among_the_keys_of_a_map() -> None:
    value: Any
    few = {msgpack.Timestamp(1 << 40, n): n for n in range(8)}
    near = {msgpack.Timestamp(n, n): n for n in range(100)}
    for value in (few, near, {**near, **few}):
        assert unpack(pack(value)) == value
    far = {msgpack.Timestamp(1 << 40, n): n for n in range(9)}
    for value in (far, [near, far]):
        with pytest.raises(MessageTooLargeError, match="more than 8 keys that are far timestamps"):
            pack(value)
        with pytest.raises(ValueError, match="more than 8 keys"):
            unpack(pack_unbounded(value))


def test_a_pause_of_the_garbage_collector_ends_with_the_call() -> None:
    large = pack([[]] * 100_000)
    for enabled in (False, True):
        (gc.enable if enabled else gc.disable)()
        try:
            unpack(large)
            assert gc.isenabled() is enabled
            assert attempt(large + b"x") is None
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


@pytest.mark.parametrize("wrong", [{"max_elements": 0}, {"max_depth": 0}, {"max_depth": 129}])
def test_bounds_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Packing(**wrong)


def number_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(number_of(key) + number_of(one) for key, one in value.items())
    return 1 + sum(map(number_of, value)) if isinstance(value, list) else 1


MIXED = VALUES | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=300))


@brisk
@given(st.lists(MIXED | st.text(min_size=200, max_size=300)))
def test_values_are_counted_as_they_are(values: list[Any]) -> None:
    payload, number = pack_unbounded(values), number_of(values)
    assert count_elements(payload, number) == number
    assert count_elements(payload, number - 1) is None


@pytest.mark.parametrize("kind", [b"\xc4", b"\xc7", b"\xd9"])
@pytest.mark.parametrize("wider", [0, 1, 2])
def test_texts_are_counted_however_their_lengths_are_written(kind: bytes, wider: int) -> None:
    width = 1 << wider
    for size in (0, 1, 31, 32, 255, 256, 65_535, 65_536):
        if size >= 256**width:
            continue
        head = bytes([kind[0] + wider]) + size.to_bytes(width, "big")
        text = head + b"\x01" * (size + (kind == b"\xc7"))
        payload = b"\xdd" + (20_000).to_bytes(4, "big") + (b"\x90" * 9_999 + text) * 2
        assert count_elements(payload, 30_000) == 20_001, size
