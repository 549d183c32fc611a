"""The client of the control plane: its id, what it says, and what it makes of what servers say."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sphtp.core.control import events
from sphtp.core.control.client_messages import (
    Announce,
    ClientData,
    ClientUser,
    Heartbeat,
    Leave,
    Lookup,
)
from sphtp.core.control.client_table import (
    CLIENT,
    NACKS,
    ClientAction,
    ClientSignal,
    ClientState,
)
from sphtp.core.control.codec import Holder, Parameter, check_user_message
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.directory import Directory
from sphtp.core.control.events import ClientEvent, UserMessage
from sphtp.core.control.inbound import (
    MessageReader,
    Pipe,
    SenderCheck,
    SenderConnections,
    SignatureProofs,
    SigningSession,
)
from sphtp.core.control.liveness import SleepWatch
from sphtp.core.control.outputs import BusCommand, Subscribe, Unsubscribe, topic
from sphtp.core.control.records import (
    KEY_SIZE,
    MAX_CANDIDATES,
    MAX_DATA,
    MAX_MEMBERS,
    Candidate,
    ClusterView,
    Member,
    PeerRecord,
    ServerAddress,
    check_topics,
    next_revision,
)
from sphtp.core.control.server_messages import (
    IdAck,
    IdNack,
    Peers,
    PeersGone,
    ServerHeartbeat,
    ServerLeave,
    ServerUser,
)
from sphtp.core.control.settings import ClientLimits, ControlTimers
from sphtp.core.control.vocabulary import EVERYBODY, NO_NONCE, Reason, draw_client_id, draw_nonce
from sphtp.core.entropy import Entropy, Secrets
from sphtp.core.fsm import Alarms, Runner
from sphtp.core.timers import earliest
from sphtp.errors import MessageTooLargeError, SettingsError, StateError


class ClientIdentity:
    """Draws ids (seed, step 4); the given ones come first."""

    def __init__(self, entropy: Entropy, secrets: Secrets, ids: Iterator[int]) -> None:
        self.id = 0
        self.nonce = NO_NONCE
        self._entropy = entropy
        self._secrets = secrets
        self._ids = ids
        self._queue: deque[Subscribe | Unsubscribe] = deque((Subscribe(topic(EVERYBODY)),))

    @property
    def holder(self) -> Holder:
        """Id and nonce."""
        return Holder(self.id, self.nonce)

    def draw(self, is_taken: Callable[[int], bool]) -> None:
        """Take another id and nonce; subscribe to the new id before leaving the old one."""
        old, self.id = self.id, next(self._ids, None) or self._draw_free(is_taken)
        self.nonce = draw_nonce(self._secrets)
        if old != self.id:
            self._queue.append(Subscribe(topic(self.id)))
            if old:
                self._queue.append(Unsubscribe(topic(old)))

    def give_up(self) -> None:
        """Hold no id; answers to the old one find no nonce any more."""
        self.nonce = NO_NONCE

    def poll_bus(self) -> Subscribe | Unsubscribe | None:
        """Return the next change of subscriptions, or None."""
        return self._queue.popleft() if self._queue else None

    def _draw_free(self, is_taken: Callable[[int], bool]) -> int:
        while True:
            number = draw_client_id(self._entropy)
            if not is_taken(number):
                return number


_SIGNALS: Final = {
    Reason.CONFLICT: ClientSignal.CONFLICT,
    Reason.FULL: ClientSignal.BUSY,
    Reason.DENIED: ClientSignal.DENIED,
    Reason.VERSION: ClientSignal.DENIED,
    Reason.UNKNOWN: ClientSignal.UNKNOWN,
    Reason.STALE_DATA: ClientSignal.STALE,
}


class Refusals:
    """The last reason heard, and what each means to the table."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: Reason | None = None

    @property
    def why(self) -> Reason:
        """The reason to tell the application."""
        return Reason.CONFLICT if self.last is None else self.last

    def note(self, reason: Reason) -> ClientSignal:
        """Return what has happened; what we do not know costs the id."""
        self.last = reason
        return _SIGNALS.get(reason, ClientSignal.CONFLICT)


class ClientSender:
    """Builds a client's messages; every one carries the present id and nonce."""

    def __init__(
        self,
        identity: ClientIdentity,
        candidates: Sequence[Candidate],
        data: bytes,
        key: bytes = b"",
    ) -> None:
        if len(candidates) > MAX_CANDIDATES:
            raise SettingsError(f"{len(candidates)} candidates are over {MAX_CANDIDATES}")
        if len(key) not in (0, KEY_SIZE):
            raise SettingsError(f"a public key of {len(key)} bytes; allowed is {KEY_SIZE}")
        self._key = key
        self._identity = identity
        self._candidates = tuple(candidates)
        self._data = _checked(data)
        self._topics: tuple[str, ...] = ()
        self._revision = 1 if data else 0
        self._queue: deque[bytes] = deque()

    def announce(self) -> None:
        """Ask for the id (seed, step 5)."""
        self._queue_message(Announce(*self._identity.holder, self._candidates, key=self._key))

    def heartbeat(self) -> None:
        """Say that the holder of the id is alive."""
        self._queue_message(Heartbeat(*self._identity.holder, self._revision))

    def send_data(self) -> None:
        """Send the initial simulation data (seed, step 10) and the topics, if there are any."""
        if self._revision:
            holder = self._identity.holder
            self._queue_message(ClientData(*holder, self._revision, self._data, self._topics))

    def lookup(self, *, peer: int | None = None, server: int | None = None) -> None:
        """Ask for one peer or all, one server or all."""
        self._queue_message(Lookup(*self._identity.holder, peer, server))

    def withdraw(self) -> None:
        """Give the id up, if one is announced or held."""
        if self._identity.nonce != NO_NONCE:
            self._queue_message(Leave(*self._identity.holder))
        self._identity.give_up()

    def publish(self, command: int, parameters: Sequence[Parameter]) -> None:
        """Send a command of the application. Raises ``StateError``, ``MessageTooLargeError``."""
        check_user_message(command, parameters)
        self._queue_message(ClientUser(*self._identity.holder, command, tuple(parameters)))

    def set_data(self, data: bytes) -> None:
        """Replace the initial simulation data. Raises ``MessageTooLargeError``."""
        self._data = _checked(data)
        self._revision = next_revision(self._revision)

    def set_topics(self, topics: Iterable[str]) -> None:
        """Replace the topics. Raises ``SettingsError``."""
        self._topics = check_topics(topics)
        self._revision = next_revision(self._revision)

    def poll(self) -> bytes | None:
        """Return the next message, or None."""
        return self._queue.popleft() if self._queue else None

    def _queue_message(
        self, message: Announce | Heartbeat | ClientData | Lookup | Leave | ClientUser
    ) -> None:
        self._queue.append(message.encode())


def _checked(data: bytes) -> bytes:
    if len(data) > MAX_DATA:
        raise MessageTooLargeError(f"{len(data)} bytes of data are over {MAX_DATA}")
    return data


Handler = Callable[[float, Any], None]

_E = ClientSignal


class ServerMessageHandler:
    """Tells the directory and the table what a message means for each."""

    def __init__(
        self,
        identity: ClientIdentity,
        directory: Directory,
        sender: ClientSender,
        client: "ClientMachine",
        counters: ControlCounters,
        events: deque[ClientEvent],
    ) -> None:
        self.refusals = Refusals()
        self._identity = identity
        self._directory = directory
        self._sender = sender
        self._client = client
        self._counters = counters
        self._events = events
        self._handlers: dict[type, Handler] = {
            ServerHeartbeat: self._on_heartbeat,
            ServerLeave: self._on_leave,
            IdAck: self._on_ack,
            IdNack: self._on_nack,
            Peers: self._addressed(directory.handle_peers),
            PeersGone: self._addressed(directory.handle_gone),
            ServerUser: self._addressed(self._on_user),
        }

    def handle(self, now: float, message: object) -> None:
        """Take one message."""
        self._handlers.get(type(message), self._on_foreign)(now, message)

    def signal_servers(self, now: float) -> None:
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
        self._directory.handle_heartbeat(now, message)
        self.signal_servers(now)
        is_established = self._client.state is ClientState.ESTABLISHED
        if is_established and self._directory.wants_list(now, message):
            self._sender.lookup(server=message.member.id)

    def _on_leave(self, now: float, message: ServerLeave) -> None:
        self._directory.handle_leave(message)
        self.signal_servers(now)

    def _on_ack(self, now: float, message: IdAck) -> None:
        self._directory.refresh(now, message.sender)
        own = self._identity.holder
        if any(self._directory.is_for(own, message.sender, each) for each in message.holders):
            self._directory.acknowledge(message.sender)
            self.signal_servers(now)

    def _on_nack(self, now: float, message: IdNack) -> None:
        self._directory.refresh(now, message.sender)
        told = Holder(message.id, message.nonce)
        if not self._directory.is_for(self._identity.holder, message.sender, told):
            self._counters.add(Count.STALE_NONCE)
            return
        if message.reason is Reason.UNKNOWN:
            self._directory.unacknowledge(message.sender)
        self._client.signal(now, self.refusals.note(message.reason))

    def _on_user(self, _: float, message: ServerUser) -> None:
        self._events.append(UserMessage(message.sender, message.command, message.parameters))

    def _addressed(self, handler: Handler) -> Handler:
        def checked(now: float, message: Any) -> None:
            if message.to in (EVERYBODY, self._identity.id):
                handler(now, message)
            else:
                self._counters.add(Count.FOREIGN)

        return checked


_DEFAULT_LIMITS = ClientLimits()

_S, _E, _A = ClientState, ClientSignal, ClientAction


class ClientMachine:
    """One client: finds an id that every server acknowledges, keeps it, and knows its peers.

    ``entropy`` decides, ``secrets`` makes nonces; ``key`` is its public key, which peers learn;
    ``ids`` makes it announce these ids before it draws any. Raises ``SettingsError`` and
    ``MessageTooLargeError``.
    """

    def __init__(
        self,
        entropy: Entropy,
        timers: ControlTimers,
        *,
        secrets: Secrets,
        servers: Sequence[ServerAddress],
        candidates: Sequence[Candidate],
        data: bytes = b"",
        key: bytes = b"",
        ids: Iterator[int] | None = None,
        limits: ClientLimits = _DEFAULT_LIMITS,
    ) -> None:
        self.state = CLIENT.initial
        """Where the client is on its way."""
        self.alarms = Alarms[ClientSignal]()
        self.counters = ControlCounters()
        self._entropy = entropy
        self._timers = timers
        self._events: deque[events.ClientEvent] = deque()
        self._identity = ClientIdentity(entropy, secrets, ids or iter(()))
        self._sender = ClientSender(self._identity, candidates, data, key)
        self._directory = Directory(timers, servers, self.counters, self._events, limits.max_peers)
        self._reader = MessageReader(
            self.counters, for_client=True, known=self._directory.roster.records
        )
        self._senders = SenderCheck(
            SenderConnections(timers.expiry / 2, MAX_MEMBERS),
            self.counters,
            is_server=self._directory.is_heard,
        )
        self._proofs = SignatureProofs(
            self.counters,
            own=lambda: self._identity.holder,
            is_server=self._directory.is_heard,
        )
        self._sleep = SleepWatch(timers.heartbeat, self.counters)
        self._handler = ServerMessageHandler(
            self._identity,
            self._directory,
            self._sender,
            self,
            self.counters,
            self._events,
        )

    @property
    def id(self) -> int:
        """The id announced or held; 0 before the first one was drawn."""
        return self._identity.id

    @property
    def nonce(self) -> int:
        """What tells this holder of the id from others; 0 while no id is announced or held."""
        return self._identity.nonce

    @property
    def last_refusal(self) -> Reason | None:
        """What the last NACK said; None when there was none."""
        return self._handler.refusals.last

    @property
    def peers(self) -> Mapping[int, PeerRecord]:
        """The other clients by id."""
        return self._directory.roster.peers

    @property
    def servers(self) -> Mapping[int, Member]:
        """The living servers by id."""
        return self._directory.servers

    @property
    def view(self) -> ClusterView:
        """The servers that have to acknowledge."""
        return self._directory.view

    def signal(self, now: float, event: ClientSignal) -> None:
        """Take an event of the table. Raises ``StateError`` when it is to leave and cannot."""
        _RUNNER.step(self, event, now)

    def handle_start(self, now: float) -> None:
        """Connect to the servers (seed, step 2)."""
        self._wake(now)
        self._directory.start()

    def handle_connected(self, now: float) -> None:
        """Say hello at once: a bus connection came up."""
        self._wake(now)
        self.signal(now, _E.CONNECTED)

    def handle_message(
        self,
        now: float,
        data: bytes,
        pipe: Pipe = None,
        session: SigningSession | None = None,
        *,
        through: Pipe = None,
    ) -> None:
        """Take one message from the bus; what nobody should send is dropped and counted.

        ``pipe`` is the connection that it came through, unless the message proves its sender, and
        ``session`` who has signed it, where servers have to sign; ``through`` is the connection in
        any case.
        """
        self._wake(now)
        if self._is_over:
            self.counters.add(Count.REFUSED_BY_STATE)
            return
        message = self._reader.take(data, skips_lists=not self._directory.needs_lists)
        if message is None or not self._proofs.admits(message, session):
            return
        if self._senders.admits(now, message, pipe):
            self._handler.handle(now, message)
            self._senders.note(now, message, pipe)

    def handle_disconnected(self, _: float, pipe: int) -> None:
        """Take it that a connection has ended: who spoke through it may come through another."""
        self._senders.end(pipe)

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        self._wake(now)
        self._directory.handle_timeout(now)
        self._handler.signal_servers(now)
        _RUNNER.handle_timeout(self, now)

    def lookup(self, now: float, peer_id: int) -> None:
        """Ask servers for one peer; it comes as an event, and so does it when all know nobody.

        A client that is not established asks as soon as it is.
        """
        self._wake(now)
        self._directory.search(peer_id)
        if self.state is _S.ESTABLISHED:
            self._sender.lookup(peer=peer_id)

    def set_data(self, now: float, data: bytes) -> None:
        """Replace the initial simulation data. Raises ``MessageTooLargeError``."""
        self._wake(now)
        self._sender.set_data(data)
        self.signal(now, _E.REVISED)

    def set_topics(self, now: float, topics: Iterable[str]) -> None:
        """Replace the topics that this client's sources have. Raises ``SettingsError``."""
        self._wake(now)
        self._sender.set_topics(topics)
        self.signal(now, _E.REVISED)

    def publish(self, now: float, command: int, parameters: Sequence[Parameter]) -> None:
        """Send a command of the application to all servers. Raises ``StateError``."""
        self._wake(now)
        if self.state is not _S.ESTABLISHED:
            raise StateError(f"a client that is {self.state.value} holds no id")
        self._sender.publish(command, parameters)

    def leave(self, now: float) -> None:
        """Give the id up and stop. Raises ``StateError`` when that has happened already."""
        self.signal(now, _E.LEAVE)

    def poll_timeout(self) -> float | None:
        """Return the absolute time of the next ``handle_timeout``."""
        if self._is_over:
            return None
        return earliest(self.alarms.next_due(), self._directory.next_due())

    def poll_transmit(self) -> bytes | None:
        """Return the next message to publish, or None."""
        return self._sender.poll()

    def poll_bus(self) -> BusCommand | None:
        """Return the next change of subscriptions or connections, or None."""
        return self._identity.poll_bus() or self._directory.poll_bus()

    def poll_event(self) -> events.ClientEvent | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def _wake(self, now: float) -> None:
        if self._sleep.is_awake(now):
            return
        lag = self._sleep.overslept(now, self.poll_timeout())
        if lag:
            self._directory.forgive(lag)
            self._senders.forgive(lag)
            self.alarms.postpone(_E.DEADLINE, lag)

    @property
    def _is_over(self) -> bool:
        return self.state in CLIENT.final

    # What the table does

    def _draw_id(self, _: float) -> None:
        self._identity.draw(self._directory.roster.__contains__)
        self._directory.roster.ignore(self._identity.holder)
        self._directory.forget_answers()

    def _lookup(self, _: float) -> None:
        self._sender.lookup()
        for peer in self._directory.search_again():
            self._sender.lookup(peer=peer)

    def _announce(self, now: float) -> None:
        self._sender.announce()
        self.alarms.set(_E.HEARTBEAT_DUE, now + self._timers.next_heartbeat(self._entropy))

    def _confirm(self, now: float) -> None:
        if not self._directory.is_unanimous:
            self._announce(now)

    def _heartbeat(self, now: float) -> None:
        self._sender.heartbeat()
        self.alarms.set(_E.HEARTBEAT_DUE, now + self._timers.next_heartbeat(self._entropy))

    def _await_answers(self, now: float) -> None:
        self.alarms.set(_E.DEADLINE, now + self._timers.announce_deadline)

    def _pause(self, now: float) -> None:
        self.alarms.set(_E.BACKED_OFF, now + self._timers.next_backoff(self._entropy))

    def _send_data(self, _: float) -> None:
        self._sender.send_data()

    def _forget_answers(self, _: float) -> None:
        self._directory.forget_answers()

    def _withdraw(self, _: float) -> None:
        self._sender.withdraw()

    def _keep_peers(self, now: float) -> None:
        self._directory.keep_peers(now)

    def _tell_established(self, _: float) -> None:
        self._events.append(events.Established(self.id, resumed=False))

    def _tell_resumed(self, _: float) -> None:
        self._events.append(events.Established(self.id, resumed=True))

    def _tell_suspended(self, _: float) -> None:
        self._events.append(events.Suspended())

    def _tell_id_lost(self, _: float) -> None:
        self._events.append(events.IdLost(self.id, self._handler.refusals.why))

    def _tell_refused(self, _: float) -> None:
        self._events.append(events.Refused(self._handler.refusals.why))

    def _tell_left(self, _: float) -> None:
        self._events.append(events.Left())

    def _count_refused(self) -> None:
        self.counters.add(Count.REFUSED_BY_STATE)

    @classmethod
    def runner(cls) -> Runner[ClientState, ClientSignal, ClientAction]:
        return Runner(
            CLIENT,
            {
                _A.DRAW_ID: cls._draw_id,
                _A.ANNOUNCE: cls._announce,
                _A.CONFIRM: cls._confirm,
                _A.HEARTBEAT: cls._heartbeat,
                _A.SEND_DATA: cls._send_data,
                _A.LOOKUP: cls._lookup,
                _A.AWAIT_ANSWERS: cls._await_answers,
                _A.PAUSE: cls._pause,
                _A.FORGET_ANSWERS: cls._forget_answers,
                _A.WITHDRAW: cls._withdraw,
                _A.KEEP_PEERS: cls._keep_peers,
                _A.TELL_ESTABLISHED: cls._tell_established,
                _A.TELL_RESUMED: cls._tell_resumed,
                _A.TELL_SUSPENDED: cls._tell_suspended,
                _A.TELL_ID_LOST: cls._tell_id_lost,
                _A.TELL_REFUSED: cls._tell_refused,
                _A.TELL_LEFT: cls._tell_left,
            },
            raised={_E.LEAVE},
            counted=NACKS,
            ignored=set(_E) - NACKS - {_E.LEAVE},
            count=cls._count_refused,
            timed=True,
        )


_RUNNER = ClientMachine.runner()
