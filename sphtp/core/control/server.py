"""The server of the control plane: runs the table, and shares the work out."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sphtp.core.control.client_messages import (
    Announce,
    ClientData,
    ClientUser,
    Heartbeat,
    Leave,
    Lookup,
    StatusRequest,
)
from sphtp.core.control.cluster import Cluster
from sphtp.core.control.codec import Holder, Parameter, check_user_message
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.events import ServerEvent, StateChanged, UserMessage
from sphtp.core.control.inbound import (
    MessageReader,
    Pipe,
    Rates,
    SenderCheck,
    SenderConnections,
    SignatureProofs,
    SigningSession,
)
from sphtp.core.control.liveness import SleepWatch
from sphtp.core.control.outbox import Outbox
from sphtp.core.control.outputs import BusAudience, BusMessage, ServerBusCommand
from sphtp.core.control.records import MAX_MEMBERS, ClusterView, Member, PeerRecord, ServerAddress
from sphtp.core.control.registrations import ClientAdmission, Registrations, Replication
from sphtp.core.control.registry import MemoryRegistry, Registry
from sphtp.core.control.server_messages import (
    Registered,
    Released,
    ServerHeartbeat,
    ServerLeave,
    ServerUser,
    Snapshot,
    SnapshotRequest,
)
from sphtp.core.control.server_table import (
    FROM_CLIENTS,
    SERVER,
    ServerAction,
    ServerSignal,
    ServerState,
)
from sphtp.core.control.settings import ControlTimers, ServerLimits
from sphtp.core.control.vocabulary import MemberState
from sphtp.core.entropy import Entropy, Secrets
from sphtp.core.fsm import Alarms, Runner
from sphtp.core.timers import earliest
from sphtp.errors import SettingsError


def describe(
    number: int,
    state: ServerState,
    cluster: Cluster,
    ledger: Registrations,
    counters: ControlCounters,
) -> dict[str, Any]:
    """Return a document ready for JSON."""
    return {
        "id": number,
        "state": state.value,
        "address": str(cluster.own.address),
        "view": {"number": cluster.view.number, "members": _members(cluster.view.members)},
        "clients": [_client(record, ledger) for record in ledger.registry.records.values()],
        "counters": counters.as_dict(),
    }


def _members(members: Iterable[Member]) -> list[dict[str, Any]]:
    return [
        {
            "id": member.id,
            "state": member.state.name.lower(),
            "address": None if member.address is None else str(member.address),
        }
        for member in members
    ]


def _client(record: PeerRecord, ledger: Registrations) -> dict[str, Any]:
    return {
        "id": record.id,
        "candidates": [f"{candidate.host} {candidate.port}" for candidate in record.candidates],
        "data_bytes": len(record.data),
        "topics": len(record.topics),
        "revision": record.revision,
        "told_by": ledger.sponsor(record.id) or None,
    }


Handler = Callable[[float, Any], None]


class MemberMessageHandler:
    """Tells the view, the lists and the table what a server's message means for each."""

    def __init__(
        self,
        cluster: Cluster,
        replication: Replication,
        outbox: Outbox,
        server: "ServerMachine",
        counters: ControlCounters,
    ) -> None:
        self._cluster = cluster
        self._replication = replication
        self._outbox = outbox
        self._server = server
        self._counters = counters

    def handlers(self) -> dict[type, Handler]:
        """Return what is done with each sort of message."""
        return {
            ServerHeartbeat: self._on_heartbeat,
            ServerLeave: self._on_leave,
            Registered: self._from_member(self._replication.on_registered),
            Released: self._from_member(self._replication.on_released),
            SnapshotRequest: self._from_member(self._on_snapshot_request),
            Snapshot: self._from_member(self._on_snapshot),
        }

    def _on_heartbeat(self, now: float, message: ServerHeartbeat) -> None:
        effect = self._cluster.handle_heartbeat(now, message)
        self._outbox.sender = self._cluster.own.id
        if effect is None:
            return
        if effect.left is not None:
            self._replication.lose(now, effect.left.id)
        if message.roster is not None:
            self._replication.compare(now, message.member.id, message.roster)
        if message.member.state is MemberState.ACTIVE:
            self._server.signal(now, ServerSignal.ACTIVE_HEARD, message)

    def _on_leave(self, now: float, message: ServerLeave) -> None:
        if self._cluster.handle_leave(message.sender, message.nonce):
            self._replication.lose(now, message.sender)

    def _on_snapshot_request(self, now: float, message: SnapshotRequest) -> None:
        if message.to == self._cluster.own.id:
            self._server.signal(now, ServerSignal.SNAPSHOT_REQUESTED, message)

    def _on_snapshot(self, now: float, message: Snapshot) -> None:
        is_ours = message.to == self._cluster.own.id
        if not is_ours or not self._replication.on_snapshot(now, message):
            return
        if message.sender in self._cluster.view.active:
            self._server.signal(now, ServerSignal.SNAPSHOT_COMPLETE)

    def _from_member(self, handler: Handler) -> Handler:
        def checked(now: float, message: Any) -> None:
            if message.sender not in self._cluster:
                self._counters.add(Count.FOREIGN)
                return
            self._cluster.refresh(now, message.sender)
            handler(now, message)

        return checked


_S, _E, _A = ServerState, ServerSignal, ServerAction

_DEFAULT_LIMITS = ServerLimits()


class ServerMachine:
    """One server: registers ids together with the other servers of its view.

    ``entropy`` decides, ``secrets`` makes nonces; ``admit`` may refuse clients; ``registry``
    replaces the one in memory. Raises ``SettingsError`` when others could not dial ``address``.
    """

    def __init__(
        self,
        entropy: Entropy,
        timers: ControlTimers,
        *,
        secrets: Secrets,
        address: ServerAddress,
        join: Sequence[ServerAddress] = (),
        new_cluster: bool = False,
        limits: ServerLimits = _DEFAULT_LIMITS,
        registry: Registry | None = None,
        admit: Callable[[PeerRecord], bool] = lambda _: True,
    ) -> None:
        if not address.is_dialable:
            raise SettingsError(f"server address {address}: others cannot dial port 0")
        self.state = SERVER.initial
        """Whether ids that are new to this server are registered."""
        self.alarms = Alarms[ServerSignal]()
        self.counters = ControlCounters()
        self._entropy = entropy
        self._timers = timers
        self._new_cluster = new_cluster
        self._joins = tuple(each for each in join if each != address)
        self._opens_at = 0.0
        self._events: deque[ServerEvent] = deque()
        self._registry = registry or MemoryRegistry(timers.expiry, limits.max_clients)
        self._cluster = Cluster(
            entropy, secrets, timers.expiry, address, join, self.counters, self._events
        )
        self._outbox = Outbox(
            self.id,
            self._registry,
            self.counters,
            self._describe,
            limits.max_answers,
            timers.expiry / 2,
        )
        self._ledger = Registrations(self._registry, self._outbox, self._events)
        self._admission = ClientAdmission(
            self._ledger, self._outbox, self.counters, admit, limits.data_per_second
        )
        self._replication = Replication(self._ledger, self._outbox, self.counters, timers.expiry)
        self._reader = MessageReader(self.counters, for_client=False, known=self._registry.records)
        self._sleep = SleepWatch(timers.heartbeat, self.counters)
        self._hello_from = 0.0
        self._now = 0.0
        members = MemberMessageHandler(
            self._cluster, self._replication, self._outbox, self, self.counters
        )
        self._handlers = self._list_handlers(members)
        self._rates = Rates(limits, self.counters)
        self._proofs = SignatureProofs(
            self.counters,
            own=lambda: Holder(self.id, self._cluster.own.nonce),
            is_server=self._cluster.__contains__,
        )
        self._senders = SenderCheck(
            SenderConnections(timers.expiry / 2, limits.max_clients + MAX_MEMBERS),
            self.counters,
            is_server=self._cluster.__contains__,
            is_holder=self._admission.is_holder,
        )

    @property
    def id(self) -> int:
        """This server's id."""
        return self._cluster.own.id

    @property
    def view(self) -> ClusterView:
        """This server and those that it hears."""
        return self._cluster.view

    @property
    def missing(self) -> tuple[ServerAddress, ...]:
        """Whom this server is to join, as long as it hears no other server at all."""
        return self._joins if self._cluster.is_alone else ()

    @property
    def clients(self) -> Mapping[int, PeerRecord]:
        """The registered clients by id."""
        return self._registry.records

    def status(self) -> dict[str, Any]:
        """Return what there is to know about this server, ready for JSON."""
        return describe(self.id, self.state, self._cluster, self._ledger, self.counters)

    def signal(self, now: float, event: ServerSignal, *subject: object) -> None:
        """Take an event of the table, with the message that it came by if one did.

        Raises ``StateError`` when it is to stop, or to found a cluster, and cannot.
        """
        _RUNNER.step(self, event, now, *subject)

    def handle_start(self, now: float) -> None:
        """Begin to send heartbeats (seed, step 1), and find out who holds which id."""
        self._now = now
        self._cluster.start()
        self._opens_at = now + self._timers.joining
        self.alarms.set(_E.WAITED, self._opens_at)
        self.alarms.set(_E.HEARTBEAT_DUE, now)
        if self._new_cluster:
            self.signal(now, _E.NEW_CLUSTER)

    def handle_connected(self, now: float) -> None:
        """Say hello soon: a bus connection came up. Crowds are greeted together."""
        self._wake(now)
        if not self._is_over:
            self.alarms.set(_E.HEARTBEAT_DUE, max(now, self._hello_from))

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
        if self.state is _S.STOPPED:
            self.counters.add(Count.REFUSED_BY_STATE)
            return
        message = self._reader.take(data)
        if message is None or not self._proofs.admits(message, session):
            return
        if not self._senders.admits(now, message, pipe):
            return
        if self._rates.allows(now, message):
            self._handlers.get(type(message), self._on_foreign)(now, message)
            self._senders.note(now, message, pipe, through)
        if self._joins and self.state is _S.JOINING:
            self._await_company(now)

    def handle_disconnected(self, now: float, pipe: int) -> None:
        """Take it that a connection has ended: who spoke through it may come through another.

        A client is suspected at once, and given up unless it does within ``timers.reconnect``: the
        connection of a process that was killed ends with it.
        """
        self._wake(now)
        for holder in self._senders.end(pipe):
            if self._admission.is_holder(holder) and not self._is_over:
                self._ledger.doubt(now, holder.id, self._timers.reconnect)

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        self._wake(now)
        if self._is_over:
            return
        for server in self._cluster.take_expired(now):
            self._replication.lose(now, server)
        self._ledger.handle_timeout(now)
        if self._joins and self.state is _S.JOINING:
            self._await_company(now)
        _RUNNER.handle_timeout(self, now)

    def publish(
        self, now: float, simulation: int, command: int, parameters: Sequence[Parameter]
    ) -> None:
        """Send a command of the application to one client, or with id 0 to all.

        Raises ``StateError`` when they use numbers of the protocol, ``MessageTooLargeError``.
        """
        self._wake(now)
        check_user_message(command, parameters)
        message = ServerUser(self.id, simulation, command, tuple(parameters))
        self._outbox.send(BusAudience.CLIENTS, message.encode())

    def stop(self, now: float) -> None:
        """Say good-bye to clients and servers. Raises ``StateError`` when stopped already."""
        self.signal(now, _E.STOP)

    def poll_timeout(self) -> float | None:
        """Return the absolute time of the next ``handle_timeout``."""
        if self._is_over:
            return None
        return earliest(
            self.alarms.next_due(),
            self._cluster.next_due(),
            self._registry.next_due(),
            self._outbox.next_due(),
        )

    def poll_transmit(self) -> BusMessage | None:
        """Return the next message, or None; answers of one batch are put together here."""
        return self._outbox.poll(self._now)

    def poll_bus(self) -> ServerBusCommand | None:
        """Return the next connection of the extra PUB to make or to undo, or None."""
        return self._cluster.poll_bus()

    def poll_event(self) -> ServerEvent | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def _list_handlers(
        self, members: MemberMessageHandler
    ) -> dict[type, Callable[[float, Any], None]]:
        return {
            Announce: self._on_announce,
            Heartbeat: self._on_heartbeat,
            Leave: self._admission.on_leave,
            ClientData: self._admission.on_data,
            Lookup: self._admission.on_lookup,
            StatusRequest: self._on_status_request,
            ClientUser: self._on_user,
            **members.handlers(),
        }

    @property
    def _is_over(self) -> bool:
        return self.state in SERVER.final

    def _on_foreign(self, _: float, __: object) -> None:
        self.counters.add(Count.FOREIGN)

    def _on_announce(self, now: float, message: Announce) -> None:
        if self._admission.believes(message):
            self.signal(now, self._admission.sort_announce(now, message), message)

    def _on_heartbeat(self, now: float, message: Heartbeat) -> None:
        self.signal(now, self._admission.sort_heartbeat(message), message)

    def _on_status_request(self, _: float, message: StatusRequest) -> None:
        self._outbox.answer_status(message.id)

    def _describe(self) -> bytes:
        return json.dumps(self.status()).encode()

    def _on_user(self, now: float, message: ClientUser) -> None:
        if self._admission.holds(message):
            self._ledger.hear(now, message.id)
            self._events.append(UserMessage(message.id, message.command, message.parameters))

    def _heartbeat(self, now: float) -> None:
        heartbeat = ServerHeartbeat(self._cluster.own, self.view, self._registry.digest).encode()
        for audience in BusAudience:
            self._outbox.send(audience, heartbeat)
        self._hello_from = now + self._timers.heartbeat / 10
        self.alarms.set(_E.HEARTBEAT_DUE, now + self._timers.next_heartbeat(self._entropy))

    def _open(self, now: float) -> None:
        self._cluster.become(MemberState.ACTIVE)
        self._heartbeat(now)

    def _send_leave(self, _: float) -> None:
        goodbye = ServerLeave(self.id, self._cluster.own.nonce).encode()
        for audience in BusAudience:
            self._outbox.send(audience, goodbye)

    def _await_company(self, now: float) -> None:
        """Open alone only where no server is to be joined: a typo must not be a second cluster.

        Where one is heard after the wait is over, it has time to tell what it knows.
        """
        if self._cluster.is_alone:
            self.alarms.stop(_E.WAITED)
        elif _E.WAITED not in self.alarms.pending():
            soonest = now + self._timers.announce_deadline
            self.alarms.set(_E.WAITED, max(self._opens_at, soonest))

    def _wake(self, now: float) -> None:
        self._now = now
        if self._sleep.is_awake(now):
            return
        lag = self._sleep.overslept(now, self.poll_timeout())
        if lag:
            self._cluster.forgive(lag)
            self._registry.forgive(lag)
            self._senders.forgive(lag)
            self.alarms.postpone(_E.WAITED, lag)
            self._opens_at += lag

    # What the table does

    def _register(self, now: float, message: Announce) -> None:
        self._admission.register(now, message)

    def _register_reserved(self, now: float, message: Announce) -> None:
        self._admission.register_reserved(now, message)

    def _acknowledge(self, now: float, message: Announce) -> None:
        self._admission.acknowledge(now, message)

    def _refresh(self, now: float, message: Heartbeat) -> None:
        self._admission.refresh(now, message)

    def _refuse(self, now: float, message: Announce | Heartbeat) -> None:
        self._admission.refuse(now, message)

    def _refuse_unknown(self, now: float, message: Heartbeat) -> None:
        self._admission.refuse_unknown(now, message)

    def _reserve(self, now: float, message: Heartbeat) -> None:
        self._admission.reserve(now, message)

    def _request_snapshot(self, _: float, message: ServerHeartbeat) -> None:
        self._outbox.request_snapshot(message.member.id)

    def _send_snapshot(self, _: float, message: SnapshotRequest) -> None:
        self._outbox.answer_snapshot(message.sender)

    def _tell_state(self, _: float) -> None:
        self._events.append(StateChanged(self.state))

    def _count_refused(self) -> None:
        self.counters.add(Count.REFUSED_BY_STATE)

    @classmethod
    def runner(cls) -> Runner[ServerState, ServerSignal, ServerAction]:
        return Runner(
            SERVER,
            {
                _A.HEARTBEAT: cls._heartbeat,
                _A.REGISTER: cls._register,
                _A.REGISTER_RESERVED: cls._register_reserved,
                _A.ACKNOWLEDGE: cls._acknowledge,
                _A.REFRESH: cls._refresh,
                _A.REFUSE: cls._refuse,
                _A.REFUSE_UNKNOWN: cls._refuse_unknown,
                _A.RESERVE: cls._reserve,
                _A.REQUEST_SNAPSHOT: cls._request_snapshot,
                _A.SEND_SNAPSHOT: cls._send_snapshot,
                _A.OPEN: cls._open,
                _A.SEND_LEAVE: cls._send_leave,
                _A.TELL_STATE: cls._tell_state,
            },
            raised={_E.NEW_CLUSTER, _E.STOP},
            counted={*FROM_CLIENTS, _E.SNAPSHOT_REQUESTED},
            ignored={_E.SNAPSHOT_COMPLETE, _E.ACTIVE_HEARD, _E.WAITED, _E.HEARTBEAT_DUE},
            count=cls._count_refused,
            timed=True,
        )


_RUNNER = ServerMachine.runner()
