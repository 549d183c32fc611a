"""Shapes that hold other shapes: lists, tuples, dicts, what may be missing, and dataclasses."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from sphtp.core.messages.bounds import Limit
from sphtp.core.messages.shapes import Shape, check_limit, limited, needed, only
from sphtp.core.messages.stream import Stream
from sphtp.errors import SettingsError, WireError

Way = tuple[str, Callable[[Any], Any]]


class Items(Shape):
    """Any number of equal shapes, as a list or a tuple."""

    accepts = (Limit,)

    def __init__(
        self, make: type[list[Any]] | type[tuple[Any, ...]], item: Shape, bound: Any
    ) -> None:
        self._make = make
        self._item = item
        self._limit: Limit | None = bound

    @property
    def text(self) -> str:
        """See ``Shape``."""
        return f"{limited(self._make.__name__, self._limit)}({self._item.text})"

    def pack(self, value: Any) -> Any:
        """See ``Shape``."""
        if not isinstance(value, list | tuple):
            raise WireError(f"{self._make.__name__} wanted, {type(value).__name__} given")
        check_limit(self._limit, value)
        return value if self._are_exact(value) else [self._item.pack(one) for one in value]

    def unpack(self, plain: Any) -> Any:
        """See ``Shape``."""
        check_limit(self._limit, only(list, plain))
        if self._are_exact(plain):
            return plain if self._make is list else self._make(plain)
        return self._make([self._item.unpack(one) for one in plain])

    def serialize(self, stream: Stream, value: Any) -> Any:
        """See ``Shape``."""
        maximum = needed(self._limit, self._make.__name__)
        items = stream.sequence(value, maximum, lambda one: self._item.serialize(stream, one))
        return self._make(items) if stream.reading else value

    def _are_exact(self, values: Iterable[Any]) -> bool:
        return self._item.exact is not None and set(map(type, values)) <= {self._item.exact}


class Row(Shape):
    """A tuple with a shape for each place."""

    def __init__(self, items: Sequence[Shape]) -> None:
        self._items = items

    @property
    def text(self) -> str:
        """See ``Shape``."""
        return f"tuple({', '.join(item.text for item in self._items)})"

    def pack(self, value: Any) -> Any:
        """See ``Shape``."""
        if not isinstance(value, tuple | list):
            raise WireError(f"tuple wanted, {type(value).__name__} given")
        self._check_arity(value)
        return [item.pack(one) for item, one in zip(self._items, value, strict=True)]

    def unpack(self, plain: Any) -> Any:
        """See ``Shape``."""
        self._check_arity(only(list, plain))
        return tuple(item.unpack(one) for item, one in zip(self._items, plain, strict=True))

    def serialize(self, stream: Stream, value: Any) -> Any:
        """See ``Shape``."""
        values = [None] * len(self._items) if stream.reading else value
        self._check_arity(values)
        return tuple(
            item.serialize(stream, one) for item, one in zip(self._items, values, strict=True)
        )

    def _check_arity(self, values: Sequence[Any]) -> None:
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
        """See ``Shape``."""
        return f"{limited('dict', self._limit)}({self._key.text}, {self._value.text})"

    def pack(self, value: Any) -> Any:
        """See ``Shape``."""
        check_limit(self._limit, only(dict, value))
        return {self._key.pack(key): self._value.pack(one) for key, one in value.items()}

    def unpack(self, plain: Any) -> Any:
        """See ``Shape``."""
        check_limit(self._limit, only(dict, plain))
        return {self._key.unpack(key): self._value.unpack(one) for key, one in plain.items()}


class Optional(Shape):
    """A shape, or None."""

    def __init__(self, item: Shape) -> None:
        self._item = item

    @property
    def text(self) -> str:
        """See ``Shape``."""
        return f"optional({self._item.text})"

    def pack(self, value: Any) -> Any:
        """See ``Shape``."""
        return None if value is None else self._item.pack(value)

    def unpack(self, plain: Any) -> Any:
        """See ``Shape``."""
        return None if plain is None else self._item.unpack(plain)

    def serialize(self, stream: Stream, value: Any) -> Any:
        """See ``Shape``."""
        return stream.optional(value, lambda one: self._item.serialize(stream, one))


class Record(Shape):
    """A dataclass, carried as the row of the fields that its constructor takes."""

    def __init__(self, kind: type, shape_of: Callable[[str], Shape]) -> None:
        self._kind = kind
        carried = [field for field in fields(kind) if field.init]
        names = [field.name for field in carried]
        check_constructor(kind, names)
        self.shapes = {name: shape_of(name) for name in names}
        self._by_name = any(field.kw_only for field in carried)
        self._values_of = _getter(names)
        self._packers = [(name, shape.pack) for name, shape in self.shapes.items()]
        self._unpackers = [(name, shape.unpack) for name, shape in self.shapes.items()]
        exact = tuple(shape.exact for shape in self.shapes.values())
        self._exact = None if None in exact else exact

    @property
    def text(self) -> str:
        """See ``Shape``."""
        return f"{self._kind.__name__}({', '.join(self._field_texts())})"

    def pack(self, value: Any) -> Any:
        """See ``Shape``."""
        if type(value) is not self._kind:
            raise WireError(f"{self._kind.__name__} wanted, {type(value).__name__} given")
        values = self._values_of(value)
        if tuple(map(type, values)) == self._exact:
            return values
        return _each(self._packers, values)

    def unpack(self, plain: Any) -> Any:
        """See ``Shape``."""
        if type(plain) is not list or len(plain) != len(self.shapes):
            raise WireError(f"{self._kind.__name__} wants {len(self.shapes)} fields in an array")
        if tuple(map(type, plain)) == self._exact:
            return self._construct(plain)
        return self._construct(_each(self._unpackers, plain))

    def serialize(self, stream: Stream, value: Any) -> Any:
        """See ``Shape``."""
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
            # The class is the user's, and may refuse a value with any error it likes.
            raise WireError(f"{self._kind.__name__} refuses it: {error}") from error


def check_constructor(kind: type, names: Sequence[str]) -> None:
    """Refuse a dataclass that its fields alone cannot construct again.

    Raises:
        SettingsError: its constructor wants something else, or does not take a field.
    """
    parameters = inspect.signature(kind).parameters
    wanted = {name for name, one in parameters.items() if one.default is one.empty}
    odd = sorted((wanted - set(names)) | (set(names) - set(parameters)))
    if odd:
        raise SettingsError(f"{kind.__name__}: fields and constructor differ in {', '.join(odd)}")


def _getter(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """Return what takes all fields off an object; ``attrgetter`` gives no tuple below two."""
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
