"""What has to be shown by servers that sign, before they are believed about clients.

A signature says who has spoken, not when. Somebody with a recording of a server's life can play it
to a program that has just begun, and numbers tell that program nothing. So whoever listens waits
for its own nonce, which no recording holds: an ACK repeats a client's, and a heartbeat names the
servers of the view with theirs. From then on the numbers of that server's messages show that they
are new. What it says about clients before is left out, and asked for afterwards.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.fields import Holder
from sphtp.core.control.ids import NO_NONCE
from sphtp.core.control.intake import AnyMessage
from sphtp.core.control.member_messages import Registered, Released, Snapshot
from sphtp.core.control.records import MAX_MEMBERS
from sphtp.core.control.server_messages import (
    Ack,
    Peers,
    PeersGone,
    ServerHeartbeat,
    ServerUser,
)
from sphtp.core.timers import ExpiringDict


class Session(NamedTuple):
    """The life of a process that signs: its public key, and a number drawn when it began."""

    key: bytes
    boot: int


CAPACITY: Final = 4 * MAX_MEMBERS
"""Sessions remembered: those of all members, and of some that are gone."""

_ABOUT_CLIENTS: Final = (Peers, PeersGone, ServerUser, Registered, Released, Snapshot)


class Proofs:
    """Which sessions have repeated this side's nonce, and whose key speaks for which server.

    ``own`` returns this side's id and nonce; ``is_server`` tells whether a server is heard.
    """

    __slots__ = ("_counters", "_is_server", "_keys", "_own", "_proven")

    def __init__(
        self, counters: Counters, own: Callable[[], Holder], is_server: Callable[[int], bool]
    ) -> None:
        self._counters = counters
        self._own = own
        self._is_server = is_server
        self._proven: ExpiringDict[Session, None] = ExpiringDict(CAPACITY)
        self._keys: ExpiringDict[int, bytes] = ExpiringDict(CAPACITY)

    def admits(self, message: AnyMessage, session: Session | None) -> bool:
        """Tell whether a message may count; count it if not. Without a session it may."""
        if session is None or (sender := _server(message)) is None:
            return True
        # A server that was restarted may have its id again, and has another boot.
        if self._is_server(sender) and self._keys.get(sender) not in (None, session.key):
            self._counters.add(Count.FOREIGN_KEY)
            return False
        if self._repeats_nonce(message):
            self._proven.put(session, None)
        if isinstance(message, _ABOUT_CLIENTS) and session not in self._proven:
            self._counters.add(Count.UNPROVEN)
            return False
        self._keys.put(sender, session.key)
        return True

    def _repeats_nonce(self, message: AnyMessage) -> bool:
        own = self._own()
        if own.nonce == NO_NONCE:
            return False
        if isinstance(message, Ack):
            return own in message.holders
        if isinstance(message, ServerHeartbeat):
            return own in (Holder(each.id, each.nonce) for each in message.view.members)
        return False


def _server(message: AnyMessage) -> int | None:
    """The server that a message claims to be from; None for what clients say."""
    if isinstance(message, ServerHeartbeat):
        return message.member.id
    return getattr(message, "sender", None)
