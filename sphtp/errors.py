"""The errors of this library, in a tree that separates local errors from those of the other side.

Code that checks a value raises ``LocalError``. A function that takes bytes from the network
converts it to ``RemoteError`` (see ``untrusted``). So a caller can distinguish its own mistake from
a peer's.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

__all__ = [
    "BusAddressInUseError",
    "BusError",
    "ExcludedError",
    "GroupError",
    "HandlerCrashedError",
    "LocalError",
    "MemberDiedError",
    "MessageTooLargeError",
    "RefusedError",
    "RemoteError",
    "RequestError",
    "SettingsError",
    "SphtpError",
    "StateError",
    "UdpAddressError",
    "UnreachableError",
    "WebAddressError",
    "WireError",
]

P = ParamSpec("P")
R = TypeVar("R")


class SphtpError(Exception):
    """Base class of the errors that this library defines, except those of `sphtp.testing`."""


class LocalError(SphtpError):
    """An error of this side: a wrong call, value or state."""


class RemoteError(SphtpError):
    """A message of the other side that is malformed or not allowed."""


class WireError(LocalError):
    """A value that no message can carry, or bytes that are not a valid message."""


class StateError(LocalError):
    """A command that the present state refuses."""


class SettingsError(LocalError):
    """A setting that is wrong by itself or contradicts another one, or an unfit type of message.

    The text names the setting, the type or the value.
    """


class MessageTooLargeError(LocalError):
    """A message over a limit: of its bytes, of the number of its values, or of their nesting.

    The text of the error names the limit.
    """


class BusError(LocalError):
    """An address on which the message bus cannot listen, or that it cannot dial.

    The message names the address.
    """


class BusAddressInUseError(BusError):
    """An address on which another program listens already; the message names it."""


class UdpAddressError(SettingsError):
    """A UDP address that this machine cannot bind, or an interface that it does not have.

    The message names it.
    """


class WebAddressError(SettingsError):
    """An address at which this machine cannot serve HTTP; the message names it."""


class RefusedError(SphtpError):
    """A refusal by the servers or by a peer; ``reason`` is a word for the cause, such as "full"."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnreachableError(SphtpError):
    """A peer, a server or a source that cannot be reached, with the cause.

    For example, it is silent, unknown, ambiguous or without a usable address, or its answer is
    malformed.
    """


class RequestError(SphtpError):
    """An error that the handler of a request raises for its caller, with a text and data.

    Programs derive their own errors from it. ``kind`` is the name of the class that the handler
    raised. ``Client.request`` raises the class of that name among its ``errors``, or else
    ``RequestError``.
    """

    def __init__(self, text: str = "", *, data: Any = None) -> None:
        super().__init__(text)
        self.text = text
        self.data = data
        self.kind = type(self).__name__


class HandlerCrashedError(SphtpError):
    """The peer's handler of a request raised another error than ``RequestError``.

    It is also raised if the result of the handler, or the data of its ``RequestError``, cannot be
    sent. The log of the peer has the error; the caller gets no details.
    """


class GroupError(SphtpError):
    """An error that ends the membership of this client in a group in lock step."""


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
    """The exclusion of this member: the group goes on without it, or may do so.

    The message has the cause. The client can join the group again, as a new member.
    """


def untrusted(decode: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that takes bytes from the network: ``LocalError`` becomes ``RemoteError``.

    By convention such a function's name ends in ``_untrusted``.
    """

    @wraps(decode)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return decode(*args, **kwargs)
        except LocalError as error:
            raise RemoteError(str(error)) from error

    return guarded
