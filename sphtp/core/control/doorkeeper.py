"""Lets in what comes through the connection of whoever it claims to be from."""

from collections.abc import Callable

from sphtp.core.control.client_messages import Announce, ClientMessage, StatusRequest
from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.fields import Holder
from sphtp.core.control.ids import NO_NONCE, is_client_id
from sphtp.core.control.intake import AnyMessage
from sphtp.core.control.member_messages import MemberMessage
from sphtp.core.control.origins import Origins
from sphtp.core.control.server_messages import ServerHeartbeat, ServerMessage

Pipe = int | None
"""The number of a connection; None when the message proves by itself who sent it."""


class Doorkeeper:
    """Asked before a message counts, and told after it did.

    ``is_holder`` tells whether somebody is registered, and ``is_server`` whether one is heard.
    """

    __slots__ = ("_counters", "_is_holder", "_is_server", "_origins")

    def __init__(
        self,
        origins: Origins,
        counters: Counters,
        *,
        is_server: Callable[[int], bool],
        is_holder: Callable[[Holder], bool] = lambda _: False,
    ) -> None:
        self._origins = origins
        self._counters = counters
        self._is_server = is_server
        self._is_holder = is_holder

    def admits(self, now: float, message: AnyMessage, pipe: Pipe) -> bool:
        """Tell whether a message may be from whom it says; count it if not."""
        if pipe is None or _is_open_to_all(message):
            return True
        holder = _holder(message)
        if not self._is_known(holder):
            self._origins.forget(holder)
            return True
        if self._origins.admits(now, holder, pipe):
            return True
        self._counters.add(Count.FOREIGN_PIPE)
        return False

    def note(self, now: float, message: AnyMessage, pipe: Pipe, through: Pipe = None) -> None:
        """Keep the connection through which somebody made itself known.

        Of who proves itself in each message, keep the one ``through`` which it spoke last.
        """
        if isinstance(message, StatusRequest) or not self._is_known(holder := _holder(message)):
            return
        if pipe is not None and isinstance(message, Announce | ServerHeartbeat):
            self._origins.admits(now, holder, pipe)
        elif pipe is None and through is not None and isinstance(message, ClientMessage):
            self._origins.note(now, holder, through)

    def end(self, pipe: int) -> set[Holder]:
        """Note that a connection has ended: its senders may come back through another one.

        Return those that spoke through it last.
        """
        return self._origins.end(pipe)

    def forgive(self, lag: float) -> None:
        """Postpone every expiry."""
        self._origins.forgive(lag)

    def _is_known(self, holder: Holder) -> bool:
        if is_client_id(holder.id):
            return self._is_holder(holder)
        return self._is_server(holder.id)


def _is_open_to_all(message: AnyMessage) -> bool:
    # Announcements without nonces are told apart by what was announced before.
    plain = isinstance(message, Announce) and message.nonce == NO_NONCE
    return plain or isinstance(message, StatusRequest)


def _holder(message: ClientMessage | ServerMessage | MemberMessage) -> Holder:
    """The client with its nonce; the server whatever its nonce, which few of its messages tell."""
    if isinstance(message, ClientMessage):
        return Holder(message.id, message.nonce)
    number = message.member.id if isinstance(message, ServerHeartbeat) else message.sender
    return Holder(number, NO_NONCE)
