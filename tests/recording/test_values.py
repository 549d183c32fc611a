"""The JSON form of messages: all that a message may carry comes back as it was."""

import json
import math

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.packing import pack
from sphtp_client.recording.values import (
    RecordingError,
    decode_message,
    encode_message,
    leaves,
    message_tree,
    schema_of,
)
from tests.cases import each

TEXT = st.text(max_size=5) | st.sampled_from(
    ["value", "map", "base64", "dtype", "shape", "data", "float", "extension", "seconds"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    # Any NaN comes back as the usual one: its bits mean nothing.
    | st.floats(allow_nan=False)
    | st.just(math.nan)
    | TEXT
    | st.binary(max_size=8)
    | st.builds(msgpack.ExtType, st.integers(0, 77), st.binary(max_size=8))
    | st.builds(msgpack.Timestamp, st.integers(0, 2**33), st.integers(0, 10**9 - 1))
)
KEYS = TEXT | st.integers(0, 9) | st.binary(max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(VALUES)
def test_what_a_message_carries_comes_back_bit_by_bit(value):
    assert pack(decode_message(encode_message(value))) == pack(value)


@each("kind", ["?", "i1", "<i8", "u8", ">u2", "<f2", "<f4", ">f8", "<c16"])
def test_arrays_come_back_bit_by_bit(kind):
    for shape in ((), (0,), (3,), (2, 3), (40, 50)):
        array = np.asarray(np.arange(np.prod(shape)).reshape(shape) / 3, kind)
        back = decode_message(encode_message({"a": array}))["a"]
        assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, shape, array.tobytes())
        back[...] = 0


def test_an_array_with_nan_comes_back():
    array = np.array([1.0, np.nan, -np.inf])
    assert decode_message(encode_message(array)).tobytes() == array.tobytes()


@given(VALUES)
def test_each_message_is_an_object_in_strict_json(value):
    tree = json.loads(encode_message(value), parse_constant=lambda name: pytest.fail(name))
    assert isinstance(tree, dict)
    assert schema_of(tree)["type"] == "object"


def test_viewers_find_the_numbers_at_their_paths():
    tree = message_tree({"step": 3, "x": np.array([[0.5, 1.0]]), "p": {"q": [1, True]}})
    assert tree["x"]["data"] == [0.5, 1.0]
    assert leaves(tree) == [
        ("step", 3), ("x[0,0]", 0.5), ("x[0,1]", 1.0), ("p.q[0]", 1), ("p.q[1]", True),
    ]  # fmt: skip
    assert leaves(message_tree(2.5)) == [("value", 2.5)]
    assert schema_of(tree)["properties"]["step"] == {"type": "number"}


@each(
    "data",
    [
        b"",
        b"3",
        b"\xff",
        b"[1]",
        b'{"value":{"base64":"?"}}',
        b'{"map":[[1]]}',
        b'{"map":3}',
        b'{"dtype":"|O8","shape":[1],"base64":"AAAAAAAAAAA="}',
        b'{"dtype":"<f8","shape":[2],"data":[1]}',
        b'{"dtype":"<f8","shape":["a"],"data":[1]}',
        b'{"dtype":"<f8","shape":[-1],"data":[1]}',
        b'{"dtype":"<u1","shape":[1],"data":[300]}',
        b'{"extension":500,"base64":""}',
        b'{"seconds":"a","nanoseconds":0}',
        b'{"float":"x"}',
        b'{"map":[[{"map":[]},1]]}',
        b"[" * 100_000,
        b'{"value":' + b"[" * 900 + b"]" * 900 + b"}",
    ],
)
def test_a_malformed_message_is_an_error_of_the_recording(data):
    with pytest.raises(RecordingError):
        decode_message(data)
