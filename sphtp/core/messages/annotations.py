"""From the annotations of a class to shapes."""

from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from sphtp.core.messages.bounds import Bound
from sphtp.core.messages.containers import Items, Optional, Record, Row, Table
from sphtp.core.messages.shapes import Shape
from sphtp.core.messages.singles import (
    Anything,
    Boolean,
    Choice,
    Data,
    Float,
    Integer,
    Nested,
    Text,
)
from sphtp.core.messages.stream import Serializable
from sphtp.errors import SettingsError

Within = tuple[type, ...]


def record_of(kind: type[Any]) -> Record:
    """Return the shape of a dataclass; the same for the same one.

    Raises:
        SettingsError: a field's type has no shape; the message names the field.
    """
    # mypy holds the __hash__ of instances against a class; no class lacks one.
    key: Any = kind
    return _cached_record(key)


def shape_of(annotation: Any, bound: Bound | None = None, within: Within = ()) -> Shape:
    """Return the shape of a type, which may come with a bound in ``Annotated``.

    Raises:
        SettingsError: there is none, or the bound is not one for this type.
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
            return Choice(annotation)
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

    return Record(kind, shape)


@cache
def _cached_record(kind: Any) -> Record:
    return _record(kind, ())


def _list(arguments: tuple[Any, ...], bound: Bound | None, within: Within) -> Shape:
    return Items(list, shape_of(arguments[0], within=within), bound)


def _tuple(arguments: tuple[Any, ...], bound: Bound | None, within: Within) -> Shape:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return Items(tuple, shape_of(arguments[0], within=within), bound)
    return Row([shape_of(one, within=within) for one in arguments])


def _dict(arguments: tuple[Any, ...], bound: Bound | None, within: Within) -> Shape:
    key, value = (shape_of(one, within=within) for one in arguments)
    if not isinstance(key, _KEYS):
        raise SettingsError(f"{key.text} cannot be the key of a dict here")
    return Table(key, value, bound)


def _bound_among(beside: Iterable[Any], outer: Bound | None) -> Bound | None:
    bounds = [one for one in (*beside, outer) if isinstance(one, Bound)]
    if len(bounds) > 1:
        raise SettingsError(f"more than one bound: {bounds}")
    return bounds[0] if bounds else None


def _other_than_none(annotation: Any) -> Any:
    others = [one for one in get_args(annotation) if one is not NoneType]
    if len(others) != 1 or len(get_args(annotation)) != 2:
        raise SettingsError(f"messages cannot hold {annotation}: only one type, or None")
    return others[0]


_UNIONS = (Union, UnionType)
_KEYS = (Integer, Float, Boolean, Text, Data, Choice)
_SINGLE: dict[Any, Callable[[Any], Shape]] = {
    int: Integer,
    float: Float,
    bool: Boolean,
    str: Text,
    bytes: Data,
    Any: Anything,
}
_CONTAINERS: dict[Any, Callable[[tuple[Any, ...], Any, Within], Shape]] = {
    list: _list,
    tuple: _tuple,
    dict: _dict,
}
