"""The server of the control plane: it runs the table ``SERVER``, and calls its parts.

``server_table`` lists the steps in which a server joins a cluster, and ``registrations`` those of
an answer to a client.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sphtp.core.clock import ClusterClock
from sphtp.core.control.client_messages import (
    Announce,
    CheckRequest,
    ClientData,
    ClientUser,
    Heartbeat,
    Leave,
    Lookup,
    StatusRequest,
)
from sphtp.core.control.codec import Parameter
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.machine import ControlMachine
from sphtp.core.control.outbox import Outbox
from sphtp.core.control.outputs import (
    BusAudience,
    BusMessage,
    RegistryFailing,
    ServerBusCommand,
    ServerEvent,
    StateChanged,
    UserMessage,
)
from sphtp.core.control.records import (
    MAX_MEMBERS,
    ClusterView,
    Holder,
    Member,
    PeerRecord,
    ServerAddress,
)
from sphtp.core.control.registrations import (
    ClientAdmission,
    Registrations,
    Replication,
    SharedAdmission,
)
from sphtp.core.control.registry import (
    HolderEntrusted,
    HolderGone,
    HolderSeen,
    IdGranted,
    IdRefused,
    MembersChanged,
    MemoryRegistry,
    Registry,
    RegistryChange,
    ServerIdTaken,
    SharedRegistry,
    StoreFailing,
    StoreLost,
    StoreReached,
)
from sphtp.core.control.server_messages import (
    AnyMessage,
    MemberMessage,
    Registered,
    Released,
    ServerHeartbeat,
    ServerLeave,
    ServerUser,
    Snapshot,
    SnapshotRequest,
    TimeAnswer,
)
from sphtp.core.control.server_set import Cluster
from sphtp.core.control.server_table import (
    FROM_CLIENTS,
    SERVER,
    ServerAction,
    ServerSignal,
    ServerState,
)
from sphtp.core.control.settings import ControlTimers, ServerLimits
from sphtp.core.control.vocabulary import EVERYBODY, MemberState, check_user_numbers
from sphtp.core.entropy import Entropy, Secrets
from sphtp.core.fsm import Runner
from sphtp.core.timers import earliest
from sphtp.core.token_bucket import TokenBucket
from sphtp.errors import SettingsError


def describe(
    number: int,
    state: ServerState,
    cluster: Cluster,
    ledger: Registrations,
    counters: ControlCounters,
) -> dict[str, Any]:
    """Return the status of a server, as values for JSON."""
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
        "name": record.name,
        "candidates": [f"{candidate.host} {candidate.port}" for candidate in record.candidates],
        "data_bytes": len(record.data),
        "topics": len(record.topics),
        "groups": list(record.groups),
        "revision": record.revision,
        "told_by": ledger.sponsor(record.id) or None,
    }


S, E, A = ServerState, ServerSignal, ServerAction

_DEFAULT_LIMITS = ServerLimits()


class ServerMachine(ControlMachine[ServerState, ServerSignal, ServerEvent]):
    """One server, which registers ids together with the other servers of its view.

    ``entropy`` draws ids and pauses; ``secrets`` draws nonces. The server dials the addresses in
    ``join``. With ``new_cluster`` it becomes active at once. ``registry`` replaces the registry in
    memory. A shared registry also decides on the view, and the server is detached while it is out
    of reach. With ``asks_admission`` the application decides on each client that ``poll_applicant``
    returns, by ``handle_admission``. ``answers_stun`` is announced in the heartbeats. Raises
    ``SettingsError`` if others cannot dial ``address``.
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
        asks_admission: bool = False,
        answers_stun: bool = False,
    ) -> None:
        if not address.is_dialable:
            raise SettingsError(f"server address {address}: others cannot dial port 0")
        super().__init__(SERVER, _RUNNER, entropy, timers)
        self.clock = ClusterClock(timers.max_drift, serves=True)
        """The cluster's time."""
        self._answers_stun = answers_stun
        self._new_cluster = new_cluster
        self._joins = tuple(each for each in join if each != address)
        self._has_company, self._has_met_others = False, False
        self._opens_at = 0.0
        self._heartbeat_from = 0.0
        self._registry = registry or MemoryRegistry(timers.expiry, limits.max_clients)
        self._cluster = Cluster(
            entropy, secrets, timers.expiry, address, join, self.counters, self._events
        )
        self._outbox = Outbox(
            self.clock, self.id, self._registry, self.counters, limits.max_answers, timers.expiry
        )
        self._ledger = Registrations(self._registry, self._outbox, self._events)
        self._shared = registry if isinstance(registry, SharedRegistry) else None
        self._admission = ClientAdmission(
            self._ledger, self._outbox, self.counters, limits, asks=asks_admission
        )
        if self._shared is not None:
            self._outbox.shares_registry = True
            self._admission = self._claims = SharedAdmission(
                self._ledger,
                self._outbox,
                self.counters,
                limits,
                asks=asks_admission,
                store=self._shared,
            )
        self._replication = Replication(self._ledger, self._outbox, self.counters, timers.expiry)
        self.wall_ahead: float | None = None
        """Seconds by which the wall clock is ahead of ``now``; None if unknown.

        Only the status uses it: no decision depends on a clock that may be stepped.
        """
        self._announces = TokenBucket(limits.announces_per_second)
        self._open_inbound(
            self._registry.records,
            servers=self._cluster.heartbeats,
            max_senders=limits.max_clients + MAX_MEMBERS,
            for_client=False,
        )

    @property
    def id(self) -> int:
        """This server's id."""
        return self._cluster.own.id

    @property
    def member(self) -> Member:
        """This server as its heartbeats describe it."""
        return self._cluster.own

    @property
    def view(self) -> ClusterView:
        """The view: this server and the live others, or the members in a shared registry."""
        return self._cluster.view

    @property
    def missing(self) -> tuple[ServerAddress, ...]:
        """The addresses of the servers to join, while no other server is live; else none."""
        return () if self._cluster.heartbeats else self._joins

    @property
    def clients(self) -> Mapping[int, PeerRecord]:
        """The registered clients by id."""
        return self._registry.records

    def status(self) -> dict[str, Any]:
        """Return the status of this server, as values for JSON."""
        status = describe(self.id, self.state, self._cluster, self._ledger, self.counters)
        if self._shared is not None:
            status["registry"] = self._shared.status()
        if self.wall_ahead is not None:
            status["wall_time"] = self._now + self.wall_ahead
        return status

    def handle_start(self, now: float) -> None:
        """Start the heartbeats (SphTP, step 1), and the wait for a list of the held ids."""
        self._now = now
        self._cluster.start()
        if self._shared is not None:
            self.alarms.set(E.HEARTBEAT_DUE, now)
            self.signal(now, E.REGISTRY_LOST)
            self._shared.handle_start(now, self._cluster.own)
            return
        self._opens_at = now + self._timers.joining
        self.alarms.set(E.WAITED, self._opens_at)
        self.alarms.set(E.HEARTBEAT_DUE, now)
        if self._new_cluster:
            self.signal(now, E.NEW_CLUSTER)

    def handle_connected(self, now: float) -> None:
        """Send a heartbeat soon, because a bus connection came up.

        Many connections that come up together get one heartbeat.
        """
        self._wake(now)
        self._take_changes(now)
        if self.state not in self._final:
            self.alarms.set(E.HEARTBEAT_DUE, max(now, self._heartbeat_from))

    def handle_registry(self, now: float) -> None:
        """Take the changes of the shared registry after an input of that registry."""
        self._wake(now)
        self._take_changes(now)

    def handle_admission(self, now: float, record: PeerRecord, *, is_admitted: bool) -> None:
        """Take the application's decision on a client that ``poll_applicant`` has returned."""
        self._wake(now)
        self._take_changes(now)
        if self.state not in self._final:
            self._admission.judge(now, record, is_admitted=is_admitted)

    def set_limits(self, limits: ServerLimits) -> None:
        """Replace the limits, from the next message on. Clients beyond ``max_clients`` stay."""
        self._announces.set_rate(limits.announces_per_second)
        self._admission.set_limits(limits)
        self._outbox.max_answers = limits.max_answers
        self._senders.set_capacity(limits.max_clients + MAX_MEMBERS)

    def publish(
        self, now: float, simulation: int, command: int, parameters: Sequence[Parameter]
    ) -> None:
        """Send a command of the application to the client ``simulation``, or with 0 to all.

        Raises ``StateError`` if the numbers are wrong, ``WireError`` if ``simulation`` does not fit
        32 bits, and ``MessageTooLargeError`` if the message is too large.
        """
        self._wake(now)
        check_user_numbers(command, (each.id for each in parameters))
        data = ServerUser(self.id, simulation, command, tuple(parameters)).encode()
        if simulation == EVERYBODY:
            self._outbox.send_to_all(now, data, unwatched=False)
        else:
            self._outbox.send(now, BusAudience.CLIENTS, data)

    def stop(self, now: float) -> None:
        """Send LEAVE to clients and servers, and stop. Raises ``StateError`` if it has stopped."""
        self.signal(now, E.STOP)

    def poll_applicant(self) -> PeerRecord | None:
        """Return the next client on which the application has to decide, or None."""
        return self._admission.poll_applicant()

    def poll_transmit(self) -> BusMessage | None:
        """Return the next message, or None. Here the answers of a batch become messages."""
        if self.state is S.DETACHED:
            self._outbox.discard()
        return self._outbox.poll(self._now)

    def is_detached(self, now: float) -> bool:
        """Return True if this server is detached from the shared registry at the time ``now``.

        Then messages that were polled before must not leave. This is checked again before sending,
        because the process may have been frozen since its last input.
        """
        self._take_changes(now)
        return self.state is S.DETACHED

    def poll_bus(self) -> ServerBusCommand | None:
        """Return the next ``Dial`` or ``HangUp`` of the extra PUB, or None."""
        return self._cluster.poll_bus()

    # Received messages

    def _own(self) -> Holder:
        return Holder(self.id, self._cluster.own.nonce)

    def _handle(self, now: float, message: AnyMessage) -> None:
        self._take_changes(now)
        match message:
            case Heartbeat():
                self.signal(now, self._admission.sort_heartbeat(message), message)
            case Announce():
                self._on_announce(now, message)
            case ServerHeartbeat():
                self._on_server_heartbeat(now, message)
            case Leave():
                self._admission.on_leave(now, message)
            case ClientData():
                self._admission.on_data(now, message)
            case Lookup():
                self._admission.on_lookup(now, message)
            case CheckRequest():
                self._admission.on_check_request(now, message)
            case StatusRequest():
                needed = self._outbox.needs_status
                status = json.dumps(self.status()).encode() if needed else None
                self._outbox.answer_status(message.id, status)
            case ClientUser():
                if self._admission.holds(message):
                    self._ledger.refresh(now, message.id)
                    user = UserMessage(message.id, message.command, message.parameters)
                    self._events.append(user)
            case ServerLeave():
                if self._cluster.handle_leave(message.sender, message.nonce):
                    self._replication.lose(now, message.sender)
            case TimeAnswer() if message.to == self.id:
                self.clock.handle_answer(now, message.sender, message.origin, message.stamp)
            case Registered() | Released() | SnapshotRequest() | Snapshot():
                self._on_member_message(now, message)
            case _:
                self.counters.add(Count.FOREIGN)
        if self._joins and self.state is S.JOINING:
            self._await_company(now)

    def _on_announce(self, now: float, message: Announce) -> None:
        if not self._announces.take(now):
            self.counters.add(Count.OVER_ANNOUNCES_PER_SECOND)
        elif self._admission.believes(message):
            self.signal(now, self._admission.sort_announce(now, message), message)

    def _on_server_heartbeat(self, now: float, message: ServerHeartbeat) -> None:
        if self._shared is not None and message.member not in self._cluster.view.members:
            # The other server has another registry, or is not a member yet.
            self.counters.add(Count.FOREIGN)
            return
        effect = self._cluster.handle_heartbeat(now, message)
        self._outbox.sender = self.id
        if effect is None:
            return
        if effect.left is not None:
            self._replication.lose(now, effect.left.id)
        number, live = message.member.id, self._cluster.heartbeats
        if message.stamp is not None:
            self.clock.handle_stamp(now, number, message.stamp, live)
        if message.request is not None:
            self._outbox.answer_time(now, BusAudience.SERVERS, number, message.request)
        if message.roster is not None and self._shared is None:
            self._replication.compare(now, message.member.id, message.roster)
        if message.member.state is MemberState.ACTIVE:
            self.signal(now, E.ACTIVE_LIVE, message)

    def _on_member_message(self, now: float, message: MemberMessage) -> None:
        if message.sender not in self._cluster.heartbeats or self._shared is not None:
            self.counters.add(Count.FOREIGN)
            return
        self._cluster.refresh(now, message.sender)
        match message:
            case Registered():
                self._replication.on_registered(now, message)
            case Released():
                self._replication.on_released(now, message)
            case SnapshotRequest() if message.to == self.id:
                self.signal(now, E.SNAPSHOT_REQUESTED, message)
            case Snapshot() if message.to == self.id:
                is_whole = self._replication.on_snapshot(now, message)
                if is_whole and message.sender in self._cluster.view.active:
                    self.signal(now, E.SNAPSHOT_COMPLETE)

    # Changes of the shared registry

    def _take_changes(self, now: float) -> None:
        if self._shared is None or self.state in self._final:
            return
        self._shared.handle_time(now)
        while (change := self._shared.poll_change()) is not None:
            self._on_change(now, change)

    def _on_change(self, now: float, change: RegistryChange) -> None:
        match change:
            case IdGranted():
                self._claims.handle_granted(now, change)
            case IdRefused():
                self._claims.handle_refused(now, change)
            case HolderSeen():
                self._claims.handle_seen(now, change)
            case HolderGone():
                self._claims.handle_gone(now, change)
            case HolderEntrusted():
                self._claims.handle_entrusted(now, change)
            case MembersChanged():
                view = ClusterView(change.number, change.members)
                for server in self._cluster.set_view(view):
                    self._replication.lose(now, server)
            case ServerIdTaken():
                self._cluster.redraw()
                self._outbox.sender = self.id
                assert self._shared is not None
                self._shared.handle_start(now, self._cluster.own)
            case StoreFailing():
                self._events.append(RegistryFailing(change.why))
            case StoreReached():
                self.signal(now, E.REGISTRY_REACHED)
            case StoreLost():
                self.signal(now, E.REGISTRY_LOST)

    # Timeouts

    def _doubt(self, now: float, holder: Holder) -> None:
        # The connection of a killed process ends with it. So a client is suspected at once, and
        # expires unless it sends a message through another connection within ``timers.reconnect``.
        if self._admission.is_holder(holder) and self.state not in self._final:
            self._ledger.doubt(now, holder.id, self._timers.reconnect)

    def _expire(self, now: float) -> None:
        self._take_changes(now)
        for server in self._cluster.drop_expired(now):
            self._replication.lose(now, server)
        self._ledger.handle_timeout(now)
        self._take_changes(now)
        if self._joins and self.state is S.JOINING:
            self._await_company(now)

    def _postpone_expiries(self, lag: float) -> None:
        self._cluster.postpone_expiries(lag)
        self._registry.postpone_expiries(lag)
        self.alarms.postpone(E.WAITED, lag)
        self._opens_at += lag

    def _next_due(self) -> float | None:
        return earliest(
            self.alarms.due,
            self._cluster.next_due(),
            self._registry.next_due(),
            self._outbox.next_due(),
        )

    def _await_company(self, now: float) -> None:
        """Set the time of WAITED for a server that has to join others.

        Until another server was live, there is none. Otherwise a wrong address could found a second
        cluster. A server that appears after the wait has time to send its list. If the last one is
        lost, its clients have twice the expiry to send messages to this server.
        """
        had_company, self._has_company = self._has_company, bool(self._cluster.heartbeats)
        if self._has_company:
            self._has_met_others = True
            if not had_company:
                # This is enough for several requests of the list, one at each heartbeat.
                soonest = now + self._timers.announcing
                self.alarms.set(E.WAITED, max(self._opens_at, soonest))
        elif had_company:
            self.alarms.set(E.WAITED, now + self._timers.joining)
        elif not self._has_met_others:
            self.alarms.stop(E.WAITED)

    # Actions of the table

    def _heartbeat(self, now: float) -> None:
        own, live = self._cluster.own, self._cluster.heartbeats
        if own.state is MemberState.ACTIVE:
            present = {own.nonce, *(m.nonce for h in live.values() for m in h.view.members)}
            self.clock.take_charge(now, own.id, own.nonce, present, live)
        stamp, request = self.clock.stamp(now), self.clock.poll_request(now, live)
        digest = self._registry.digest
        heartbeat = ServerHeartbeat(
            own, self.view, digest, stamp, request, self._answers_stun
        ).encode()
        self._outbox.send_to_all(now, heartbeat, unwatched=True)
        self._outbox.send(now, BusAudience.SERVERS, heartbeat)
        self._heartbeat_from = now + self._timers.heartbeat / 10
        self.alarms.set(E.HEARTBEAT_DUE, now + self._timers.next_heartbeat(self._entropy))

    def _open(self, now: float) -> None:
        self._cluster.become(MemberState.ACTIVE)
        self._heartbeat(now)

    def _fall_silent(self, _: float) -> None:
        # Like a joining server, a detached one registers no new ids. It sends no heartbeats either.
        self._cluster.become(MemberState.JOINING)
        self._outbox.discard()
        if self._shared is not None:
            self._claims.forget_announcements()

    def _send_leave(self, now: float) -> None:
        if self._shared is not None:
            self._shared.handle_stop(now)
        leave = ServerLeave(self.id, self._cluster.own.nonce).encode()
        self._outbox.send_to_all(now, leave, unwatched=True)
        self._outbox.send(now, BusAudience.SERVERS, leave)

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

    def _request_snapshot(self, now: float, message: ServerHeartbeat) -> None:
        self._outbox.request_snapshot(now, message.member.id)

    def _send_snapshot(self, _: float, message: SnapshotRequest) -> None:
        self._outbox.answer_snapshot(message.sender)

    def _report_state(self, _: float) -> None:
        self._events.append(StateChanged(self.state))

    @classmethod
    def runner(cls) -> Runner[ServerState, ServerSignal, ServerAction]:
        return Runner(
            SERVER,
            {
                A.HEARTBEAT: cls._heartbeat,
                A.REGISTER: cls._register,
                A.REGISTER_RESERVED: cls._register_reserved,
                A.ACKNOWLEDGE: cls._acknowledge,
                A.REFRESH: cls._refresh,
                A.REFUSE: cls._refuse,
                A.REFUSE_UNKNOWN: cls._refuse_unknown,
                A.RESERVE: cls._reserve,
                A.REQUEST_SNAPSHOT: cls._request_snapshot,
                A.SEND_SNAPSHOT: cls._send_snapshot,
                A.OPEN: cls._open,
                A.FALL_SILENT: cls._fall_silent,
                A.SEND_LEAVE: cls._send_leave,
                A.REPORT_STATE: cls._report_state,
            },
            raised={E.NEW_CLUSTER, E.STOP},
            counted={*FROM_CLIENTS, E.SNAPSHOT_REQUESTED},
            ignored={
                E.SNAPSHOT_COMPLETE,
                E.ACTIVE_LIVE,
                E.WAITED,
                E.HEARTBEAT_DUE,
                E.REGISTRY_LOST,
                E.REGISTRY_REACHED,
            },
            count=cls.count_refused,
            timed=True,
        )


_RUNNER = ServerMachine.runner()
