"""From annotations to shapes: the shape of a dataclass, and of the type of each of its fields.

A bound stands beside a type in ``Annotated``. A type without a shape is an error of the program,
and the error names the field. A message type cannot contain itself, since its shape would have no
end.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from sphtp.core.messages.bounds import Bound
from sphtp.core.messages.shapes import (
    AnyShape,
    Boolean,
    Bytes,
    EnumShape,
    FixedTuple,
    Float,
    Integer,
    ListShape,
    Nested,
    Optional,
    Record,
    Shape,
    Table,
    Text,
)
from sphtp.core.messages.streams import Serializable
from sphtp.errors import SettingsError

Within = tuple[type, ...]


def record_of(kind: type[Any]) -> Record:
    """Return the shape of a dataclass, from a cache after the first call.

    Raises:
        SettingsError: a field's type has no shape, or the constructor does not take the fields; the
            message names the class, and the field if it is known.
    """
    # mypy takes the __hash__ of instances for that of the class; every class has one.
    key: Any = kind
    return _cached_record(key)


def shape_of(annotation: Any, bound: Bound | None = None, within: Within = ()) -> Shape:
    """Return the shape of a type, which may have a bound in ``Annotated``.

    Raises:
        SettingsError: the type has no shape, or it has several bounds or one that does not apply.
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *beside = get_args(annotation)
        return shape_of(inner, _bound_among(beside, bound), within)
    if origin in _UNIONS:
        return Optional(shape_of(_other_than_none(annotation), bound, within))
    shape = _build(annotation, origin, bound, within)
    if bound is not None and not isinstance(bound, shape.accepts):
        raise SettingsError(f"{bound!r} is no bound for {shape.text}")
    return shape


def _build(annotation: Any, origin: Any, bound: Bound | None, within: Within) -> Shape:
    if origin in _CONTAINERS:
        return _CONTAINERS[origin](get_args(annotation), bound, within)
    if annotation in _SINGLE:
        return _SINGLE[annotation](bound)
    if isinstance(annotation, type):
        if issubclass(annotation, Enum):
            return EnumShape(annotation)
        if callable(getattr(annotation, "serialize", None)):
            return Nested(cast("type[Serializable]", annotation))
        if is_dataclass(annotation):
            return _record(annotation, within)
    raise SettingsError(f"messages cannot hold {annotation}")


def _record(kind: type, within: Within) -> Record:
    if kind in within:
        raise SettingsError(f"{kind.__name__} holds a message of its own kind")
    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise SettingsError(f"{kind.__name__}: {error}") from error

    def shape(name: str) -> Shape:
        try:
            return shape_of(hints[name], within=(*within, kind))
        except SettingsError as error:
            raise SettingsError(f"{kind.__name__}.{name}: {error}") from error

    names = [field.name for field in fields(kind) if field.init]
    _check_constructor(kind, names)
    return Record(kind, {name: shape(name) for name in names})


def _check_constructor(kind: type, names: Sequence[str]) -> None:
    """Check that a dataclass can be constructed from its fields alone.

    Raises:
        SettingsError: its constructor needs other arguments, or lacks a parameter for a field.
    """
    parameters = inspect.signature(kind).parameters
    wanted = {name for name, one in parameters.items() if one.default is one.empty}
    odd = sorted((wanted - set(names)) | (set(names) - set(parameters)))
    if odd:
        raise SettingsError(f"{kind.__name__}: fields and constructor differ in {', '.join(odd)}")


@cache
def _cached_record(kind: Any) -> Record:
    return _record(kind, ())


def _list(arguments: tuple[Any, ...], bound: Bound | None, within: Within) -> Shape:
    return ListShape(list, shape_of(arguments[0], within=within), bound)


def _tuple(arguments: tuple[Any, ...], bound: Bound | None, within: Within) -> Shape:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return ListShape(tuple, shape_of(arguments[0], within=within), bound)
    return FixedTuple([shape_of(one, within=within) for one in arguments])


def _dict(arguments: tuple[Any, ...], bound: Bound | None, within: Within) -> Shape:
    key, value = (shape_of(one, within=within) for one in arguments)
    if not isinstance(key, _KEYS):
        raise SettingsError(f"{key.text} cannot be the key of a dict in a message")
    return Table(key, value, bound)


def _bound_among(beside: Iterable[Any], outer: Bound | None) -> Bound | None:
    bounds = [one for one in (*beside, outer) if isinstance(one, Bound)]
    if len(bounds) > 1:
        raise SettingsError(f"more than one bound: {bounds}")
    return bounds[0] if bounds else None


def _other_than_none(annotation: Any) -> Any:
    others = [one for one in get_args(annotation) if one is not NoneType]
    if len(others) != 1 or len(get_args(annotation)) != 2:
        raise SettingsError(f"messages cannot hold {annotation}; allowed is one type, or None")
    return others[0]


_UNIONS = (Union, UnionType)
_KEYS = (Integer, Float, Boolean, Text, Bytes, EnumShape)
_SINGLE: dict[Any, Callable[[Any], Shape]] = {
    int: Integer,
    float: Float,
    bool: Boolean,
    str: Text,
    bytes: Bytes,
    Any: AnyShape,
}
_CONTAINERS: dict[Any, Callable[[tuple[Any, ...], Any, Within], Shape]] = {
    list: _list,
    tuple: _tuple,
    dict: _dict,
}
