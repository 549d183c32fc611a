"""Shapes of single values."""

from enum import Enum
from typing import Any

from sphtp.core.messages.bounds import Bits, Compressed, Float32, Limit, Range
from sphtp.core.messages.describing import describe_bits, enum_text
from sphtp.core.messages.shapes import Shape, check_limit, limited, needed, only
from sphtp.core.messages.stream import (
    Serializable,
    Stream,
    float_of,
    integer_of,
    members_of,
    place_of,
    utf8,
)
from sphtp.core.messages.streams import ReadStream, WriteStream, read_all
from sphtp.errors import SettingsError, WireError


class Integer(Shape):
    """An integer of 64 bits or, where bits are counted, within a range."""

    accepts = (Range, Bits)

    def __init__(self, bound: Any) -> None:
        self._range: Range | None = bound.range if isinstance(bound, Bits) else bound
        self.exact = None if self._range else int

    @property
    def text(self) -> str:
        """See ``Shape``."""
        return str(self._range or "integer")

    def pack(self, value: Any) -> int:
        """See ``Shape``."""
        return self._checked(integer_of(value))

    def unpack(self, plain: Any) -> int:
        """See ``Shape``."""
        return self._checked(only(int, plain))

    def serialize(self, stream: Stream, value: Any) -> int:
        """See ``Shape``."""
        if self._range is None:
            raise SettingsError("an integer in bits wants Range or Bits beside it")
        return stream.integer(value, self._range.low, self._range.high)

    def _checked(self, number: int) -> int:
        bound = self._range
        if bound and not bound.low <= number <= bound.high:
            raise WireError(f"{number} is outside {bound.low}..{bound.high}")
        return number


class Float(Shape):
    """A float; msgpack carries it whole, whatever the bound leaves of it in bits."""

    accepts = (Float32, Compressed)

    def __init__(self, bound: Any) -> None:
        self._bound: Float32 | Compressed | None = bound
        self._compressed = bound if isinstance(bound, Compressed) else None
        self.exact = None if self._compressed else float

    @property
    def text(self) -> str:
        """See ``Shape``."""
        return str(self._bound or "float")

    def pack(self, value: Any) -> float:
        """See ``Shape``."""
        return self._checked(float_of(value))

    def unpack(self, plain: Any) -> float:
        """See ``Shape``."""
        return self._checked(only(float, plain))

    def serialize(self, stream: Stream, value: Any) -> float:
        """See ``Shape``."""
        if (bound := self._compressed) is not None:
            return stream.compressed(value, bound.low, bound.high, bound.resolution)
        return stream.float32(value) if self._bound else stream.float64(value)

    def _checked(self, number: float) -> float:
        if self._compressed is not None:
            self._compressed.check(number)
        return number


class Boolean(Shape):
    """True or false."""

    exact = bool

    def __init__(self, bound: Any) -> None:
        pass

    @property
    def text(self) -> str:
        """See ``Shape``."""
        return "boolean"

    def pack(self, value: Any) -> bool:
        """See ``Shape``."""
        return only(bool, value)

    def unpack(self, plain: Any) -> bool:
        """See ``Shape``."""
        return only(bool, plain)

    def serialize(self, stream: Stream, value: Any) -> bool:
        """See ``Shape``."""
        return stream.boolean(value)


class Text(Shape):
    """Text; a limit counts bytes of UTF-8."""

    accepts = (Limit,)

    def __init__(self, bound: Any) -> None:
        self._limit: Limit | None = bound
        self.exact = None if bound else str

    @property
    def text(self) -> str:
        """See ``Shape``."""
        return limited("text", self._limit)

    def pack(self, value: Any) -> str:
        """See ``Shape``."""
        check_limit(self._limit, utf8(value))
        return str(value)

    def unpack(self, plain: Any) -> str:
        """See ``Shape``."""
        check_limit(self._limit, utf8(plain))
        return only(str, plain)

    def serialize(self, stream: Stream, value: Any) -> str:
        """See ``Shape``."""
        return stream.text(value, needed(self._limit, "text"))


class Data(Shape):
    """Bytes."""

    accepts = (Limit,)

    def __init__(self, bound: Any) -> None:
        self._limit: Limit | None = bound
        self.exact = None if bound else bytes

    @property
    def text(self) -> str:
        """See ``Shape``."""
        return limited("bytes", self._limit)

    def pack(self, value: Any) -> bytes:
        """See ``Shape``."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise WireError(f"bytes wanted, {type(value).__name__} given")
        return self.unpack(bytes(value))

    def unpack(self, plain: Any) -> bytes:
        """See ``Shape``."""
        check_limit(self._limit, data := only(bytes, plain))
        return data

    def serialize(self, stream: Stream, value: Any) -> bytes:
        """See ``Shape``."""
        return stream.data(value, needed(self._limit, "bytes"))


class Anything(Shape):
    """Whatever msgpack carries."""

    def __init__(self, bound: Any) -> None:
        pass

    @property
    def text(self) -> str:
        """See ``Shape``."""
        return "anything"

    def pack(self, value: Any) -> Any:
        """See ``Shape``."""
        return value

    def unpack(self, plain: Any) -> Any:
        """See ``Shape``."""
        return plain


class Choice(Shape):
    """A member of an enumeration, carried as its position."""

    def __init__(self, kind: type[Enum]) -> None:
        self._kind = kind
        self._members: tuple[Enum, ...] = members_of(kind)

    @property
    def text(self) -> str:
        """See ``Shape``."""
        return enum_text(self._members)

    def pack(self, value: Any) -> int:
        """See ``Shape``."""
        return place_of(value, self._kind)

    def unpack(self, plain: Any) -> Enum:
        """See ``Shape``."""
        place = only(int, plain)
        if not 0 <= place < len(self._members):
            raise WireError(f"{self._kind.__name__} has no member {place}")
        return self._members[place]

    def serialize(self, stream: Stream, value: Any) -> Any:
        """See ``Shape``."""
        return stream.enum(value, self._kind)


class Nested(Shape):
    """A message with a ``serialize`` of its own; msgpack carries it as bytes."""

    def __init__(self, kind: type[Serializable]) -> None:
        self._kind = kind

    @property
    def text(self) -> str:
        """See ``Shape``."""
        return describe_bits(self._kind)

    def pack(self, value: Any) -> bytes:
        """See ``Shape``."""
        stream = WriteStream()
        stream.message(value, self._kind)
        return stream.finish()

    def unpack(self, plain: Any) -> Any:
        """See ``Shape``."""
        return read_all(self._kind, ReadStream(only(bytes, plain)))

    def serialize(self, stream: Stream, value: Any) -> Any:
        """See ``Shape``."""
        return stream.message(value, self._kind)
