"""msgpack, one value at a time and many."""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

import msgpack

LARGE: Final = 1024
"""Bytes of a message from which on copying it once more costs more than unpacking it alone."""

# One packer for all: making one costs ten times what packing a small message does.
pack: Final = msgpack.Packer(autoreset=True).pack

MALFORMED: Final = (ValueError, TypeError, msgpack.UnpackException)
"""What ``unpack`` raises: a key that cannot be hashed is a TypeError."""


_ARRAY: Final = Struct(">BI")
_ARRAY_32: Final = 0xDD


def unpack(payload: bytes) -> Any:
    """Return the value that these bytes stand for; raises ``MALFORMED`` where they do not."""
    return msgpack.unpackb(payload, strict_map_key=False)


def unpack_many(payloads: Sequence[bytes]) -> list[Any] | None:
    """Return the value of each; None where they had better be unpacked one by one.

    As one array, many small ones cost a tenth of what they cost one by one. Where they do not make
    up one, some are malformed, and those have to be found. A peer that lies may cut its values
    elsewhere than between payloads: that gives it nothing but as many other values, which it could
    have sent, and to look where each ends would double the price for all.
    """
    count = len(payloads)
    if count == 1 or sum(map(len, payloads)) > LARGE * count:
        return None
    try:
        values: list[Any] = unpack(b"".join((_ARRAY.pack(_ARRAY_32, count), *payloads)))
    except MALFORMED:
        return None
    return values
