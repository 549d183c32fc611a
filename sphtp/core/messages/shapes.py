"""Shapes: for each kind of annotation, the msgpack form, the bits and the description of values.

``annotations`` turns a message's class into shapes once; then the shapes pack, unpack and serialize
each value. ``pack`` and ``unpack`` check every value, except of AnyShape: a program may pass a
wrong one, and a peer may have forged one. If the values of one type are their own msgpack form,
``exact`` names it, and whole lists and records of it pass unchanged.

The shapes: Integer, Float, Boolean, Text, Bytes, EnumShape (an enumeration), AnyShape (any value
that msgpack can encode), Nested (a message that serializes itself), ListShape (a list, or a tuple
of any length), FixedTuple, Table (a dict), Optional, Record (a dataclass).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import fields
from enum import Enum
from operator import attrgetter
from typing import (
    Any,
    ClassVar,
    TypeVar,
)

from sphtp.core.messages.bounds import Bits, Compressed, Float32, Limit, Range
from sphtp.core.messages.streams import (
    BitStream,
    ReadStream,
    Serializable,
    WriteStream,
    check_collection,
    describe_bits,
    enum_text,
    float_of,
    integer_of,
    members_of,
    place_of,
    read_all,
    utf8,
)
from sphtp.errors import SettingsError, WireError

V = TypeVar("V")


class Shape(ABC):
    """The form of one kind of value."""

    exact: type | None = None
    """A type whose values need no check but that of msgpack, and are their own msgpack form; None
    if there is none.
    """

    accepts: ClassVar[tuple[type, ...]] = ()
    """The types of bounds that apply to this shape."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The description of the shape, equal on all machines."""

    @abstractmethod
    def pack(self, value: Any) -> Any:
        """Return the msgpack form of a value; raise ``WireError`` if the value is invalid."""

    @abstractmethod
    def unpack(self, plain: Any) -> Any:
        """Return the value of a msgpack form, which a peer may have forged.

        Raises ``WireError`` if it is invalid.
        """

    def serialize(self, stream: BitStream, value: Any) -> Any:
        """Pass a value through a stream of bits, and return the stream's value.

        Raises ``WireError`` if the value is invalid, and ``SettingsError`` if the shape has no form
        in bits.
        """
        raise SettingsError(f"{self.text} has no form in bits")


def only(kind: type[V], value: Any) -> V:
    """Return a value of exactly this type, not of a subclass.

    Raises:
        WireError: the value is of another type.
    """
    if type(value) is not kind:
        raise WireError(f"{kind.__name__} wanted, {type(value).__name__} given")
    same: V = value
    return same


def limited(text: str, limit: Limit | None) -> str:
    """Return a description, with the limit if there is one."""
    return f"{text}[{limit.maximum}]" if limit else text


def needed(limit: Limit | None, text: str) -> int:
    """Return the maximum of a limit. ``text`` names the type in the error.

    Raises:
        SettingsError: the limit is missing.
    """
    if limit is None:
        raise SettingsError(f"{text} in bits needs a Limit in Annotated")
    return limit.maximum


def check_limit(limit: Limit | None, value: Sized) -> None:
    """Check that a value is not longer than its limit.

    Raises:
        WireError: the value is longer.
    """
    if limit is not None and len(value) > limit.maximum:
        raise WireError(f"{len(value)} over the limit of {limit.maximum}")


# Single values


class Integer(Shape):
    """An integer of 64 bits, or one within a range; a ``BitMessage`` needs a range."""

    accepts = (Range, Bits)

    def __init__(self, bound: Any) -> None:
        self._range: Range | None = bound.range if isinstance(bound, Bits) else bound
        self.exact = None if self._range else int

    @property
    def text(self) -> str:
        return str(self._range or "integer")

    def pack(self, value: Any) -> int:
        return self._checked(integer_of(value))

    def unpack(self, plain: Any) -> int:
        return self._checked(only(int, plain))

    def serialize(self, stream: BitStream, value: Any) -> int:
        if self._range is None:
            raise SettingsError("an integer in bits needs Range or Bits in Annotated")
        return stream.integer(value, self._range.low, self._range.high)

    def _checked(self, number: int) -> int:
        bound = self._range
        if bound and not bound.low <= number <= bound.high:
            raise WireError(f"{number} is outside {bound.low}..{bound.high}")
        return number


class Float(Shape):
    """A float. In msgpack it has full precision; in bits, the bound sets the precision.

    The range of a ``Compressed`` is checked in both forms.
    """

    accepts = (Float32, Compressed)

    def __init__(self, bound: Any) -> None:
        self._bound: Float32 | Compressed | None = bound
        self._compressed = bound if isinstance(bound, Compressed) else None
        self.exact = None if self._compressed else float

    @property
    def text(self) -> str:
        return str(self._bound or "float")

    def pack(self, value: Any) -> float:
        return self._checked(float_of(value))

    def unpack(self, plain: Any) -> float:
        return self._checked(only(float, plain))

    def serialize(self, stream: BitStream, value: Any) -> float:
        if (bound := self._compressed) is not None:
            return stream.compressed(value, bound.low, bound.high, bound.resolution)
        return stream.float32(value) if self._bound else stream.float64(value)

    def _checked(self, number: float) -> float:
        if self._compressed is not None:
            self._compressed.check(number)
        return number


class Boolean(Shape):
    """True or false."""

    def __init__(self, bound: Any) -> None:
        self.exact = bool

    @property
    def text(self) -> str:
        return "boolean"

    def pack(self, value: Any) -> bool:
        return only(bool, value)

    def unpack(self, plain: Any) -> bool:
        return only(bool, plain)

    def serialize(self, stream: BitStream, value: Any) -> bool:
        return stream.boolean(value)


class Text(Shape):
    """A text; its limit counts bytes of UTF-8."""

    accepts = (Limit,)

    def __init__(self, bound: Any) -> None:
        self._limit: Limit | None = bound
        self.exact = None if bound else str

    @property
    def text(self) -> str:
        return limited("text", self._limit)

    def pack(self, value: Any) -> str:
        check_limit(self._limit, utf8(value))
        return str(value)

    def unpack(self, plain: Any) -> str:
        check_limit(self._limit, utf8(plain))
        return only(str, plain)

    def serialize(self, stream: BitStream, value: Any) -> str:
        return stream.text(value, needed(self._limit, "text"))


class Bytes(Shape):
    """A string of bytes, perhaps with a limit."""

    accepts = (Limit,)

    def __init__(self, bound: Any) -> None:
        self._limit: Limit | None = bound
        self.exact = None if bound else bytes

    @property
    def text(self) -> str:
        return limited("bytes", self._limit)

    def pack(self, value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise WireError(f"bytes wanted, {type(value).__name__} given")
        return self.unpack(bytes(value))

    def unpack(self, plain: Any) -> bytes:
        check_limit(self._limit, data := only(bytes, plain))
        return data

    def serialize(self, stream: BitStream, value: Any) -> bytes:
        return stream.data(value, needed(self._limit, "bytes"))


class AnyShape(Shape):
    """Any value that msgpack can encode; it has no form in bits."""

    def __init__(self, bound: Any) -> None:
        pass

    @property
    def text(self) -> str:
        return "anything"

    def pack(self, value: Any) -> Any:
        return value

    def unpack(self, plain: Any) -> Any:
        return plain


class EnumShape(Shape):
    """A member of an enumeration, encoded as its position."""

    def __init__(self, kind: type[Enum]) -> None:
        self._kind = kind
        self._members: tuple[Enum, ...] = members_of(kind)

    @property
    def text(self) -> str:
        return enum_text(self._members)

    def pack(self, value: Any) -> int:
        return place_of(value, self._kind)

    def unpack(self, plain: Any) -> Enum:
        place = only(int, plain)
        if not 0 <= place < len(self._members):
            raise WireError(f"{self._kind.__name__} has no member {place}")
        return self._members[place]

    def serialize(self, stream: BitStream, value: Any) -> Any:
        return stream.enum(value, self._kind)


class Nested(Shape):
    """A message with its own method ``serialize``; msgpack encodes it as bytes."""

    def __init__(self, kind: type[Serializable]) -> None:
        self._kind = kind

    @property
    def text(self) -> str:
        return describe_bits(self._kind)

    def pack(self, value: Any) -> bytes:
        stream = WriteStream()
        stream.message(value, self._kind)
        return stream.finish()

    def unpack(self, plain: Any) -> Any:
        return read_all(self._kind, ReadStream(only(bytes, plain)))

    def serialize(self, stream: BitStream, value: Any) -> Any:
        return stream.message(value, self._kind)


# Shapes that hold other shapes


Way = tuple[str, Callable[[Any], Any]]


class ListShape(Shape):
    """A list or a tuple of any length, with one shape for all items."""

    accepts = (Limit,)

    def __init__(
        self, make: type[list[Any]] | type[tuple[Any, ...]], item: Shape, bound: Any
    ) -> None:
        self._make = make
        self._item = item
        self._limit: Limit | None = bound

    @property
    def text(self) -> str:
        return f"{limited(self._make.__name__, self._limit)}({self._item.text})"

    def pack(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise WireError(f"{self._make.__name__} wanted, {type(value).__name__} given")
        check_limit(self._limit, value)
        return value if self._are_exact(value) else [self._item.pack(one) for one in value]

    def unpack(self, plain: Any) -> Any:
        check_limit(self._limit, only(list, plain))
        if self._are_exact(plain):
            return plain if self._make is list else self._make(plain)
        return self._make([self._item.unpack(one) for one in plain])

    def serialize(self, stream: BitStream, value: Any) -> Any:
        maximum = needed(self._limit, self._make.__name__)
        items = stream.sequence(value, maximum, lambda one: self._item.serialize(stream, one))
        return self._make(items) if stream.reading else value

    def _are_exact(self, values: Iterable[Any]) -> bool:
        return self._item.exact is not None and set(map(type, values)) <= {self._item.exact}


class FixedTuple(Shape):
    """A tuple with a shape for each item."""

    def __init__(self, items: Sequence[Shape]) -> None:
        self._items = items

    @property
    def text(self) -> str:
        return f"tuple({', '.join(item.text for item in self._items)})"

    def pack(self, value: Any) -> Any:
        if not isinstance(value, tuple | list):
            raise WireError(f"tuple wanted, {type(value).__name__} given")
        self._check_arity(value)
        return [item.pack(one) for item, one in zip(self._items, value, strict=True)]

    def unpack(self, plain: Any) -> Any:
        self._check_arity(only(list, plain))
        return tuple(item.unpack(one) for item, one in zip(self._items, plain, strict=True))

    def serialize(self, stream: BitStream, value: Any) -> Any:
        values = [None] * len(self._items) if stream.reading else value
        self._check_arity(values)
        return tuple(
            item.serialize(stream, one) for item, one in zip(self._items, values, strict=True)
        )

    def _check_arity(self, values: Sequence[Any]) -> None:
        check_collection(values, "tuple")
        if len(values) != len(self._items):
            raise WireError(f"a tuple of {len(self._items)} wanted, of {len(values)} given")


class Table(Shape):
    """A dict; it has no form in bits."""

    accepts = (Limit,)

    def __init__(self, key: Shape, value: Shape, bound: Any) -> None:
        self._key = key
        self._value = value
        self._limit: Limit | None = bound

    @property
    def text(self) -> str:
        return f"{limited('dict', self._limit)}({self._key.text}, {self._value.text})"

    def pack(self, value: Any) -> Any:
        check_limit(self._limit, only(dict, value))
        return {self._key.pack(key): self._value.pack(one) for key, one in value.items()}

    def unpack(self, plain: Any) -> Any:
        check_limit(self._limit, only(dict, plain))
        return {self._key.unpack(key): self._value.unpack(one) for key, one in plain.items()}


class Optional(Shape):
    """A value of another shape, or None."""

    def __init__(self, item: Shape) -> None:
        self._item = item

    @property
    def text(self) -> str:
        return f"optional({self._item.text})"

    def pack(self, value: Any) -> Any:
        return None if value is None else self._item.pack(value)

    def unpack(self, plain: Any) -> Any:
        return None if plain is None else self._item.unpack(plain)

    def serialize(self, stream: BitStream, value: Any) -> Any:
        return stream.optional(value, lambda one: self._item.serialize(stream, one))


class Record(Shape):
    """A dataclass, encoded as the list of the fields that its constructor takes."""

    def __init__(self, kind: type, shapes: dict[str, Shape]) -> None:
        self._kind = kind
        self.shapes = shapes
        self._by_name = any(field.kw_only for field in fields(kind) if field.init)
        self._values_of = _getter(list(shapes))
        self._packers = [(name, shape.pack) for name, shape in self.shapes.items()]
        self._unpackers = [(name, shape.unpack) for name, shape in self.shapes.items()]
        exact = tuple(shape.exact for shape in self.shapes.values())
        self._exact = None if None in exact else exact

    @property
    def text(self) -> str:
        return f"{self._kind.__name__}({', '.join(self._field_texts())})"

    def pack(self, value: Any) -> Any:
        if type(value) is not self._kind:
            raise WireError(f"{self._kind.__name__} wanted, {type(value).__name__} given")
        values = self._values_of(value)
        if tuple(map(type, values)) == self._exact:
            return values
        return _each(self._packers, values)

    def unpack(self, plain: Any) -> Any:
        if type(plain) is not list or len(plain) != len(self.shapes):
            raise WireError(f"{self._kind.__name__} wants {len(self.shapes)} fields in an array")
        if tuple(map(type, plain)) == self._exact:
            return self._construct(plain)
        return self._construct(_each(self._unpackers, plain))

    def serialize(self, stream: BitStream, value: Any) -> Any:
        if not stream.reading and type(value) is not self._kind:
            raise WireError(f"{self._kind.__name__} wanted, {type(value).__name__} given")

        def carry(one: Any) -> list[Any]:
            given = [None] * len(self.shapes) if stream.reading else self._values_of(one)
            shapes = zip(self.shapes.values(), given, strict=True)
            return [shape.serialize(stream, field) for shape, field in shapes]

        title = f"{self._kind.__name__}[{', '.join(self.shapes)}]"
        return stream.record(value, title, carry, self._construct)

    def _field_texts(self) -> list[str]:
        return [f"{name}: {shape.text}" for name, shape in self.shapes.items()]

    def _construct(self, values: Sequence[Any]) -> Any:
        try:
            if self._by_name:
                return self._kind(**dict(zip(self.shapes, values, strict=True)))
            return self._kind(*values)
        except Exception as error:
            # The program's class may refuse a value with any error.
            raise WireError(f"{self._kind.__name__} refuses it: {error}") from error


def _getter(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """Return a function that returns these attributes of an object as a sequence."""
    # ``attrgetter`` returns a sequence only for two names or more.
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _each(ways: Sequence[Way], values: Sequence[Any]) -> list[Any]:
    done = []
    for (name, way), value in zip(ways, values, strict=True):
        try:
            done.append(way(value))
        except WireError as error:
            raise WireError(f"{name}: {error}") from error
    return done
