"""The sender of a message: who it is, through which connection it may come, and what it signs.

``SenderCheck`` accepts a message only from its sender's own connection. ``SignatureProofs`` checks
what servers signed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sphtp.core.control.client_messages import Announce, ClientMessage, StatusRequest
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.records import MAX_MEMBERS, Holder, PeerRecord
from sphtp.core.control.server_messages import (
    AnyMessage,
    IdAck,
    PeerCheck,
    Peers,
    PeersGone,
    Registered,
    Released,
    ServerHeartbeat,
    ServerUser,
    Snapshot,
)
from sphtp.core.control.vocabulary import NO_NONCE
from sphtp.core.timers import ExpiringDict


@dataclass(slots=True)
class SenderConnections:
    """The connection of each sender, for ``capacity`` senders at most.

    When there are more, the one that was silent longest is forgotten. After ``wait`` seconds of
    silence a sender may use another connection.
    """

    wait: float
    capacity: int
    _last: dict[Holder, tuple[int, float]] = field(default_factory=dict)
    """The connection of each sender, and when it was last heard through it, in this order."""
    _by_pipe: dict[int, set[Holder]] = field(default_factory=dict)

    def admits(self, now: float, holder: Holder, pipe: int) -> bool:
        """Return True if a sender may use this connection; if so, it becomes the sender's."""
        last = self._last.get(holder)
        if last is not None and last[0] != pipe and now <= last[1] + self.wait:
            return False
        self.note(now, holder, pipe)
        return True

    def note(self, now: float, holder: Holder, pipe: int) -> None:
        """Note that a sender that has proved itself uses this connection."""
        last = self._last.get(holder)
        if last is not None and last[0] == pipe:
            del self._last[holder]  # and becomes the newest
        else:
            self.forget(holder)
            self._by_pipe.setdefault(pipe, set()).add(holder)
        self._last[holder] = pipe, now
        if len(self._last) > self.capacity:
            self.forget(next(iter(self._last)))

    def forget(self, holder: Holder) -> None:
        """Accept the sender's messages from any connection, because its id is free again."""
        last = self._last.pop(holder, None)
        if last is not None:
            shared = self._by_pipe[last[0]]
            shared.discard(holder)
            if not shared:
                del self._by_pipe[last[0]]

    def end(self, pipe: int) -> set[Holder]:
        """Note that a connection has ended. Return the senders that used it last."""
        ended = self._by_pipe.pop(pipe, set())
        for holder in ended:
            del self._last[holder]
        return ended

    def postpone_expiries(self, lag: float) -> None:
        """Do not count these seconds as silence: this process did not run."""
        self._last = {holder: (pipe, at + lag) for holder, (pipe, at) in self._last.items()}

    def __len__(self) -> int:
        return len(self._last)


Pipe = int | None
"""The number of a connection; None if the message itself proves its sender."""


class SenderCheck:
    """The check that a message comes through its sender's own connection.

    ``admits`` is called before a message counts, ``note`` afterwards. ``servers`` are the servers
    that are heard, ``clients`` the registered clients: live mappings by id.
    """

    __slots__ = ("_clients", "_connections", "_counters", "_servers")

    def __init__(
        self,
        connections: SenderConnections,
        counters: ControlCounters,
        *,
        servers: Mapping[int, object],
        clients: Mapping[int, PeerRecord],
    ) -> None:
        self._connections = connections
        self._counters = counters
        self._servers = servers
        self._clients = clients

    def set_capacity(self, capacity: int) -> None:
        """Change the most senders whose connections are known."""
        self._connections.capacity = capacity

    def admits(self, now: float, message: AnyMessage, pipe: Pipe) -> bool:
        """Return True if a message may be from the sender that it names; count it if not."""
        if pipe is None or isinstance(message, StatusRequest):
            return True
        # Announcements without nonces are told apart by what was announced before.
        if isinstance(message, Announce) and message.nonce == NO_NONCE:
            return True
        holder = _holder(message)
        if not self._is_known(holder) or self._connections.admits(now, holder, pipe):
            return True
        self._counters.add(Count.FOREIGN_PIPE)
        return False

    def note(self, now: float, message: AnyMessage, pipe: Pipe, through: Pipe) -> None:
        """Note the connection of a sender that a message made known.

        A sender that proves itself in each message is noted with the connection ``through`` which
        the last one came.
        """
        if pipe is not None:
            # It was admitted, so its sender has no other connection, or was not known until now.
            if isinstance(message, Announce | ServerHeartbeat):
                holder = _holder(message)
                if self._is_known(holder):
                    self._connections.note(now, holder, pipe)
        elif through is not None and isinstance(message, ClientMessage):
            holder = _holder(message)
            if not isinstance(message, StatusRequest) and self._is_known(holder):
                self._connections.note(now, holder, through)

    def end(self, pipe: int) -> set[Holder]:
        """Note that a connection has ended. Return the senders that used it last.

        They may come back through another connection.
        """
        return self._connections.end(pipe)

    def postpone_expiries(self, lag: float) -> None:
        """Postpone every expiry by ``lag`` seconds."""
        self._connections.postpone_expiries(lag)

    def _is_known(self, holder: Holder) -> bool:
        if holder.id & 1:
            record = self._clients.get(holder.id)
            return record is not None and record.nonce == holder.nonce
        return holder.id in self._servers


def _holder(message: AnyMessage) -> Holder:
    """Return the sender: a client with its nonce, a server without."""
    if isinstance(message, ClientMessage):
        return Holder(message.id, message.nonce)
    number = message.member.id if isinstance(message, ServerHeartbeat) else message.sender
    return Holder(number, NO_NONCE)


class SigningSession(NamedTuple):
    """One run of a process that signs: its public key, and a number drawn when it began."""

    key: bytes
    boot: int


MOST_SESSIONS: Final = 4 * MAX_MEMBERS
"""The most sessions that are remembered: those of all members, and of some that are gone."""

_ABOUT_CLIENTS: Final = (
    Peers,
    PeersGone,
    PeerCheck,
    ServerUser,
    Registered,
    Released,
    Snapshot,
)


class SignatureProofs:
    """The checks that servers signed their messages recently, with certified keys.

    A session is recent if it has repeated this side's nonce. ``servers`` are the servers that are
    heard, by id.
    """

    __slots__ = ("_counters", "_keys", "_proven", "_servers")

    def __init__(self, counters: ControlCounters, servers: Mapping[int, object]) -> None:
        self._counters = counters
        self._servers = servers
        self._proven: ExpiringDict[SigningSession, None] = ExpiringDict(MOST_SESSIONS)
        self._keys: ExpiringDict[int, bytes] = ExpiringDict(MOST_SESSIONS)

    def admits(self, message: AnyMessage, session: SigningSession, own: Holder) -> bool:
        """Return True if a message is accepted; if not, count it as dropped.

        ``own`` has this side's nonce.
        """
        if (sender := _server(message)) is None:
            return True
        # A server that was restarted may have its id again, and has another boot.
        if sender in self._servers and self._keys.get(sender) not in (None, session.key):
            self._counters.add(Count.FOREIGN_KEY)
            return False
        if own.nonce != NO_NONCE and _repeats(message, own):
            self._proven.put(session, None)
        if isinstance(message, _ABOUT_CLIENTS) and session not in self._proven:
            self._counters.add(Count.UNPROVEN)
            return False
        self._keys.put(sender, session.key)
        return True


def _repeats(message: AnyMessage, own: Holder) -> bool:
    if isinstance(message, IdAck):
        return own in message.holders
    if isinstance(message, ServerHeartbeat):
        return own in (Holder(each.id, each.nonce) for each in message.view.members)
    return False


def _server(message: AnyMessage) -> int | None:
    """Return the server that a message claims to be from; None if it is a client's message."""
    if isinstance(message, ServerHeartbeat):
        return message.member.id
    return getattr(message, "sender", None)
