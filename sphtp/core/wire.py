"""Bounded little-endian reader and writer; all here raises ``WireError`` and nothing else."""

import struct
from collections.abc import Callable

from sphtp.errors import WireError

U8 = struct.Struct("<B")
U16 = struct.Struct("<H")
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")


def decode_text(data: bytes) -> str:
    """Read UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise WireError("text is not UTF-8") from error


class Reader:
    """Takes fields off the front of a buffer, and never reads past its end."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._position = 0

    @property
    def remaining(self) -> int:
        """Bytes not yet taken."""
        return len(self._data) - self._position

    def u8(self) -> int:
        """Take an unsigned 8-bit integer."""
        return self._number(U8)

    def u16(self) -> int:
        """Take an unsigned 16-bit integer."""
        return self._number(U16)

    def u32(self) -> int:
        """Take an unsigned 32-bit integer."""
        return self._number(U32)

    def u64(self) -> int:
        """Take an unsigned 64-bit integer."""
        return self._number(U64)

    def take(self, count: int) -> bytes:
        """Take exactly ``count`` bytes."""
        start = self._advance(count)
        return bytes(self._data[start : start + count])

    def rest(self) -> bytes:
        """Take all that is left."""
        return self.take(self.remaining)

    def finish(self) -> None:
        """Refuse trailing bytes."""
        if self.remaining:
            raise WireError(f"{self.remaining} bytes too many")

    def _number(self, field: struct.Struct) -> int:
        value: int = field.unpack_from(self._data, self._advance(field.size))[0]
        return value

    def _advance(self, count: int) -> int:
        start = self._position
        if not 0 <= count <= len(self._data) - start:
            raise WireError(f"{count} bytes wanted, {len(self._data) - start} left")
        self._position = start + count
        return start


class Writer:
    """Appends fields; each returns the writer, so that a record reads as one line."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def u8(self, value: int) -> "Writer":
        """Append an unsigned 8-bit integer."""
        return self._pack(U8, value)

    def u16(self, value: int) -> "Writer":
        """Append an unsigned 16-bit integer."""
        return self._pack(U16, value)

    def u32(self, value: int) -> "Writer":
        """Append an unsigned 32-bit integer."""
        return self._pack(U32, value)

    def u64(self, value: int) -> "Writer":
        """Append an unsigned 64-bit integer."""
        return self._pack(U64, value)

    def raw(self, data: bytes) -> "Writer":
        """Append bytes as they are."""
        self._buffer += data
        return self

    def prefixed(self, data: bytes, length: Callable[["Writer", int], "Writer"]) -> "Writer":
        """Append a length in the given field type, then the bytes."""
        return length(self, len(data)).raw(data)

    def finish(self) -> bytes:
        """Return everything written."""
        return bytes(self._buffer)

    def _pack(self, field: struct.Struct, value: int) -> "Writer":
        try:
            self._buffer += field.pack(value)
        except struct.error as error:
            raise WireError(f"{value} does not fit {field.size * 8} bits") from error
        return self
