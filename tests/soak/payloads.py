"""Messages that say which they are, so that whoever hears one can tell whether it is unchanged."""

import struct
from enum import Enum
from random import Random
from typing import NamedTuple


class Kind(Enum):
    """How a message is sent; the value is its first byte."""

    ORDERED = b"o"
    UNORDERED = b"n"
    UNRELIABLE = b"u"
    SEQUENCED = b"s"


class Stream(NamedTuple):
    """Messages that are numbered together."""

    kind: Kind
    lane: int


LABEL = struct.Struct("<cBI")
LEAST = LABEL.size
"""Bytes of the smallest message that says which it is."""

_FILLING = Random("what messages are filled with").randbytes(1 << 20)
_SHIFTS = 4093


def compose(stream: Stream, number: int, size: int) -> bytes:
    """Return the message of a number; neighbours differ in every part of theirs."""
    label = LABEL.pack(stream.kind.value, stream.lane, number)
    missing = size - LEAST
    start = number * 31 % _SHIFTS
    body = _FILLING[start : start + missing]
    while len(body) < missing:
        body += _FILLING[: missing - len(body)]
    return label + body


def identify(payload: bytes) -> tuple[Stream, int]:
    """Return which message this is; raises ``AssertionError`` if it is none, or changed."""
    assert len(payload) >= LEAST, f"nobody sends {payload!r}"
    kind, lane, number = LABEL.unpack_from(payload)
    stream = Stream(Kind(kind), lane)
    assert payload == compose(stream, number, len(payload)), f"{stream} {number} was changed"
    return stream, number
