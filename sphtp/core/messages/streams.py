"""The three streams of a ``serialize``: ``WriteStream``, ``ReadStream``, ``MeasureStream``."""

from typing import ClassVar

from sphtp.core.messages.stream import S, Stream
from sphtp.errors import SphtpError, WireError

# Whole bytes leave the number they are gathered in before it grows slow to shift.
_FLUSH = 1024


class WriteStream(Stream):
    """Packs values into bits, lowest bit first."""

    __slots__ = ("_buffer", "_count", "_gathered")

    def __init__(self, gathered: int = 0, count: int = 0) -> None:
        """Begin with ``count`` bits, as a number."""
        self._buffer = bytearray()
        self._gathered = gathered
        self._count = count

    @property
    def position(self) -> int:
        """Bits written."""
        return 8 * len(self._buffer) + self._count

    def finish(self) -> bytes:
        """Return everything written; the last byte is filled up with zeros."""
        rest = self._gathered.to_bytes((self._count + 7) >> 3, "little")
        return bytes(self._buffer) + rest if self._buffer else rest

    def _carry(self, number: int, width: int) -> int:
        self._gathered |= number << self._count
        self._count += width
        if self._count >= _FLUSH:
            self._flush()
        return number

    def _flush(self) -> None:
        size = self._count >> 3
        self._buffer += (self._gathered & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        self._gathered >>= 8 * size
        self._count &= 7


class ReadStream(Stream):
    """Takes values out of bits that somebody else may have made up."""

    __slots__ = ("_data", "_end", "_position")

    reading: ClassVar[bool] = True

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end = 8 * len(data)
        self._position = 0

    @property
    def position(self) -> int:
        """Bits taken."""
        return self._position

    def finish(self) -> None:
        """Refuse what ``WriteStream.finish`` would not have added: bytes, or bits other than 0.

        Raises:
            WireError: there are such.
        """
        left = self._end - self._position
        if left >= 8:
            raise WireError(f"{left >> 3} bytes too many")
        if self._carry(0, left):
            raise WireError("padding that is not zero")

    def _carry(self, number: int, width: int) -> int:
        start = self._position
        end = start + width
        if end > self._end:
            raise WireError(f"{width} bits wanted, {self._end - start} left")
        self._position = end
        taken = int.from_bytes(self._data[start >> 3 : (end + 7) >> 3], "little")
        return (taken >> (start & 7)) & ((1 << width) - 1)

    def _length(self, maximum: int) -> int:
        count = self.integer(0, 0, maximum)
        if count > self._end - self._position:
            raise WireError(f"{count} items in {self._end - self._position} bits")
        return count


class MeasureStream(Stream):
    """Counts the bits that ``WriteStream`` would write, and refuses what it would refuse."""

    __slots__ = ("_position",)

    def __init__(self) -> None:
        self._position = 0

    @property
    def position(self) -> int:
        """Bits measured."""
        return self._position

    def _carry(self, number: int, width: int) -> int:
        self._position += width
        return number


def read_all(kind: type[S], stream: ReadStream) -> S:
    """Create a message out of the rest of a stream, all of it.

    Raises:
        WireError: no message of this class writes these bits.
    """
    try:
        message = kind()
        message.serialize(stream)
    except SphtpError:
        raise
    except Exception as error:
        # Its serialize is the user's, and may refuse a value with any error it likes.
        raise WireError(f"{kind.__name__} refuses it: {error}") from error
    stream.finish()
    return message
