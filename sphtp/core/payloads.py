"""Many payloads in one byte string, encoded and decoded with a few calls.

Their lengths come first, u16 each; they are left out if all are equal.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct
from typing import Final

from sphtp.errors import RemoteError

MOST_LAID_OUT: Final = 2048
"""The most payloads that one call cuts."""

LENGTH_OVERHEAD: Final = 2
"""Bytes that each payload costs if the lengths differ."""


def encode_lengths(lengths: Sequence[int]) -> bytes:
    """Return the encoded lengths of payloads, each below 2^16."""
    return struct.pack(f"<{len(lengths)}H", *lengths)


def cut_payloads(data: bytes, start: int, end: int, length: int) -> list[bytes]:
    """Cut payloads of one length, which is not 0; the last one may be shorter."""
    count, rest = divmod(end - start, length)
    if rest or count > MOST_LAID_OUT:
        return [data[cut : min(cut + length, end)] for cut in range(start, end, length)]
    return list(_layout(count, length).unpack_from(data, start))


@lru_cache(maxsize=64)
def _layout(count: int, length: int) -> Struct:
    """Return a struct that cuts ``count`` payloads in one call, 3 to 5 times as fast as slicing.

    The cache is bounded, and so is ``count``: a peer that varies them must not fill the memory.
    """
    return Struct(f"{length}s" * count)


def take_equal(data: bytes, start: int, count: int, length: int) -> tuple[list[bytes], int]:
    """Take ``count`` payloads of one length; return them, and the offset of their end.

    Raises ``RemoteError`` if there are fewer.
    """
    end = start + count * length
    _check(count, end, data)
    return cut_payloads(data, start, end, length) if length else [b""] * count, end


def take_varied(data: bytes, start: int, count: int) -> tuple[list[bytes], int]:
    """Take ``count`` lengths and payloads; return the payloads, and the offset of their end.

    Raises ``RemoteError`` or ``struct.error`` if there are fewer.
    """
    lengths = struct.unpack_from(f"<{count}H", data, start)
    ends = list(accumulate(lengths, initial=start + LENGTH_OVERHEAD * count))
    _check(count, ends[-1], data)
    return [data[a:b] for a, b in pairwise(ends)], ends[-1]


def _check(count: int, end: int, data: bytes) -> None:
    if not count:
        raise RemoteError("a frame of no messages")
    if end > len(data):
        raise RemoteError(f"messages end {end - len(data)} bytes after their packet")
