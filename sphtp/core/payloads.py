"""Many payloads in one run of bytes, put together and taken apart by a few calls.

Their lengths stand together in front of them, u16 each, or are not said where all are equal.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from sphtp.errors import RemoteError

LENGTH_OVERHEAD: Final = 2
"""Bytes that a payload costs where lengths differ."""


def encode_lengths(lengths: Sequence[int]) -> bytes:
    """Return what stands in front of payloads of these lengths, each below 2^16."""
    return struct.pack(f"<{len(lengths)}H", *lengths)


def cut_payloads(data: bytes, start: int, end: int, length: int) -> list[bytes]:
    """Cut payloads of one length, which is not 0."""
    return [data[cut : cut + length] for cut in range(start, end, length)]


def take_equal(data: bytes, start: int, count: int, length: int) -> tuple[list[bytes], int]:
    """Take ``count`` payloads of one length; return them, and where they end.

    Raises ``RemoteError`` when there are not as many.
    """
    end = start + count * length
    _check(count, end, data)
    return cut_payloads(data, start, end, length) if length else [b""] * count, end


def take_varied(data: bytes, start: int, count: int) -> tuple[list[bytes], int]:
    """Take ``count`` lengths, then as many payloads; return these, and where they end.

    Raises ``RemoteError`` or ``struct.error`` when there are not as many.
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
