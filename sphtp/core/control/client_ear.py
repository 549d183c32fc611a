"""What a client makes of what servers say."""

from collections.abc import Callable
from typing import Any, Protocol

from sphtp.core.control.client_table import ClientSignal, ClientState
from sphtp.core.control.client_voice import ClientVoice
from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.directory import Directory
from sphtp.core.control.events import ClientEvent, UserMessage
from sphtp.core.control.fields import Holder
from sphtp.core.control.identity import Identity
from sphtp.core.control.ids import EVERYBODY
from sphtp.core.control.refusals import Refusals
from sphtp.core.control.server_messages import (
    Ack,
    Nack,
    Peers,
    PeersGone,
    ServerHeartbeat,
    ServerLeave,
    ServerUser,
)
from sphtp.core.control.vocabulary import Reason

Handler = Callable[[float, Any], None]

_E = ClientSignal


class Client(Protocol):
    """Runs the table."""

    state: ClientState

    def signal(self, now: float, event: ClientSignal) -> None:
        """Take an event."""
        ...


class ClientEar:
    """Tells the directory and the table what a message means for each."""

    def __init__(
        self,
        identity: Identity,
        directory: Directory,
        voice: ClientVoice,
        client: Client,
        counters: Counters,
        tell: Callable[[ClientEvent], None],
    ) -> None:
        self.refusals = Refusals()
        self._identity = identity
        self._directory = directory
        self._voice = voice
        self._client = client
        self._counters = counters
        self._tell = tell
        self._handlers: dict[type, Handler] = {
            ServerHeartbeat: self._on_heartbeat,
            ServerLeave: self._on_goodbye,
            Ack: self._on_ack,
            Nack: self._on_nack,
            Peers: self._addressed(directory.hear_peers),
            PeersGone: self._addressed(directory.hear_gone),
            ServerUser: self._addressed(self._on_user),
        }

    def hear(self, now: float, message: object) -> None:
        """Take one message."""
        self._handlers.get(type(message), self._on_foreign)(now, message)

    def look_around(self, now: float) -> None:
        """Signal what holds of the servers now."""
        if self._directory.is_empty:
            self._client.signal(now, _E.SERVERS_LOST)
            return
        self._client.signal(now, _E.SERVER_HEARD)
        if self._directory.is_ready:
            self._client.signal(now, _E.SERVER_READY)
        if self._directory.is_unanimous:
            self._client.signal(now, _E.ACKNOWLEDGED)

    def _on_foreign(self, _: float, __: object) -> None:
        self._counters.add(Count.FOREIGN)

    def _on_heartbeat(self, now: float, message: ServerHeartbeat) -> None:
        self._directory.hear_heartbeat(now, message)
        self.look_around(now)
        is_established = self._client.state is ClientState.ESTABLISHED
        if is_established and self._directory.wants_list(now, message):
            self._voice.lookup(server=message.member.id)

    def _on_goodbye(self, now: float, message: ServerLeave) -> None:
        self._directory.hear_goodbye(message)
        self.look_around(now)

    def _on_ack(self, now: float, message: Ack) -> None:
        self._directory.refresh(now, message.sender)
        own = self._identity.holder
        if any(self._directory.is_for(own, message.sender, each) for each in message.holders):
            self._directory.acknowledge(message.sender)
            self.look_around(now)

    def _on_nack(self, now: float, message: Nack) -> None:
        self._directory.refresh(now, message.sender)
        told = Holder(message.id, message.nonce)
        if not self._directory.is_for(self._identity.holder, message.sender, told):
            self._counters.add(Count.STALE_NONCE)
            return
        if message.reason is Reason.UNKNOWN:
            self._directory.unacknowledge(message.sender)
        self._client.signal(now, self.refusals.note(message.reason))

    def _on_user(self, _: float, message: ServerUser) -> None:
        self._tell(UserMessage(message.sender, message.command, message.parameters))

    def _addressed(self, handler: Handler) -> Handler:
        def checked(now: float, message: Any) -> None:
            if message.to in (EVERYBODY, self._identity.id):
                handler(now, message)
            else:
                self._counters.add(Count.FOREIGN)

        return checked
