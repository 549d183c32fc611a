"""Arrays as payloads: what arrives is what was sent, and what is no array is nothing else."""

import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.arrays import EXTENSION, MAX_DIMENSIONS
from sphtp.core.packing import (
    LARGE,
    LEAF,
    MALFORMED,
    MAX_ARRAYS,
    Packing,
    pack,
    unpack,
    unpack_many,
)
from sphtp.errors import MessageTooLargeError, RemoteError
from tests.cases import each
from tests.profiles import brisk

TYPES = [
    *("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8"),
    *("<f2", "<f4", "<f8", "<c8", "<c16", ">i2", ">u8", ">f4", ">f8", ">c16"),
]
SHAPES = [(), (1,), (7,), (0,), (3, 4), (2, 0, 5), (1,) * MAX_DIMENSIONS, (LARGE,), (5, LEAF)]


def assert_same(received: Any, sent: Any) -> None:
    """Compare what arrays have, and lists and dicts of them; an array received is one's own."""
    assert type(received) is type(sent)
    if isinstance(sent, np.ndarray):
        assert (received.dtype.str, received.shape) == (sent.dtype.str, sent.shape)
        assert received.tobytes() == sent.tobytes()
        assert received.flags.writeable
        assert received.flags.owndata
        assert received.flags.c_contiguous
    elif isinstance(sent, dict):
        assert list(received) == list(sent)
        for key, value in sent.items():
            assert_same(received[key], value)
    elif isinstance(sent, list):
        assert len(received) == len(sent)
        for here, there in zip(received, sent, strict=True):
            assert_same(here, there)
    else:
        assert received == sent


def array_of(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return an array whose items differ, in all of their bytes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    data = np.arange(size, dtype="u4") * 2654435761 >> 13
    if dtype == "|b1":
        data &= 1
    return data.astype("u1").view(dtype).reshape(shape)


@each("dtype", TYPES)
def test_an_array_of_any_shape_arrives_as_it_was(dtype: str) -> None:
    for shape in SHAPES:
        sent = array_of(dtype, shape)
        assert_same(unpack(pack(sent)), sent)


LEAVES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**64 - 1),
    st.binary(max_size=9),
    st.sampled_from([b"x" * LEAF, "ä" * LEAF, "text", b"y" * (LARGE + 1)]),
    st.builds(array_of, st.sampled_from(TYPES), st.sampled_from(SHAPES)),
    st.builds(lambda size: msgpack.ExtType(5, b"e" * size), st.sampled_from([1, 300, 2 * LEAF])),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@brisk
@given(st.lists(VALUES, min_size=1, max_size=3))
def test_arrays_and_large_leaves_arrive_wherever_they_stand(values: list[Any]) -> None:
    payloads = [pack(value) for value in values]
    for payload, value in zip(payloads, values, strict=True):
        assert_same(unpack(payload), value)
    together = unpack_many(payloads)
    if together is not None:
        assert_same(together, values)


@pytest.mark.parametrize("number", [0, 1, 20, 5000])
def test_a_leaf_is_found_or_left_among_many_values(number: int) -> None:
    few = [
        None,
        True,
        7,
        -7,
        2**40,
        -(2**40),
        0.5,
        "ab",
        "c" * 100,
        b"d" * 300,
        [],
        {},
        [1],
        {2: 3},
    ]
    sizes = [msgpack.ExtType(5, b"e" * size) for size in (1, 2, 3, 4, 8, 16, 300)]
    value = [*(few * number), {"x": np.arange(2 * LEAF), "y": sizes}, *few, b"z" * LEAF, *sizes]
    assert_same(unpack(pack(value)), value)


@each("size", [0, 5, LARGE, 3 * LEAF, 70_000])
def test_every_buffer_arrives_as_bytes(size: int) -> None:
    sent = bytes(range(256)) * (size // 256 + 1)
    sent = sent[:size]
    for buffer in (sent, bytearray(sent), memoryview(sent), memoryview(bytearray(sent))):
        assert pack(buffer) == msgpack.packb(sent)
        assert_same(unpack(pack({"x": [buffer]})), {"x": [sent]})
    numbers = memoryview(np.arange(size).data)
    assert unpack(pack(numbers)) == unpack(pack([numbers]))[0] == numbers.tobytes()


def test_what_is_no_buffer_of_msgpack_is_a_buffer_nonetheless() -> None:
    import array

    numbers = array.array("d", [1.5, 2.5])
    assert unpack(pack({"x": numbers})) == {"x": numbers.tobytes()}


def peak_of(work: Callable[[], Any]) -> int:
    """Return the bytes that a call takes at most, with what it returns."""
    work()
    tracemalloc.start()
    try:
        result = work()
        return tracemalloc.get_traced_memory()[1] if result is not None else 0
    finally:
        tracemalloc.stop()


LARGE_ARRAY = np.arange(50_000.0)


@each(
    "value",
    [
        LARGE_ARRAY,
        {"step": 1, "x": LARGE_ARRAY},
        memoryview(LARGE_ARRAY.data),
        bytearray(LARGE_ARRAY.tobytes()),
        LARGE_ARRAY.tobytes(),
    ],
)
def test_a_large_leaf_is_copied_once_each_way(value: Any) -> None:
    payload = pack(value)
    assert LARGE_ARRAY.nbytes < peak_of(lambda: pack(value)) < 1.1 * LARGE_ARRAY.nbytes
    assert LARGE_ARRAY.nbytes < peak_of(lambda: unpack(payload)) < 1.1 * LARGE_ARRAY.nbytes


def test_what_is_sent_may_be_changed_at_once() -> None:
    sent = np.ones(LEAF)
    alone, inside = pack(sent), pack([sent])
    sent[:] = 2
    assert unpack(alone).sum() == unpack(inside)[0].sum() == LEAF


def test_what_does_not_lie_in_order_is_put_in_order() -> None:
    square = np.arange(12.0).reshape(3, 4)
    for sent in (square.T, square[::2], square[:, 1], square[::-1]):
        received = unpack(pack(sent))
        assert received.tolist() == sent.tolist()
        assert received.flags.c_contiguous


def test_numbers_of_numpy_are_numbers() -> None:
    sent = {"a": np.float32(1.5), "b": np.int64(-7), "c": np.uint8(3), "d": np.bool_(True)}
    assert_same(unpack(pack(sent)), {"a": 1.5, "b": -7, "c": 3, "d": True})
    assert unpack(pack(np.int16(4))) == 4


@each(
    ("value", "why"),
    [
        (np.array([None]), "items of type object"),
        (np.array(["text"]), "items of type <U4"),
        (np.zeros(2, "M8[s]"), "items of type datetime64"),
        (np.zeros(2, [("x", "<i4")]), "items of type"),
        (np.ones(2, np.longdouble), "items of type"),
        (np.ma.masked_array([1, 2], [True, False]), "a MaskedArray is more than an array"),
        (np.complex128(1j), "numpy.complex128"),
        (np.datetime64("2020-01-01"), "numpy.datetime64"),
        (memoryview(b"abcd")[::2], "contiguous"),
        ({1, 2}, "set"),
    ],
)
def test_what_cannot_be_carried_is_refused_by_name(value: Any, why: str) -> None:
    for one in (value, [value], {"x": value}):
        with pytest.raises(TypeError, match=why):
            pack(one)
    assert unpack(pack([1])) == [1]


def test_too_long_and_too_many_are_refused_on_both_sides() -> None:
    with pytest.raises(OverflowError, match="33 dimensions"):
        pack(np.zeros((1,) * 33))
    with pytest.raises(OverflowError, match="a dimension of 4294967296"):
        pack(np.zeros((0, 2**32)))
    few = [np.zeros(1, "u1")] * MAX_ARRAYS
    assert len(unpack(pack(few))) == MAX_ARRAYS
    with pytest.raises(MessageTooLargeError, match=f"more than {MAX_ARRAYS} arrays"):
        pack([*few, few[0]])
    one = pack(few[0])
    with pytest.raises(ValueError, match=f"more than {MAX_ARRAYS} arrays"):
        unpack(b"\xdc" + (MAX_ARRAYS + 1).to_bytes(2, "big") + one * (MAX_ARRAYS + 1))


def test_an_array_is_one_value_of_those_that_are_counted() -> None:
    small = Packing(max_elements=10, max_depth=2)
    value = [np.zeros(1000)] * 9
    assert len(small.unpack(small.pack(value))) == 9
    with pytest.raises(MessageTooLargeError, match="max_elements"):
        small.pack([[0] * 200, np.zeros(3)])
    with pytest.raises(MessageTooLargeError, match="max_depth"):
        small.pack([[[b"x" * 200, np.zeros(3)]]])


# --- what a peer may send -------------------------------------------------------------------------


def extension(data: bytes, width: int = 4) -> bytes:
    """Return an array's extension around any bytes."""
    first = {1: 0xC7, 2: 0xC8, 4: 0xC9}[width]
    return bytes([first]) + len(data).to_bytes(width, "big") + bytes([EXTENSION]) + data


GOOD = b"<f\x08\x02" + b"\2\0\0\0" + b"\3\0\0\0" + bytes(range(48))
HOSTILE = {
    "nothing": b"",
    "no-head": b"<f\x08",
    "one-byte-less": GOOD[:-1],
    "one-byte-more": GOOD + b"\0",
    "no-items": GOOD[:12],
    "cut-in-its-shape": GOOD[:11],
    "unknown-order": b"=" + GOOD[1:],
    "order-of-one-byte": b"|" + GOOD[1:],
    "objects": b"|O\x08" + GOOD[3:],
    "unknown-width": b"<f\x03" + GOOD[3:],
    "no-width": b"<f\x00" + GOOD[3:],
    "records": b"|V\x08" + GOOD[3:],
    "33-dimensions": b"<f\x08\x21" + b"\1\0\0\0" * 33 + bytes(8),
    "255-dimensions": b"<f\x08\xff" + GOOD[4:],
    "2^32-items": b"<f\x08\x01" + b"\xff\xff\xff\xff" + bytes(48),
    "negative": b"<f\x08\x02" + b"\xff\xff\xff\xff" + b"\xfa\xff\xff\xff" + bytes(48),
    "2^1024-items": b"<f\x08\x20" + b"\xff\xff\xff\xff" * 32 + bytes(48),
    "product-of-2^64": b"<f\x08\x02" + b"\0\0\0\x80" * 2 + bytes(48),
    "nothing-in-much": b"<f\x08\x20" + b"\xff\xff\xff\xff" * 31 + b"\0\0\0\0",
    "place-of-a-leaf": b"\0\0\0\0",
}


@each("data", HOSTILE.values())
def test_what_is_no_array_is_malformed(data: bytes) -> None:
    beside = [pack(b"x" * size) for size in (0, 200, 3 * LEAF)]
    for payload in (
        extension(data),
        extension(data, 1),
        *(b"\x92" + extension(data, 2) + large for large in beside),
        *(b"\x92" + large + extension(data) for large in beside),
        *(b"\x81" + extension(GOOD) + large for large in beside),
    ):
        with pytest.raises(MALFORMED):
            unpack(payload)
    assert unpack_many([extension(data), pack(1)]) is None


def test_every_array_cut_anywhere_and_every_byte_changed() -> None:
    assert unpack(extension(GOOD)).shape == (2, 3)
    for value in (extension(GOOD), b"\x92" + extension(GOOD) + pack(b"x" * 3 * LEAF)):
        head = len(value) if len(value) < 100 else 70
        for size in range(head):
            with pytest.raises(MALFORMED):
                unpack(value[:size])
        with pytest.raises(MALFORMED):
            unpack(value + b"\0")
        for place in range(head):
            for byte in (0, 1, 0x7F, 0x80, 0xC9, 0xFF, value[place] ^ 1):
                changed = value[:place] + bytes([byte]) + value[place + 1 :]
                try:
                    unpack(changed)
                except MALFORMED:
                    continue


@given(st.binary(max_size=80), st.sampled_from([b"", b"<f\x08", b"|u\x01\x01", GOOD[:12]]))
def test_random_bytes_are_an_array_or_malformed(data: bytes, start: bytes) -> None:
    try:
        received = unpack(extension(start + data))
    except MALFORMED:
        return
    assert received.nbytes <= len(start + data)
    # What is one has one form only.
    assert pack(received) == extension(start + data, 1)


def test_a_leaf_is_taken_out_of_its_own_place_only() -> None:
    """Who writes such a place himself spoils his own message."""
    large, place = pack(b"x" * 3 * LEAF), b"\xd6" + bytes([EXTENSION]) + bytes(4)
    for payload in (
        b"\x92" + place + large,
        b"\x92" + large + place,
        b"\x93" + large + place + large,
    ):
        with pytest.raises(RemoteError):
            unpack(payload)


WITHOUT = """
import sys
from sphtp.core.packing import LARGE, pack, unpack
from sphtp.errors import RemoteError
array, nested = (bytes.fromhex(each) for each in sys.argv[1:])
sys.modules["numpy"] = None
for payload in (array, nested):
    try:
        raise AssertionError(unpack(payload))
    except RemoteError as error:
        assert "NumPy is not installed" in str(error), error
value = {"x": [0.0] * 3, "y": b"z" * LARGE}
assert unpack(pack(value)) == value
try:
    raise AssertionError(pack({1, 2}))
except TypeError as error:
    assert "set" in str(error), error
del sys.modules["numpy"]
unpack(pack([1, b"x" * 9999, bytearray(9999)]))
assert "numpy" not in sys.modules
assert unpack(array).tolist() == [1.5, 2.5]
assert "numpy" in sys.modules
"""


def test_without_numpy_an_array_is_malformed_and_it_is_loaded_when_one_comes() -> None:
    payloads = [pack(np.array([1.5, 2.5])).hex(), pack({"x": np.zeros(3)}).hex()]
    subprocess.run([sys.executable, "-c", WITHOUT, *payloads], check=True, timeout=120)


def test_threads_do_not_mix_their_messages() -> None:
    wrong = list[int]()

    def work(number: int) -> None:
        value = [np.full(50, number), [number] * 50, {"x": np.full(3, number)}]
        for _ in range(200):
            received = unpack(pack(value))
            if received[1] != value[1] or set(received[0]) | set(received[2]["x"]) != {number}:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
