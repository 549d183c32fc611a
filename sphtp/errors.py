"""The error tree: what went wrong, and whose doing it was.

Code raises ``LocalError``; where bytes from the network are decoded, the one receive entry re-types
it as ``RemoteError`` (see ``untrusted``), so that a caller can tell its own mistake from a peer's.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class SphtpError(Exception):
    """Root of every error this library raises by itself."""


class LocalError(SphtpError):
    """This side did something that it must not do."""


class RemoteError(SphtpError):
    """The other side sent something that it must not send. Drop it, count it, go on."""


class WireError(LocalError):
    """A value does not fit its field, or a buffer ends before its last field."""


class StateError(LocalError):
    """A command that the present state refuses."""


class SettingsError(LocalError):
    """A setting that is wrong by itself or contradicts another one; the message names it."""


class MessageTooLargeError(LocalError):
    """A message over the limits of its channel; the message names size and limit."""


class RefusedError(SphtpError):
    """Servers, or a peer, said no; ``reason`` is their word for why."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnreachableError(SphtpError):
    """Nobody answered before the deadline; the message says who was waited for, and how long."""


def untrusted(decode: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that is fed network bytes: only ``RemoteError`` leaves it.

    By convention such a function's name ends in ``_untrusted``.
    """

    @wraps(decode)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return decode(*args, **kwargs)
        except LocalError as error:
            raise RemoteError(str(error)) from error

    return guarded
