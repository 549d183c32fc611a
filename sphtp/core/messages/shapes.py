"""What an annotation stands for: its msgpack form, its bits and its description."""

from abc import ABC, abstractmethod
from collections.abc import Sized
from typing import Any, ClassVar, TypeVar

from sphtp.core.messages.bounds import Limit
from sphtp.core.messages.stream import Stream
from sphtp.errors import SettingsError, WireError

V = TypeVar("V")


class Shape(ABC):
    """What an annotation stands for."""

    exact: type | None = None
    """Set where every value of just this type is right, and is its own msgpack form."""

    accepts: ClassVar[tuple[type, ...]] = ()
    """The bounds that it understands."""

    @property
    @abstractmethod
    def text(self) -> str:
        """Its description, equal on all machines."""

    @abstractmethod
    def pack(self, value: Any) -> Any:
        """Turn a value into its msgpack form; raises ``WireError`` for a wrong one."""

    @abstractmethod
    def unpack(self, plain: Any) -> Any:
        """Turn the msgpack form back, of whatever the peer sent; raises ``WireError``."""

    def serialize(self, stream: Stream, value: Any) -> Any:
        """Pass a value through a stream of bits; raises ``WireError``."""
        raise SettingsError(f"{self.text} has no form in bits without a bound")


def only(kind: type[V], value: Any) -> V:
    """Return the value if it is of just this type, no subclass.

    Raises:
        WireError: it is not.
    """
    if type(value) is not kind:
        raise WireError(f"{kind.__name__} wanted, {type(value).__name__} given")
    same: V = value
    return same


def limited(text: str, limit: Limit | None) -> str:
    """Describe something that has a limit, or none."""
    return f"{text}[{limit.maximum}]" if limit else text


def needed(limit: Limit | None, text: str) -> int:
    """Return the maximum.

    Raises:
        SettingsError: there is no limit.
    """
    if limit is None:
        raise SettingsError(f"{text} in bits wants Limit beside it")
    return limit.maximum


def check_limit(limit: Limit | None, value: Sized) -> None:
    """Refuse what is longer than its limit.

    Raises:
        WireError: it is.
    """
    if limit is not None and len(value) > limit.maximum:
        raise WireError(f"{len(value)} over the limit of {limit.maximum}")
