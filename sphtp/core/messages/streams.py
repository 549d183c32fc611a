"""Streams of bits: one ``serialize`` writes, reads, measures and describes a message.

``BitStream`` has the methods. ``WriteStream`` packs values into bits, ``ReadStream`` reads them
from bits, and ``MeasureStream`` counts bits. ``DescribeStream`` records types and bounds, which
peers compare. After "unified serialize function" in Reliable Ordered Messages.
"""

import operator
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum, Flag
from functools import lru_cache
from typing import Any, ClassVar, Protocol, TypeVar

from sphtp.core.messages.bounds import Limit, Range, compressed
from sphtp.errors import SettingsError, SphtpError, WireError

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
S = TypeVar("S", bound="Serializable")

F32 = struct.Struct("<f")
F64 = struct.Struct("<d")


class Serializable(Protocol):
    """An object with a ``serialize`` method that can be created without arguments."""

    def serialize(self, stream: "BitStream") -> None:
        """Pass each field through ``stream``, and store the result in the field."""


class BitStream(ABC):
    """A sequence of bits, lowest bit first.

    Every method takes a value and returns one, so that ``self.a = stream.integer(self.a, 0, 100)``
    serves for all streams. When writing or measuring, a method returns its argument. When reading,
    it ignores the argument and returns the received value. All methods raise ``WireError`` for a
    value that does not fit. When reading, they also raise it for bits that no writer writes, such
    as an integer out of its range, and at the end of the buffer. After "unified serialize function"
    in Reliable Ordered Messages.
    """

    __slots__ = ()

    reading: ClassVar[bool] = False
    """True if this stream returns values of its own instead of the arguments."""

    @property
    @abstractmethod
    def position(self) -> int:
        """The number of bits written, read or measured so far."""

    def bits(self, value: int, width: int) -> int:
        """Pass an unsigned integer of ``width`` bits."""
        return self.integer(value, 0, (1 << width) - 1)

    def integer(self, value: int, low: int, high: int) -> int:
        """Pass an integer from ``low`` to ``high``, in the fewest bits that hold this range."""
        span = high - low
        if self.reading:
            offset = self._carry(0, span.bit_length())
            if offset > span:
                raise WireError(f"{low + offset} is outside {low}..{high}")
            return low + offset
        number = integer_of(value)
        if not low <= number <= high:
            raise WireError(f"{number} is outside {low}..{high}")
        self._carry(number - low, span.bit_length())
        return value

    def boolean(self, value: bool) -> bool:
        """Pass True or False, in one bit; any other value counts by its truth."""
        if self.reading:
            return bool(self._carry(0, 1))
        try:
            number = 1 if value else 0
        except Exception as error:
            raise WireError(f"boolean wanted, {type(value).__name__} given: {error}") from None
        self._carry(number, 1)
        return value

    def float32(self, value: float) -> float:
        """Pass a float in single precision, which may change its value."""
        return self._float(value, F32)

    def float64(self, value: float) -> float:
        """Pass a float in double precision; all NaNs become the same one."""
        return self._float(value, F64)

    def compressed(self, value: float, low: float, high: float, resolution: float) -> float:
        """Pass a float from ``low`` to ``high``, in equal steps of at most ``resolution``."""
        bound = compressed(low, high, resolution)
        if self.reading:
            return bound.value_of(self.integer(0, 0, bound.steps))
        self.integer(bound.step_of(float_of(value)), 0, bound.steps)
        return value

    def data(self, value: bytes, maximum: int) -> bytes:
        """Pass at most ``maximum`` bytes."""
        if self.reading:
            size = self.integer(0, 0, maximum)
            return self._carry(0, 8 * size).to_bytes(size, "little")
        if not isinstance(value, bytes | bytearray | memoryview):
            raise WireError(f"bytes wanted, {type(value).__name__} given")
        # The items of a view may be larger than a byte.
        octets = bytes(value)
        self.integer(len(octets), 0, maximum)
        self._carry(int.from_bytes(octets, "little"), 8 * len(octets))
        return value

    def text(self, value: str, maximum: int) -> str:
        """Pass text of at most ``maximum`` bytes of UTF-8."""
        if self.reading:
            return text_from(self.data(b"", maximum))
        self.data(utf8(value), maximum)
        return value

    def enum(self, value: E, kind: type[E]) -> E:
        """Pass a member of an enumeration, by its position."""
        members = members_of(kind)
        if self.reading:
            member: E = members[self.integer(0, 0, len(members) - 1)]
            return member
        self.integer(place_of(value, kind), 0, len(members) - 1)
        return value

    def optional(self, value: T | None, item: Callable[[T], T]) -> T | None:
        """Pass a value or None: one bit, then the value through ``item``.

        When reading, the argument of ``item`` is None.
        """
        present = self.boolean(value is not None)
        return item(_blank_if(self.reading, value)) if present else None

    def sequence(self, value: list[T], maximum: int, item: Callable[[T], T]) -> list[T]:
        """Pass at most ``maximum`` items, each through ``item``.

        When reading, the argument of ``item`` is None.

        Raises:
            WireError: the value is not a collection, there are too many items, or an item does not
                fit or takes no bit. If items could take no bit, a few bytes could encode millions
                of them.
        """
        if not self.reading:
            check_collection(value, "list")
            self.integer(len(value), 0, maximum)
            for one in value:
                self._item(one, item)
            return value
        return [self._item(_blank_if(True, None), item) for _ in range(self._length(maximum))]

    def message(self, value: S, kind: type[S]) -> S:
        """Pass a message of type ``kind`` within this one; when reading, create it."""
        if not self.reading and type(value) is not kind:
            raise WireError(f"{kind.__name__} wanted, {type(value).__name__} given")
        message = kind() if self.reading else value
        message.serialize(self)
        return message

    def record(
        self, value: T, title: str, fields: Callable[[T], list[Any]], make: Callable[[list[Any]], T]
    ) -> T:
        """Pass an object without a method ``serialize``: ``fields`` passes its fields.

        When reading, the argument of ``fields`` is None, and ``make`` creates the object from the
        result of ``fields``. ``title`` is for the description only.
        """
        if self.reading:
            return make(fields(_blank_if(True, None)))
        fields(value)
        return value

    @abstractmethod
    def _carry(self, number: int, width: int) -> int:
        """Pass ``width`` bits: write ``number`` and return it, or read and return a number."""

    def _length(self, maximum: int) -> int:
        return self.integer(0, 0, maximum)

    def _item(self, value: T, item: Callable[[T], T]) -> T:
        before = self.position
        result = item(value)
        if self.position == before:
            raise WireError("an item of a sequence takes no bit")
        return result

    def _float(self, value: float, form: struct.Struct) -> float:
        if self.reading:
            came = self._carry(0, 8 * form.size).to_bytes(form.size, "little")
            number: float = form.unpack(came)[0]
            # Not-a-number has many bit patterns; writers write only one.
            if number != number and came != form.pack(float("nan")):
                raise WireError("an odd pattern for not-a-number")
            return number
        self._carry(int.from_bytes(_float_bytes(value, form), "little"), 8 * form.size)
        return value


@lru_cache(maxsize=1024)
def members_of(kind: type[E]) -> tuple[E, ...]:
    """Return the members of an enumeration in the order of their definition.

    Raises:
        SettingsError: the enumeration has no members, or its members can be combined.
    """
    if issubclass(kind, Flag) or not len(kind):
        raise SettingsError(f"{kind.__name__} is not an enumeration of single members")
    return tuple(kind)


def place_of(value: E, kind: type[E]) -> int:
    """Return the position of a member.

    Raises:
        WireError: the value is not a member.
    """
    if type(value) is not kind:
        raise WireError(f"{kind.__name__} wanted, {type(value).__name__} given")
    return members_of(kind).index(value)


def integer_of(value: Any) -> int:
    """Return an integer of any type, such as NumPy's, as a plain int.

    Raises:
        WireError: the value is not an integer.
    """
    try:
        return int(operator.index(value))
    except TypeError:
        raise WireError(f"integer wanted, {type(value).__name__} given") from None


def float_of(value: Any) -> float:
    """Return a real number as a plain float; every NaN becomes the same NaN.

    Raises:
        WireError: the value is not a real number, or is too large for a float.
    """
    if isinstance(value, str | bytes | bytearray):
        raise WireError(f"float wanted, {type(value).__name__} given")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"float wanted, {type(value).__name__} given: {error}") from None
    return number if number == number else float("nan")


def check_collection(value: Any, wanted: str) -> None:
    """Check that a value has items. ``wanted`` names its type in the error.

    Raises:
        WireError: the value is not a collection.
    """
    if not isinstance(value, Collection):
        raise WireError(f"{wanted} wanted, {type(value).__name__} given")


def utf8(value: Any) -> bytes:
    """Return a text in UTF-8.

    Raises:
        WireError: the value is not a text, or contains a lone surrogate.
    """
    if not isinstance(value, str):
        raise WireError(f"text wanted, {type(value).__name__} given")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise WireError(f"text that UTF-8 cannot carry: {error}") from None


def text_from(data: bytes) -> str:
    """Return the text that bytes of UTF-8 encode.

    Raises:
        WireError: the bytes are not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"not UTF-8: {error}") from None


def _float_bytes(value: float, form: struct.Struct) -> bytes:
    try:
        return form.pack(float_of(value))
    except OverflowError:
        raise WireError(f"{value} does not fit {8 * form.size} bits") from None


def _blank_if(reading: bool, value: Any) -> Any:
    return None if reading else value


# Writing, reading, measuring


# Bits that are gathered in one integer; shifting a longer one would be slow.
_FLUSH = 1024


class WriteStream(BitStream):
    """A stream that packs values into bits, lowest bit first."""

    __slots__ = ("_buffer", "_count", "_gathered")

    def __init__(self, gathered: int = 0, count: int = 0) -> None:
        """Begin with the ``count`` bits of the integer ``gathered``."""
        self._buffer = bytearray()
        self._gathered = gathered
        self._count = count

    @property
    def position(self) -> int:
        """The number of bits written."""
        return 8 * len(self._buffer) + self._count

    def finish(self) -> bytes:
        """Return all bits as bytes, padded with zeros."""
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


class ReadStream(BitStream):
    """A stream that reads values from bits, which a peer may have forged."""

    __slots__ = ("_data", "_end", "_position")

    reading: ClassVar[bool] = True

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end = 8 * len(data)
        self._position = 0

    @property
    def position(self) -> int:
        """The number of bits read."""
        return self._position

    def finish(self) -> None:
        """Check that no bits are left but padding of less than a byte.

        Raises:
            WireError: bytes are left, or bits other than 0.
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


class MeasureStream(BitStream):
    """A stream that counts the bits of ``WriteStream``, and rejects the same values."""

    __slots__ = ("_position",)

    def __init__(self) -> None:
        self._position = 0

    @property
    def position(self) -> int:
        """The number of bits measured."""
        return self._position

    def _carry(self, number: int, width: int) -> int:
        self._position += width
        return number


def read_all(kind: type[S], stream: ReadStream) -> S:
    """Create a message from all remaining bits of a stream.

    Raises:
        WireError: the bits are not a message of this class.
    """
    try:
        message = kind()
        message.serialize(stream)
    except SphtpError:
        raise
    except Exception as error:
        # The program's ``serialize`` may refuse a value with any error.
        raise WireError(f"{kind.__name__} refuses it: {error}") from error
    stream.finish()
    return message


# Describing


R = TypeVar("R")


def describe_bits(kind: type[Serializable]) -> str:
    """Return a line that describes the ``serialize`` of a type, equal on all machines.

    The line is recorded while ``serialize`` runs on a blank message. If ``serialize`` branches, the
    line describes the branch that the blank values take; ``optional`` records the value, too.

    Raises:
        SettingsError: the message cannot be created without arguments, cannot be assigned to, has
            bounds that contradict each other or a field without a form in bits, or holds a message
            of its own kind.
    """
    stream = DescribeStream()
    try:
        stream.message(_nothing(), kind)
    except SettingsError as error:
        raise SettingsError(f"{kind.__name__}: {error}") from error
    except Exception as error:
        raise SettingsError(
            f"{kind.__name__} cannot be created blank and serialized: "
            f"{type(error).__name__}: {error}"
        ) from error
    return stream.description


class DescribeStream(BitStream):
    """A stream that records each call, and returns a blank value, such as the lowest allowed."""

    __slots__ = ("_notes", "_position", "_within")

    reading: ClassVar[bool] = True

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._position = 0
        self._within: list[type] = []

    @property
    def position(self) -> int:
        """The fewest bits of the recorded calls, with one item in each sequence and no None."""
        return self._position

    @property
    def description(self) -> str:
        """The description so far."""
        return ", ".join(self._notes)

    def integer(self, value: int, low: int, high: int) -> int:
        """Record an integer."""
        return self._note(str(Range(low, high)), (high - low).bit_length(), low)

    def boolean(self, value: bool) -> bool:
        """Record a boolean."""
        return self._note("boolean", 1, False)

    def float32(self, value: float) -> float:
        """Record a float of single precision."""
        return self._note("float32", 32, 0.0)

    def float64(self, value: float) -> float:
        """Record a float."""
        return self._note("float", 64, 0.0)

    def compressed(self, value: float, low: float, high: float, resolution: float) -> float:
        """Record a float in steps."""
        bound = compressed(low, high, resolution)
        return self._note(str(bound), bound.steps.bit_length(), float(low))

    def data(self, value: bytes, maximum: int) -> bytes:
        """Record bytes."""
        return self._note(*_limited("bytes", maximum), b"")

    def text(self, value: str, maximum: int) -> str:
        """Record a text."""
        return self._note(*_limited("text", maximum), "")

    def enum(self, value: E, kind: type[E]) -> E:
        """Record the members of an enumeration."""
        members = members_of(kind)
        first: E = members[0]
        width = (len(members) - 1).bit_length()
        return self._note(enum_text(members), width, first)

    def optional(self, value: T | None, item: Callable[[T], T]) -> T | None:
        """Record an optional value."""
        with self._group("optional"):
            item(_nothing())
        self._position += 1
        return None

    def sequence(self, value: list[T], maximum: int, item: Callable[[T], T]) -> list[T]:
        """Record the shape of the items of a sequence."""
        text, width = _limited("list", maximum)
        with self._group(text):
            self._item(_nothing(), item)
        self._position += width
        return []

    def message(self, value: S, kind: type[S]) -> S:
        """Record the fields of a message."""
        if kind in self._within:
            raise SettingsError(f"{kind.__name__} holds a message of its own kind")
        message = kind()
        self._within.append(kind)
        with self._group(f"{kind.__name__}[{', '.join(_names(message))}]"):
            message.serialize(self)
        self._within.pop()
        return message

    def record(
        self, value: T, title: str, fields: Callable[[T], list[Any]], make: Callable[[list[Any]], T]
    ) -> T:
        """Record the fields of an object without creating one, which might refuse blank values."""
        with self._group(title):
            fields(_nothing())
        return value

    def _carry(self, number: int, width: int) -> int:
        return 0

    def _note(self, text: str, width: int, value: R) -> R:
        self._notes.append(text)
        self._position += width
        return value

    @contextmanager
    def _group(self, text: str) -> Iterator[None]:
        outer, self._notes = self._notes, []
        yield
        inner, self._notes = self._notes, outer
        self._notes.append(f"{text}({', '.join(inner)})")


def enum_text(members: Iterable[Any]) -> str:
    """Return a description of an enumeration: the names of its members."""
    return f"enum({', '.join(member.name for member in members)})"


def _limited(text: str, maximum: int) -> tuple[str, int]:
    return f"{text}[{Limit(maximum).maximum}]", maximum.bit_length()


def _names(message: Serializable) -> list[str]:
    if is_dataclass(message):
        return [field.name for field in fields(message)]
    return [name for name in getattr(message, "__dict__", {}) if not name.startswith("_")]


def _nothing() -> Any:
    return None
