"""A stream that carries nothing, and notes what a ``serialize`` asks for: types and bounds."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, TypeVar

from sphtp.core.messages.bounds import Limit, Range, compressed
from sphtp.core.messages.stream import E, S, Serializable, Stream, T, members_of
from sphtp.errors import SettingsError

R = TypeVar("R")


def describe_bits(kind: type[Serializable]) -> str:
    """Say in one line what a message's ``serialize`` does, equal on all machines.

    What it does is found out by running it on a blank message. A ``serialize`` that branches
    is described by the branch that a message of zeros takes; ``optional`` shows both.

    Raises:
        SettingsError: the message cannot be created without arguments, cannot be assigned to,
            has bounds that contradict each other, or holds a message of its own kind.
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


class DescribeStream(Stream):
    """Gives zeros, or the lowest value that is allowed, and notes each call."""

    __slots__ = ("_notes", "_position", "_within")

    reading: ClassVar[bool] = True

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._position = 0
        self._within: list[type] = []

    @property
    def position(self) -> int:
        """Bits that all this takes at least."""
        return self._position

    @property
    def description(self) -> str:
        """What has been noted."""
        return ", ".join(self._notes)

    def integer(self, value: int, low: int, high: int) -> int:
        """Note an integer."""
        return self._note(str(Range(low, high)), (high - low).bit_length(), low)

    def boolean(self, value: bool) -> bool:
        """Note a boolean."""
        return self._note("boolean", 1, False)

    def float32(self, value: float) -> float:
        """Note a float of single precision."""
        return self._note("float32", 32, 0.0)

    def float64(self, value: float) -> float:
        """Note a float."""
        return self._note("float", 64, 0.0)

    def compressed(self, value: float, low: float, high: float, resolution: float) -> float:
        """Note a float in steps."""
        bound = compressed(low, high, resolution)
        return self._note(str(bound), bound.steps.bit_length(), float(low))

    def data(self, value: bytes, maximum: int) -> bytes:
        """Note bytes."""
        return self._note(*_limited("bytes", maximum), b"")

    def text(self, value: str, maximum: int) -> str:
        """Note a text."""
        return self._note(*_limited("text", maximum), "")

    def enum(self, value: E, kind: type[E]) -> E:
        """Note the members of an enumeration."""
        members = members_of(kind)
        first: E = members[0]
        width = (len(members) - 1).bit_length()
        return self._note(enum_text(members), width, first)

    def optional(self, value: T | None, item: Callable[[T], T]) -> T | None:
        """Note what may be there."""
        with self._group("optional"):
            item(_nothing())
        self._position += 1
        return None

    def sequence(self, value: list[T], maximum: int, item: Callable[[T], T]) -> list[T]:
        """Note what a sequence holds."""
        text, width = _limited("list", maximum)
        with self._group(text):
            self._item(_nothing(), item)
        self._position += width
        return []

    def message(self, value: S, kind: type[S]) -> S:
        """Note the fields of a message."""
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
        """Note the fields of an object, and make none: it might refuse to be all zeros."""
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
    """Describe an enumeration by the names of its members."""
    return f"enum({', '.join(member.name for member in members)})"


def _limited(text: str, maximum: int) -> tuple[str, int]:
    return f"{text}[{Limit(maximum).maximum}]", maximum.bit_length()


def _names(message: Serializable) -> list[str]:
    if is_dataclass(message):
        return [field.name for field in fields(message)]
    return [name for name in getattr(message, "__dict__", {}) if not name.startswith("_")]


def _nothing() -> Any:
    return None
