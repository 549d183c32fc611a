"""Bounded reading and writing of bytes: single fields, and many payloads in a row.

A ``Reader`` takes little-endian fields off the front of a buffer, and never reads past its end. If
too few bytes are left for a field, it takes none. After the last field the caller calls ``finish``,
which refuses trailing bytes. ``Reader`` and ``Writer`` raise only ``WireError``. The methods for
integers are written out for each width, with one call of a compiled ``struct`` each, because
control messages consist mostly of integers.

Many payloads in one byte string are encoded and decoded with a few calls. Either their lengths come
before them, u16 each, or all have one length, which the caller knows.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any, Final, TypeVar

from sphtp.errors import RemoteError, WireError, untrusted

M = TypeVar("M")

U8 = struct.Struct("<B")
U16 = struct.Struct("<H")
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")

_read_u8, _read_u16, _read_u32, _read_u64 = (it.unpack_from for it in (U8, U16, U32, U64))
_pack_u8, _pack_u16, _pack_u32, _pack_u64 = (it.pack for it in (U8, U16, U32, U64))


def decode_text(data: bytes) -> str:
    """Decode UTF-8. Raises ``WireError`` if the bytes are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise WireError("text is not UTF-8") from error


class Reader:
    """A reader of fields from the front of a buffer. Methods raise ``WireError`` at its end."""

    __slots__ = ("_data", "_end", "_position")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._end = len(data)
        self._position = 0

    @property
    def remaining(self) -> int:
        """The number of bytes not taken yet."""
        return self._end - self._position

    def u8(self) -> int:
        """Take an unsigned 8-bit integer."""
        try:
            value: int = _read_u8(self._data, self._position)[0]
        except struct.error:
            raise self._too_short(1) from None
        self._position += 1
        return value

    def u16(self) -> int:
        """Take an unsigned 16-bit integer."""
        try:
            value: int = _read_u16(self._data, self._position)[0]
        except struct.error:
            raise self._too_short(2) from None
        self._position += 2
        return value

    def u32(self) -> int:
        """Take an unsigned 32-bit integer."""
        try:
            value: int = _read_u32(self._data, self._position)[0]
        except struct.error:
            raise self._too_short(4) from None
        self._position += 4
        return value

    def u64(self) -> int:
        """Take an unsigned 64-bit integer."""
        try:
            value: int = _read_u64(self._data, self._position)[0]
        except struct.error:
            raise self._too_short(8) from None
        self._position += 8
        return value

    def take(self, count: int) -> bytes:
        """Take exactly ``count`` bytes."""
        start = self._position
        if not 0 <= count <= self._end - start:
            raise self._too_short(count)
        self._position = end = start + count
        return bytes(self._data[start:end])

    def rest(self) -> bytes:
        """Take all remaining bytes."""
        return self.take(self._end - self._position)

    def finish(self) -> None:
        """Raise ``WireError`` if bytes are left."""
        if self._position != self._end:
            raise WireError(f"{self.remaining} bytes too many")

    def _too_short(self, wanted: int) -> WireError:
        return WireError(f"{wanted} bytes wanted, {self.remaining} left")


class Writer:
    """A buffer to which fields are appended. Its methods return the writer, for chained calls.

    They raise ``WireError`` for an integer that does not fit its field.
    """

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def u8(self, value: int) -> "Writer":
        """Append an unsigned 8-bit integer."""
        try:
            self._buffer += _pack_u8(value)
        except struct.error as error:
            raise _too_large(value, 8) from error
        return self

    def u16(self, value: int) -> "Writer":
        """Append an unsigned 16-bit integer."""
        try:
            self._buffer += _pack_u16(value)
        except struct.error as error:
            raise _too_large(value, 16) from error
        return self

    def u32(self, value: int) -> "Writer":
        """Append an unsigned 32-bit integer."""
        try:
            self._buffer += _pack_u32(value)
        except struct.error as error:
            raise _too_large(value, 32) from error
        return self

    def u64(self, value: int) -> "Writer":
        """Append an unsigned 64-bit integer."""
        try:
            self._buffer += _pack_u64(value)
        except struct.error as error:
            raise _too_large(value, 64) from error
        return self

    def raw(self, data: bytes) -> "Writer":
        """Append bytes as they are."""
        self._buffer += data
        return self

    def prefixed(self, data: bytes, length: Callable[["Writer", int], "Writer"]) -> "Writer":
        """Append the length of ``data``, by the writer's method ``length``, and then ``data``."""
        return length(self, len(data)).raw(data)

    def finish(self) -> bytes:
        """Return all bytes written."""
        return bytes(self._buffer)


def _too_large(value: int, bits: int) -> WireError:
    return WireError(f"{value} does not fit {bits} bits")


MOST_LAID_OUT: Final = 2048
"""The most payloads that one call of a compiled ``struct`` cuts."""

LENGTH_OVERHEAD: Final = 2
"""Bytes that each payload costs if the lengths differ."""


def encode_by_kind(
    message: Any, encoders: Mapping[type, tuple[int, Callable[..., object]]]
) -> bytes:
    """Return the bytes of a message: the kind of its type as one byte, and then its fields.

    Raises ``WireError`` if a field does not fit.
    """
    kind, encode = encoders[type(message)]
    writer = Writer().u8(kind)
    encode(writer, message)
    return writer.finish()


@untrusted
def decode_by_kind_untrusted(
    data: bytes, decoders: Mapping[int, Callable[[Reader], M]], subject: str
) -> M:
    """Decode a message whose first byte is its kind, by the decoder of that kind.

    ``subject`` names the kind of messages in the error. Raises ``RemoteError`` for an unknown kind
    and for a malformed message.
    """
    reader = Reader(data)
    kind = reader.u8()
    if kind not in decoders:
        raise RemoteError(f"{kind} is no kind of message of {subject}")
    message = decoders[kind](reader)
    reader.finish()
    return message


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

    The cache and ``count`` are bounded, so that a peer that varies ``count`` and ``length`` cannot
    fill the memory.
    """
    return Struct(f"{length}s" * count)


def take_equal(data: bytes, start: int, count: int, length: int) -> tuple[list[bytes], int]:
    """Take ``count`` payloads of one length; return them, and the offset of their end.

    Raises ``RemoteError`` if ``count`` is 0 or ``data`` is too short.
    """
    end = start + count * length
    _check(count, end, data)
    return cut_payloads(data, start, end, length) if length else [b""] * count, end


def take_varied(data: bytes, start: int, count: int) -> tuple[list[bytes], int]:
    """Read ``count`` lengths and payloads; return the payloads, and the offset of their end.

    Raises ``RemoteError`` if ``count`` is 0, and ``RemoteError`` or ``struct.error`` if ``data`` is
    too short.
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
