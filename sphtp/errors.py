"""The error tree, which tells local errors from errors of the other side.

Code raises ``LocalError``; where bytes from the network are decoded, the one receive entry re-types
it as ``RemoteError`` (see ``untrusted``), so that a caller can tell its own mistake from a peer's.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class SphtpError(Exception):
    """Root of every error this library raises by itself."""


class LocalError(SphtpError):
    """An error of this side: a wrong call, value or state."""


class RemoteError(SphtpError):
    """The other side sent a message that is not allowed. Drop it, count it, and go on."""


class WireError(LocalError):
    """A value does not fit its field, or a buffer ends before its last field."""


class StateError(LocalError):
    """A command that the present state refuses."""


class SettingsError(LocalError):
    """A setting that is wrong by itself or contradicts another one; the message names it."""


class MessageTooLargeError(LocalError):
    """A message over the limits of its channel; the message names size and limit."""


class BusError(LocalError):
    """An address cannot be listened on or dialled; the message names it."""


class BusAddressInUseError(BusError):
    """Another program listens on that address already; the message names it."""


class UdpAddressError(SettingsError):
    """This machine cannot bind an address; the message names it."""


class WebAddressError(SettingsError):
    """This machine cannot serve HTTP at an address; the message names it."""


class RefusedError(SphtpError):
    """Servers, or a peer, refused; ``reason`` is the reason that they sent."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnreachableError(SphtpError):
    """No answer came before the deadline; the message names the missing peer and the time."""


class RequestError(SphtpError):
    """An error that the handler of a request raises for its caller, with a text and data.

    A program has subclasses of it for its own errors. ``kind`` is the name of the class that the
    handler raised. ``Client.request`` raises that class if it is among its ``errors``, and else
    this one.
    """

    def __init__(self, text: str = "", *, data: Any = None) -> None:
        super().__init__(text)
        self.text = text
        self.data = data
        self.kind = type(self).__name__


class HandlerCrashedError(SphtpError):
    """The peer's handler of a request raised an error that was not meant for the caller.

    The peer has it in its log.
    """


class GroupError(SphtpError):
    """A group cannot go on, or not with this member."""


class MemberDiedError(GroupError):
    """A member of a group died, and the group was joined with ``on_death="raise"``.

    All members raise it for the same member and the same step.
    """

    def __init__(self, name: str, step: int, peer_id: int) -> None:
        super().__init__(f"{name} died at step {step}")
        self.name = name
        self.step = step
        """The first step to which it did not contribute."""
        self.peer_id = peer_id


class ExcludedError(GroupError):
    """The group goes on without this member, or may; the message says why. It can join again."""


def untrusted(decode: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that takes bytes from the network: it raises only ``RemoteError``.

    By convention such a function's name ends in ``_untrusted``.
    """

    @wraps(decode)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return decode(*args, **kwargs)
        except LocalError as error:
            raise RemoteError(str(error)) from error

    return guarded
