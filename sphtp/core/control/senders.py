"""Checks of the senders of messages: their connections and their signatures.

``SenderCheck`` accepts the messages of a known sender only from its own connection, except requests
for the status and announcements without a nonce. ``SignatureProofs`` checks the keys and the
sessions of servers that sign their messages.
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

    A further sender replaces the one that has been silent for longest. After ``wait`` seconds of
    silence a sender may use another connection.
    """

    wait: float
    capacity: int
    _last: dict[Holder, tuple[int, float]] = field(default_factory=dict)
    """The connection of each sender and the time of its last message, the oldest first."""
    _by_pipe: dict[int, set[Holder]] = field(default_factory=dict)

    def admits(self, now: float, holder: Holder, pipe: int) -> bool:
        """Return True if a sender may use this connection, which becomes the sender's own."""
        last = self._last.get(holder)
        if last is not None and last[0] != pipe and now <= last[1] + self.wait:
            return False
        self.note(now, holder, pipe)
        return True

    def note(self, now: float, holder: Holder, pipe: int) -> None:
        """Record the connection of a genuine sender."""
        last = self._last.get(holder)
        if last is not None and last[0] == pipe:
            del self._last[holder]  # to add it again as the newest
        else:
            self.forget(holder)
            self._by_pipe.setdefault(pipe, set()).add(holder)
        self._last[holder] = pipe, now
        if len(self._last) > self.capacity:
            self.forget(next(iter(self._last)))

    def forget(self, holder: Holder) -> None:
        """Remove the connection of a sender, which may then use any connection."""
        last = self._last.pop(holder, None)
        if last is not None:
            shared = self._by_pipe[last[0]]
            shared.discard(holder)
            if not shared:
                del self._by_pipe[last[0]]

    def end(self, pipe: int) -> set[Holder]:
        """Remove a connection that has ended. Return its senders."""
        ended = self._by_pipe.pop(pipe, set())
        for holder in ended:
            del self._last[holder]
        return ended

    def postpone_expiries(self, lag: float) -> None:
        """Do not count ``lag`` seconds as silence, because this process did not run."""
        self._last = {holder: (pipe, at + lag) for holder, (pipe, at) in self._last.items()}

    def __len__(self) -> int:
        return len(self._last)


Pipe = int | None
"""The number of a connection; None if the message itself proves its sender."""


class SenderCheck:
    """The check that a message comes through its sender's own connection.

    ``admits`` is called before a message is handled, ``note`` afterwards. ``servers`` are the live
    servers, ``clients`` the registered clients. Both are live mappings by id.
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
        """Set the most senders whose connections are kept."""
        self._connections.capacity = capacity

    def admits(self, now: float, message: AnyMessage, pipe: Pipe) -> bool:
        """Return True if the message may be from the sender that it names, else count it."""
        if pipe is None or isinstance(message, StatusRequest):
            return True
        # The server's table distinguishes announcements without nonces by earlier messages.
        if isinstance(message, Announce) and message.nonce == NO_NONCE:
            return True
        holder = _holder(message)
        if not self._is_known(holder) or self._connections.admits(now, holder, pipe):
            return True
        self._counters.add(Count.FOREIGN_PIPE)
        return False

    def note(self, now: float, message: AnyMessage, pipe: Pipe, through: Pipe) -> None:
        """Record the connection of a sender that this message has made known.

        The connection of a sender that proves itself in each message is ``through``, that of its
        last message.
        """
        if pipe is not None:
            # The message was admitted: its sender has no other connection, or was unknown before.
            if isinstance(message, Announce | ServerHeartbeat):
                holder = _holder(message)
                if self._is_known(holder):
                    self._connections.note(now, holder, pipe)
        elif through is not None and isinstance(message, ClientMessage):
            holder = _holder(message)
            if not isinstance(message, StatusRequest) and self._is_known(holder):
                self._connections.note(now, holder, through)

    def end(self, pipe: int) -> set[Holder]:
        """Remove a connection that has ended. Return its senders, which may use another one."""
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
    """Return the sender of a message: a client with its nonce, a server without a nonce."""
    if isinstance(message, ClientMessage):
        return Holder(message.id, message.nonce)
    number = message.member.id if isinstance(message, ServerHeartbeat) else message.sender
    return Holder(number, NO_NONCE)


class SigningSession(NamedTuple):
    """One run of a process that signs: its public key, and a number that it drew at its start."""

    key: bytes
    boot: int


MOST_SESSIONS: Final = 4 * MAX_MEMBERS
"""The most sessions that are kept: those of all members, and of some former members."""

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
    """The checks that messages of servers are from their own present sessions.

    A session is proven if one of its messages has repeated this side's nonce: so it is no replay.
    ``servers`` are the live servers by id.
    """

    __slots__ = ("_counters", "_keys", "_proven", "_servers")

    def __init__(self, counters: ControlCounters, servers: Mapping[int, object]) -> None:
        self._counters = counters
        self._servers = servers
        self._proven: ExpiringDict[SigningSession, None] = ExpiringDict(MOST_SESSIONS)
        self._keys: ExpiringDict[int, bytes] = ExpiringDict(MOST_SESSIONS)

    def admits(self, message: AnyMessage, session: SigningSession, own: Holder) -> bool:
        """Return True if the message is accepted, else count it. ``own`` has this side's nonce.

        A live server must sign with the same key as before. Messages about clients are accepted
        only from a proven session.
        """
        if (sender := _server(message)) is None:
            return True
        # A restarted server may have the same id and key; its session has another ``boot``.
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
    """Return the server that a message names as its sender; None for a client's message."""
    if isinstance(message, ServerHeartbeat):
        return message.member.id
    return getattr(message, "sender", None)
