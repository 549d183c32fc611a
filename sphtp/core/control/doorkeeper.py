"""Lets in what comes through the connection of whoever it claims to be from."""

from collections.abc import Callable

from sphtp.core.control.client_messages import Announce, ClientMessage, StatusRequest
from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.fields import Holder
from sphtp.core.control.ids import NO_NONCE
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
        if pipe is None or isinstance(message, StatusRequest):
            return True
        # Announcements without nonces are told apart by what was announced before.
        if isinstance(message, Announce) and message.nonce == NO_NONCE:
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
        if pipe is not None:
            if isinstance(message, Announce | ServerHeartbeat):
                holder = _holder(message)
                if self._is_known(holder):
                    self._origins.admits(now, holder, pipe)
        elif through is not None and isinstance(message, ClientMessage):
            holder = _holder(message)
            if not isinstance(message, StatusRequest) and self._is_known(holder):
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
        if holder.id & 1:
            return self._is_holder(holder)
        return self._is_server(holder.id)


def _holder(message: ClientMessage | ServerMessage | MemberMessage) -> Holder:
    """The client with its nonce; the server whatever its nonce, which few of its messages tell."""
    if isinstance(message, ClientMessage):
        return Holder(message.id, message.nonce)
    number = message.member.id if isinstance(message, ServerHeartbeat) else message.sender
    return Holder(number, NO_NONCE)
