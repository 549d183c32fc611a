"""What a message's ``serialize`` talks to: one set of calls for writing, reading and measuring."""

import operator
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum, Flag
from functools import lru_cache
from typing import Any, ClassVar, Protocol, TypeVar

from sphtp.core.messages.bounds import compressed
from sphtp.errors import SettingsError, WireError

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
S = TypeVar("S", bound="Serializable")

F32 = struct.Struct("<f")
F64 = struct.Struct("<d")


class Serializable(Protocol):
    """Has the unified serialize function, and can be created without arguments."""

    def serialize(self, stream: "Stream") -> None:
        """Pass every field through the stream, and keep what comes back."""


class Stream(ABC):
    """A row of bits, lowest bit first.

    Every call takes a value and returns one, so that ``self.a = stream.integer(self.a, 0, 100)``
    serves for all streams: writing and measuring give the value back, reading pays no heed to it
    and gives what has arrived. All calls raise ``WireError`` for a value that does not fit, and
    reading also for bits that no writer writes: an integer out of its range, a buffer that ends
    too early. After "unified serialize function" in Reliable Ordered Messages.
    """

    __slots__ = ()

    reading: ClassVar[bool] = False
    """Whether values come out of this stream."""

    @property
    @abstractmethod
    def position(self) -> int:
        """Bits that have passed."""

    def bits(self, value: int, width: int) -> int:
        """An unsigned integer of ``width`` bits."""
        return self.integer(value, 0, (1 << width) - 1)

    def integer(self, value: int, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, in the fewest bits that hold this range."""
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
        """True or false, in one bit."""
        if self.reading:
            return bool(self._carry(0, 1))
        self._carry(1 if value else 0, 1)
        return value

    def float32(self, value: float) -> float:
        """A float of single precision: what is read may differ from what was written."""
        return self._float(value, F32)

    def float64(self, value: float) -> float:
        """A float as Python has it; all that are not a number are the same one."""
        return self._float(value, F64)

    def compressed(self, value: float, low: float, high: float, resolution: float) -> float:
        """A float within a range, to the nearest of equal steps of at most ``resolution``."""
        bound = compressed(low, high, resolution)
        if self.reading:
            return bound.value_of(self.integer(0, 0, bound.steps))
        self.integer(bound.step_of(float_of(value)), 0, bound.steps)
        return value

    def data(self, value: bytes, maximum: int) -> bytes:
        """At most ``maximum`` bytes."""
        if self.reading:
            size = self.integer(0, 0, maximum)
            return self._carry(0, 8 * size).to_bytes(size, "little")
        if not isinstance(value, bytes | bytearray | memoryview):
            raise WireError(f"bytes wanted, {type(value).__name__} given")
        self.integer(len(value), 0, maximum)
        self._carry(int.from_bytes(value, "little"), 8 * len(value))
        return value

    def text(self, value: str, maximum: int) -> str:
        """Text of at most ``maximum`` bytes of UTF-8."""
        if self.reading:
            return text_from(self.data(b"", maximum))
        self.data(utf8(value), maximum)
        return value

    def enum(self, value: E, kind: type[E]) -> E:
        """A member of an enumeration, by its position."""
        members = members_of(kind)
        if self.reading:
            member: E = members[self.integer(0, 0, len(members) - 1)]
            return member
        self.integer(place_of(value, kind), 0, len(members) - 1)
        return value

    def optional(self, value: T | None, item: Callable[[T], T]) -> T | None:
        """A value or None: one bit, then what ``item`` does. Reading hands ``item`` None."""
        present = self.boolean(value is not None)
        return item(_blank_if(self.reading, value)) if present else None

    def sequence(self, value: list[T], maximum: int, item: Callable[[T], T]) -> list[T]:
        """At most ``maximum`` items, each passed to ``item``. Reading hands ``item`` None.

        Raises:
            WireError: also for an item that takes no bit: a few bytes could ask for millions.
        """
        if not self.reading:
            self.integer(len(value), 0, maximum)
            for one in value:
                self._item(one, item)
            return value
        return [self._item(_blank_if(True, None), item) for _ in range(self._length(maximum))]

    def message(self, value: S, kind: type[S]) -> S:
        """A message within this one. Reading creates it."""
        if not self.reading and type(value) is not kind:
            raise WireError(f"{kind.__name__} wanted, {type(value).__name__} given")
        message = kind() if self.reading else value
        message.serialize(self)
        return message

    def record(
        self, value: T, title: str, fields: Callable[[T], list[Any]], make: Callable[[list[Any]], T]
    ) -> T:
        """An object that cannot serialize itself: ``fields`` does it. Reading hands ``fields``
        None, and ``make`` what it returns. The title is only for the description.
        """
        if self.reading:
            return make(fields(_blank_if(True, None)))
        fields(value)
        return value

    @abstractmethod
    def _carry(self, number: int, width: int) -> int:
        """Let bits pass: out, and return them; or in, and return what came."""

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
            # Not-a-number has many patterns; only one is written.
            if number != number and came != form.pack(float("nan")):
                raise WireError("an odd pattern for not-a-number")
            return number
        self._carry(int.from_bytes(_float_bytes(value, form), "little"), 8 * form.size)
        return value


@lru_cache(maxsize=1024)
def members_of(kind: type[E]) -> tuple[E, ...]:
    """Return the members of an enumeration in the order of their definition.

    Raises:
        SettingsError: it has none, or its members can be combined.
    """
    if issubclass(kind, Flag) or not len(kind):
        raise SettingsError(f"{kind.__name__} is not an enumeration of single members")
    return tuple(kind)


def place_of(value: E, kind: type[E]) -> int:
    """Return the position of a member.

    Raises:
        WireError: the value is no member.
    """
    if type(value) is not kind:
        raise WireError(f"{kind.__name__} wanted, {type(value).__name__} given")
    return members_of(kind).index(value)


def integer_of(value: Any) -> int:
    """Return a plain int for anything that is an integer.

    Raises:
        WireError: it is none.
    """
    try:
        return int(operator.index(value))
    except TypeError:
        raise WireError(f"integer wanted, {type(value).__name__} given") from None


def float_of(value: Any) -> float:
    """Return a plain float for any real number; all that are not a number become the same one.

    Raises:
        WireError: it is none, or too large.
    """
    if isinstance(value, str | bytes | bytearray):
        raise WireError(f"float wanted, {type(value).__name__} given")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"float wanted, {type(value).__name__} given: {error}") from None
    return number if number == number else float("nan")


def utf8(value: Any) -> bytes:
    """Return the bytes of a text.

    Raises:
        WireError: it is none, or has half a surrogate pair.
    """
    if not isinstance(value, str):
        raise WireError(f"text wanted, {type(value).__name__} given")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise WireError(f"text that UTF-8 cannot carry: {error}") from None


def text_from(data: bytes) -> str:
    """Return the text that bytes stand for.

    Raises:
        WireError: they are not UTF-8.
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
