"""The lossless JSON form of messages in a recording.

Theory of operation. Foxglove and PlotJuggler draw the numbers in JSON objects, so values that JSON
can express keep their form: ``{"x": 0.5}`` is ``{"x": 0.5}``. Other values become an object with
certain keys:

| value | JSON |
|---|---|
| NumPy array | ``{"dtype": "<f8", "shape": [2], "data": [0.5, 1.0]}``, in C order |
| array that is long, complex, or has NaN or infinity | the same with ``base64`` for ``data`` |
| bytes | ``{"base64": "..."}`` |
| NaN, infinity | ``{"float": "nan"}`` |
| timestamp of msgpack | ``{"seconds": 1, "nanoseconds": 0}`` |
| other extension of msgpack | ``{"extension": 5, "base64": "..."}`` |
| map with a key that is not text, or with exactly the keys of a row | ``{"map": [[key, value]]}`` |

A message is always an object: a message that is not a map, or has only the key ``value``, is
``{"value": message}``.

Python writes the shortest digits that give the same float again, so numbers are restored exactly.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from json import JSONDecodeError, JSONEncoder, loads
from math import isfinite, prod
from typing import Any, Final

import msgpack
import numpy

from sphtp.errors import SphtpError

MOST_NUMBERS: Final = 1024
"""The largest array, in items, that is written as numbers: a viewer draws a line for each item."""

ARRAY: Final = frozenset({"dtype", "shape", "data"})
LONG_ARRAY: Final = frozenset({"dtype", "shape", "base64"})
BYTES: Final = frozenset({"base64"})
FLOAT: Final = frozenset({"float"})
TIMESTAMP: Final = frozenset({"seconds", "nanoseconds"})
EXTENSION: Final = frozenset({"extension", "base64"})
MAP: Final = frozenset({"map"})
RESERVED: Final = frozenset({ARRAY, LONG_ARRAY, BYTES, FLOAT, TIMESTAMP, EXTENSION, MAP})
"""The sets of keys that mark an object as the form of another value."""

WRAPPED: Final = {"value"}
"""The key of the object around a message that is not a map, or has this key only."""

_MOST_KEYS: Final = max(map(len, RESERVED))
_AS_IT_IS: Final = frozenset({str, int, bool, type(None)})
_DTYPE: Final = re.compile(r"[<>|][biufc][1-9][0-9]?")

_encode = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class RecordingError(SphtpError):
    """A recording or a part of it cannot be read; the text has the reason."""


MALFORMED: Final = (ValueError, TypeError, OverflowError, MemoryError, RecursionError)
"""The errors of ``from_json``."""


def encode_message(value: Any) -> bytes:
    """Return a message as JSON.

    Raises ``TypeError``, ``ValueError`` or ``RecursionError`` for a value that has no JSON form.
    """
    return _encode(message_tree(value)).encode()


def message_tree(value: Any) -> dict[str, Any]:
    """Return the JSON object of a message, as a dict of Python's JSON types."""
    tree = to_json(value)
    if type(value) is not dict or tree.keys() == WRAPPED:
        return {"value": tree}
    return dict(tree)


def decode_message(data: bytes) -> Any:
    """Return the message in a JSON text. Raises ``RecordingError`` if the text is malformed."""
    try:
        tree = loads(data)
    except (JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingError(f"a message that is no JSON: {error}") from None
    if not isinstance(tree, dict):
        raise RecordingError("a message that is no JSON object")
    try:
        return from_json(tree["value"] if tree.keys() == WRAPPED else tree)
    except MALFORMED as error:
        raise RecordingError(f"a message with a malformed value: {error}") from None


def to_json(value: Any) -> Any:
    """Return the JSON form of a value, as Python's JSON types; ``TypeError`` if it has none."""
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is float:
        return value if isfinite(value) else {"float": repr(value)}
    if kind is dict:
        if not all(type(key) is str for key in value):
            return _as_pairs(value)
        if len(value) <= _MOST_KEYS and frozenset(value) in RESERVED:
            return _as_pairs(value)
        return {key: it if type(it) in _AS_IT_IS else to_json(it) for key, it in value.items()}
    if kind is list or kind is tuple:
        return [to_json(it) for it in value]
    if kind is bytes:
        return {"base64": b64encode(value).decode()}
    if isinstance(value, numpy.ndarray):
        return _array(value)
    if isinstance(value, msgpack.ExtType):
        return {"extension": value.code, "base64": b64encode(value.data).decode()}
    if isinstance(value, msgpack.Timestamp):
        return {"seconds": value.seconds, "nanoseconds": value.nanoseconds}
    raise TypeError(f"a recording has no form for a {kind.__name__}")


def from_json(tree: Any) -> Any:
    """Return the value of a JSON form.

    Raises an error of ``MALFORMED`` for a form that is malformed or nested too deeply.
    """
    if isinstance(tree, list):
        return [from_json(it) for it in tree]
    if not isinstance(tree, dict):
        return tree
    keys = frozenset(tree) if len(tree) <= _MOST_KEYS else None
    if keys not in RESERVED:
        return {key: from_json(it) for key, it in tree.items()}
    if keys in (ARRAY, LONG_ARRAY):
        return _read_array(tree)
    if keys == BYTES:
        return b64decode(tree["base64"], validate=True)
    if keys == FLOAT:
        return float(tree["float"])
    if keys == TIMESTAMP:
        return msgpack.Timestamp(tree["seconds"], tree["nanoseconds"])
    if keys == EXTENSION:
        return msgpack.ExtType(tree["extension"], b64decode(tree["base64"], validate=True))
    return {_hashable(from_json(key)): from_json(it) for key, it in tree["map"]}


def schema_of(tree: Any) -> dict[str, Any]:
    """Return a JSON Schema for a channel, from the JSON form of its first message.

    Viewers list the fields by it before they read messages. It allows other fields.
    """
    match tree:
        case bool():
            return {"type": "boolean"}
        case int() | float():
            # Not "integer": another message may have a fraction there.
            return {"type": "number"}
        case str():
            return {"type": "string"}
        case dict():
            fields = {key: schema_of(it) for key, it in tree.items()}
            for key in fields.keys() & {"base64"}:
                fields[key] = {"type": "string", "contentEncoding": "base64"}
            return {"type": "object", "properties": fields}
        case list():
            return {"type": "array", "items": schema_of(tree[0]) if tree else {}}
        case _:
            return {}


def leaves(tree: Any, path: str = "") -> "list[tuple[str, Any]]":
    """Return the scalars of a JSON form with their paths: ``position.x``, ``forces[2]``.

    The items of an array have the paths ``x[0]`` or ``x[1,2]``. An array in base64 has one path,
    with its type and shape as the value.
    """
    if isinstance(tree, Mapping):
        if frozenset(tree) == ARRAY and isinstance(tree["data"], list):
            places = numpy.ndindex(*tree["shape"]) if tree["shape"] else ((),)
            names = (f"{path}[{','.join(map(str, at))}]" if at else path for at in places)
            return list(zip(names, tree["data"], strict=False))
        if frozenset(tree) == LONG_ARRAY:
            return [(path, f"{tree['dtype']} {tree['shape']}")]
        if frozenset(tree) == BYTES:
            return [(path, tree["base64"])]
        if frozenset(tree) == FLOAT:
            return [(path, float(tree["float"]))]
        dot = f"{path}." if path else ""
        return [leaf for key, it in tree.items() for leaf in leaves(it, f"{dot}{key}")]
    if isinstance(tree, list):
        return [leaf for at, it in enumerate(tree) for leaf in leaves(it, f"{path}[{at}]")]
    return [(path, tree)]


def fields_of(tree: Any) -> "list[tuple[str, Any]]":
    """Return the scalars of a message as ``leaves`` does, with ``value`` for an empty path."""
    return [
        (f"value{path}" if not path or path[0] == "[" else path, it) for path, it in leaves(tree)
    ]


def _as_pairs(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {"map": [[to_json(key), to_json(it)] for key, it in value.items()]}


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


def _array(array: "numpy.ndarray[Any, Any]") -> dict[str, Any]:
    head = {"dtype": array.dtype.str, "shape": list(array.shape)}
    kind = array.dtype.kind
    if (
        array.size > MOST_NUMBERS
        or kind == "c"
        or (kind == "f" and not numpy.isfinite(array).all())
    ):
        return {**head, "base64": b64encode(array.tobytes()).decode()}
    return {**head, "data": array.ravel().tolist()}


def _read_array(tree: Mapping[str, Any]) -> "numpy.ndarray[Any, Any]":
    name, shape = tree["dtype"], tree["shape"]
    if not isinstance(name, str) or not _DTYPE.fullmatch(name) or not isinstance(shape, list):
        raise ValueError(f"an array of {name!r}")
    dtype = numpy.dtype(name)
    if "data" in tree:
        items = numpy.array(tree["data"], dtype)
    else:
        items = numpy.frombuffer(b64decode(tree["base64"], validate=True), dtype)
    if items.ndim != 1 or items.size != prod(shape):
        raise ValueError(f"an array of shape {shape} with {items.size} items")
    return items.reshape(shape).copy()
