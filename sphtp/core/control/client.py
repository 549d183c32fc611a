"""The client of the control plane: it registers an id, and follows servers and peers."""

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from sphtp.core.clock import ClusterClock
from sphtp.core.control import outputs
from sphtp.core.control.client_messages import ClientSender
from sphtp.core.control.client_table import (
    CLIENT,
    NACKS,
    ClientAction,
    ClientSignal,
    ClientState,
)
from sphtp.core.control.codec import ACKED, Parameter
from sphtp.core.control.counters import Count
from sphtp.core.control.directory import Directory
from sphtp.core.control.interest import Interest
from sphtp.core.control.machine import ControlMachine
from sphtp.core.control.outputs import (
    BusCommand,
    ClientEvent,
    Subscribe,
    Unsubscribe,
    UserMessage,
    replace_topics,
)
from sphtp.core.control.records import (
    MAX_MEMBERS,
    Candidate,
    ClusterView,
    Holder,
    Member,
    PeerRecord,
    ServerAddress,
)
from sphtp.core.control.server_messages import (
    AnyMessage,
    IdAck,
    IdNack,
    PeerCheck,
    Peers,
    PeersGone,
    ServerHeartbeat,
    ServerLeave,
    ServerUser,
    TimeAnswer,
)
from sphtp.core.control.settings import ClientLimits, ControlTimers
from sphtp.core.control.vocabulary import (
    NO_NONCE,
    RESTRICTED,
    SHARDED,
    Reason,
    client_topics,
    draw_client_id,
    draw_nonce,
)
from sphtp.core.entropy import Entropy, Secrets
from sphtp.core.fsm import Runner
from sphtp.core.timers import earliest
from sphtp.errors import StateError

_HOLDERS_KEPT: Final = 64


class ClientIdentity:
    """The client's id, and the source of further ids (SphTP, step 4).

    It uses the ids of the application before it draws any.
    """

    def __init__(self, entropy: Entropy, secrets: Secrets, ids: Iterator[int]) -> None:
        self.holder = Holder(0, NO_NONCE)
        """The id with its nonce. A client that has given its id up has no nonce."""
        self.holders = deque[Holder](maxlen=_HOLDERS_KEPT)
        """The present holder and earlier ones, whose records describe this client, too."""
        self.acknowledged_by = set[int]()
        """The servers that have acknowledged the id."""
        self._entropy = entropy
        self._secrets = secrets
        self._ids = ids
        self._queue: deque[Subscribe | Unsubscribe] = deque()

    def draw(self, taken: Container[int]) -> None:
        """Take another id and nonce.

        Subscribe to the topics of the new id, then unsubscribe from those of the old one.
        """
        number = next(self._ids, None) or draw_client_id(self._entropy, taken)
        before, after = client_topics(self.holder.id), client_topics(number)
        self.holder = Holder(number, draw_nonce(self._secrets))
        self.holders.append(self.holder)
        self.acknowledged_by.clear()
        self._queue += replace_topics(before, after)

    def give_up(self) -> None:
        """Give the id up: remove the nonce, so that late answers have no effect."""
        self.holder = Holder(self.holder.id, NO_NONCE)
        self.acknowledged_by.clear()

    def poll_bus(self) -> Subscribe | Unsubscribe | None:
        """Return the next change of subscriptions, or None."""
        return self._queue.popleft() if self._queue else None


_SIGNALS: Final = {
    Reason.CONFLICT: ClientSignal.CONFLICT,
    Reason.FULL: ClientSignal.BUSY,
    Reason.DENIED: ClientSignal.DENIED,
    Reason.VERSION: ClientSignal.DENIED,
    Reason.UNKNOWN: ClientSignal.UNKNOWN,
    Reason.STALE_DATA: ClientSignal.STALE,
}
"""The table's signal for each reason of a NACK. Any other reason counts as ``CONFLICT``."""

_DEFAULT_LIMITS = ClientLimits()

_READDRESSED: Final = 12
"""The number of heartbeats that announcements replace after a change of addresses.

PUB may lose an announcement. And if the client has new connections, too, servers accept messages
through them only after half an expiry.
"""

_MOST_CHECKS: Final = 64
"""The most requests for checks that wait for ``poll_check``; the oldest are dropped."""

S, E, A = ClientState, ClientSignal, ClientAction


class ClientMachine(ControlMachine[ClientState, ClientSignal, ClientEvent]):
    """A client: it registers an id with the servers of the view, and keeps a list of its peers.

    ``entropy`` draws ids and pauses; ``secrets`` draws nonces. ``key`` is the client's public key,
    and ``name`` its name; servers send both to its peers. ``presence`` are the groups whose members
    the client follows, or None for all clients. The client announces the ids in ``ids`` before it
    draws any.

    Raises ``SettingsError`` if an argument is wrong, and ``MessageTooLargeError`` if ``data`` is
    too large.
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
        name: str = "",
        presence: Iterable[str] | None = None,
        ids: Iterator[int] | None = None,
        limits: ClientLimits = _DEFAULT_LIMITS,
    ) -> None:
        super().__init__(CLIENT, _RUNNER, entropy, timers)
        self.last_refusal: Reason | None = None
        """The reason of the last NACK since the client was established, other than UNKNOWN and
        STALE_DATA; None if there was none.
        """
        self.clock = ClusterClock(timers.max_drift)
        """The cluster's time."""
        self._readdressed = 0
        self._checks: deque[PeerCheck] = deque(maxlen=_MOST_CHECKS)
        self._identity = ClientIdentity(entropy, secrets, ids or iter(()))
        self._interest = Interest(presence)
        self._sender = ClientSender(candidates, data, key, name)
        self._directory = Directory(
            timers,
            servers,
            self.counters,
            self._events,
            limits.max_peers,
            self._interest,
            own=self._identity.holders,
            acknowledged_by=self._identity.acknowledged_by,
        )
        self._open_inbound(
            self._directory.roster.records,
            servers=self._directory.heartbeats,
            max_senders=MAX_MEMBERS,
            for_client=True,
        )
        self._reader.skips_lists = True

    @property
    def id(self) -> int:
        """The id that the client announces or holds, or held last; 0 before it draws one."""
        return self._identity.holder.id

    @property
    def nonce(self) -> int:
        """The number that distinguishes this holder of the id; 0 while it has no id."""
        return self._identity.holder.nonce

    @property
    def peers(self) -> Mapping[int, PeerRecord]:
        """The peers by id: the other clients that this client follows."""
        return self._directory.roster.peers

    @property
    def is_restricted(self) -> bool:
        """True if the client does not follow all other clients."""
        return self._interest.is_restricted

    def is_watching(self, group: str) -> bool:
        """Return True if the client follows the members of this group."""
        return self._interest.includes(group)

    @property
    def servers(self) -> Mapping[int, Member]:
        """The live servers by id."""
        return self._directory.servers

    @property
    def acknowledged_by(self) -> frozenset[int]:
        """The ids of the servers that have acknowledged the client's id."""
        return frozenset(self._identity.acknowledged_by)

    @property
    def view(self) -> ClusterView:
        """The view: the servers that have to agree on the id."""
        return self._directory.view

    def handle_start(self, now: float) -> None:
        """Connect to the servers (SphTP, step 2)."""
        self._wake(now)
        self._directory.start()

    def handle_connected(self, now: float) -> None:
        """Send a heartbeat, an announcement or both at once, because a bus connection came up.

        It has no effect while the client neither announces nor holds an id.
        """
        self._wake(now)
        self.signal(now, E.CONNECTED)

    def lookup(self, now: float, peer_id: int) -> None:
        """Request the record of one peer from all servers.

        The result is an event: ``PeerEntered`` if the peer is new here, or ``PeerUnknown`` if no
        server has registered it. A client that is not established sends the request as soon as it
        is.
        """
        self._wake(now)
        self._directory.search(peer_id)
        if self.state is S.ESTABLISHED:
            self._sender.lookup(self._identity.holder, peer=peer_id)

    @property
    def stun_servers(self) -> tuple[ServerAddress, ...]:
        """The addresses of the live servers that answer STUN."""
        return tuple(
            heartbeat.member.address
            for heartbeat in self._directory.heartbeats.values()
            if heartbeat.answers_stun and heartbeat.member.address is not None
        )

    def set_candidates(self, now: float, candidates: Sequence[Candidate]) -> None:
        """Replace the addresses for peers by the first ``MAX_CANDIDATES``.

        If they have changed, the client announces them, unless a server has only plain SphTP.
        """
        self._wake(now)
        is_new = self._sender.set_candidates(candidates)
        # A server with plain SphTP refuses to register an id again: the client would lose its id.
        if not is_new or self._directory.lease.is_void:
            return
        # An announcement with the old ones may be on its way, and its ACK may establish the client.
        self._readdressed = _READDRESSED
        if self.state is S.ESTABLISHED:
            self._announce(now)

    def request_check(self, now: float, peer: int, token: int) -> None:
        """Request that a peer checks this client's candidates (``sphtp.core.nat``).

        It has no effect unless the client is established.
        """
        self._wake(now)
        if self.state is S.ESTABLISHED:
            self._sender.request_check(self._identity.holder, peer, token)

    def poll_check(self) -> PeerCheck | None:
        """Return the next request of a peer to check that peer's candidates, or None."""
        return self._checks.popleft() if self._checks else None

    def set_data(self, now: float, data: bytes) -> None:
        """Replace the client's data. Raises ``MessageTooLargeError`` if it is over ``MAX_DATA``."""
        self._wake(now)
        self._sender.set_data(data)
        self.signal(now, E.REVISED)

    def set_topics(self, now: float, topics: Iterable[str]) -> None:
        """Replace the topics of this client's sources.

        Raises ``SettingsError`` if one is wrong, or if there are too many.
        """
        self._wake(now)
        self._sender.set_topics(topics)
        self.signal(now, E.REVISED)

    def set_groups(self, now: float, groups: Iterable[str]) -> None:
        """Replace the groups that this client is in.

        Raises ``SettingsError`` if one is wrong, or if there are too many.
        """
        self._wake(now)
        self._sender.set_groups(groups)
        self.signal(now, E.REVISED)

    def set_presence(self, now: float, groups: Iterable[str] | None) -> None:
        """Follow only the members of these groups, and the peers that were looked up.

        None stands for all clients. Raises ``SettingsError`` if a group is wrong, or if there are
        too many.
        """
        self._wake(now)
        self._directory.set_interest(groups)
        if self.state is S.ESTABLISHED:
            self._lookup(now)

    def publish(self, now: float, command: int, parameters: Sequence[Parameter]) -> None:
        """Send a command of the application to all servers.

        Raises ``StateError`` if the client is not established or the numbers are wrong, and
        ``MessageTooLargeError`` if the message is too large.
        """
        self._wake(now)
        if self.state is not S.ESTABLISHED:
            raise StateError(f"a client that is {self.state.value} cannot send commands")
        self._sender.publish(self._identity.holder, command, parameters)

    def leave(self, now: float) -> None:
        """Give the id up and stop. Raises ``StateError`` if the client has left or was refused."""
        self.signal(now, E.LEAVE)

    def poll_transmit(self) -> bytes | None:
        """Return the next message to publish, or None."""
        return self._sender.poll()

    def poll_bus(self) -> BusCommand | None:
        """Return the next change of subscriptions or connections, or None."""
        return self._interest.poll_bus() or self._identity.poll_bus() or self._directory.poll_bus()

    # Received messages

    def _own(self) -> Holder:
        return self._identity.holder

    def _handle(self, now: float, message: AnyMessage) -> None:
        match message:
            case ServerHeartbeat():
                self._on_heartbeat(now, message)
            case IdAck():
                self._on_ack(now, message)
            case IdNack():
                self._on_nack(now, message)
            case Peers() if self._is_addressed(message.to):
                self._directory.handle_peers(now, message)
            case PeersGone() if self._is_addressed(message.to):
                self._directory.handle_gone(now, message)
            case ServerLeave():
                self._directory.handle_leave(message)
                self.signal(now, self._directory.finding)
            case PeerCheck() if message.to == self._identity.holder.id:
                self._checks.append(message)
            case TimeAnswer() if message.to == self._identity.holder.id:
                self.clock.handle_answer(now, message.sender, message.origin, message.stamp)
            case ServerUser() if self._is_addressed(message.to):
                user = UserMessage(message.sender, message.command, message.parameters)
                self._events.append(user)
            case _:
                self.counters.add(Count.FOREIGN)

    def _is_addressed(self, to: int) -> bool:
        return to == self._identity.holder.id or to in self._interest.topics

    def _on_heartbeat(self, now: float, message: ServerHeartbeat) -> None:
        self._directory.handle_heartbeat(now, message, self._identity.holder)
        if message.stamp is not None:
            live = self._directory.heartbeats
            self.clock.handle_stamp(now, message.member.id, message.stamp, live)
        finding = self._directory.finding
        # A client that becomes established by this heartbeat requests the lists of all servers.
        wants_list = self.state is S.ESTABLISHED and self._directory.wants_list(now, message)
        self.signal(now, finding)
        if wants_list:
            self._request_list(now, message.member.id)
        self._reader.skips_lists = not self._directory.needs_lists

    def _on_ack(self, now: float, message: IdAck) -> None:
        if self._directory.handle_ack(now, message, self._identity.holder):
            self.signal(now, self._directory.finding)

    def _on_nack(self, now: float, message: IdNack) -> None:
        self._directory.refresh(now, message.sender)
        answered = Holder(message.id, message.nonce)
        if not self._directory.is_for(self._identity.holder, message.sender, answered):
            self.counters.add(Count.STALE_NONCE)
            return
        if message.reason is Reason.UNKNOWN:
            self._identity.acknowledged_by.discard(message.sender)
        elif message.reason is not Reason.STALE_DATA:
            self.last_refusal = message.reason
        self.signal(now, _SIGNALS.get(message.reason, E.CONFLICT))

    # Timeouts

    def _expire(self, now: float) -> None:
        self._directory.handle_timeout(now)
        self.signal(now, self._directory.finding)

    def _postpone_expiries(self, lag: float) -> None:
        self._directory.postpone_expiries(lag)
        # Servers may have de-registered this client. One heartbeat is enough to receive a NACK.
        self._directory.lease.excuse(self._now + self._timers.heartbeat)
        self.alarms.postpone(E.DEADLINE, lag)

    def _next_due(self) -> float | None:
        return earliest(self.alarms.due, self._directory.next_due())

    # Actions of the table

    def _request_id(self, now: float) -> None:
        self._identity.draw(self._directory.roster.records)
        self._reader.acked = ACKED.of(self._identity.holder).encode()
        self._readdressed = 0
        self._directory.lease.announced_at = now
        features = SHARDED | RESTRICTED * self._interest.is_restricted
        self._sender.announce(self._identity.holder, features)
        heartbeat, deadline = self._timers.next_heartbeat(self._entropy), self._timers.announcing
        self.alarms.set(E.HEARTBEAT_DUE, now + heartbeat)
        self.alarms.set(E.DEADLINE, now + deadline)

    def _lookup(self, now: float) -> None:
        holder = self._identity.holder
        looked_up = self._directory.search_again()
        if self._interest.is_restricted:
            for server, heartbeat in self._directory.heartbeats.items():
                if self._directory.wants_list(now, heartbeat):
                    self._request_list(now, server)
        else:
            self._sender.lookup(holder)
        for peer in looked_up:
            self._sender.lookup(holder, peer=peer)
        self._reader.skips_lists = False

    def _request_list(self, now: float, server: int) -> None:
        if self._interest.is_restricted:
            watches, target = self._directory.take_watches(now, server)
            self._sender.watch(self._identity.holder, target, watches)
        else:
            self._sender.lookup(self._identity.holder, server=server)

    def _announce(self, now: float) -> None:
        features = SHARDED | RESTRICTED * self._interest.is_restricted
        self._sender.announce(self._identity.holder, features)
        lease = self._directory.lease
        lease.announced_at = now if lease.announced_at is None else lease.announced_at
        self.alarms.set(E.HEARTBEAT_DUE, now + self._timers.next_heartbeat(self._entropy))

    def _confirm(self, now: float) -> None:
        if not self._directory.is_unanimous or self._directory.lease.needs_answer(now):
            self._announce(now)

    def _heartbeat(self, now: float) -> None:
        is_void = self._directory.lease.is_void
        if self._readdressed and self.state is S.ESTABLISHED and not is_void:
            self._readdressed -= 1
            self._announce(now)
            return
        request = self.clock.poll_request(now, self._directory.heartbeats)
        self._sender.heartbeat(self._identity.holder, request)
        self.alarms.set(E.HEARTBEAT_DUE, now + self._timers.next_heartbeat(self._entropy))

    def _pause(self, now: float) -> None:
        self.alarms.set(E.BACKED_OFF, now + self._timers.next_backoff(self._entropy))

    def _send_data(self, _: float) -> None:
        self._sender.send_data(self._identity.holder)

    def _forget_answers(self, _: float) -> None:
        self._identity.acknowledged_by.clear()
        self._directory.lease.forget()

    def _withdraw(self, _: float) -> None:
        if self._identity.holder.nonce != NO_NONCE:
            self._sender.leave(self._identity.holder)
        self._identity.give_up()
        self._directory.lease.forget()

    def _keep_peers(self, now: float) -> None:
        self._directory.keep_peers(now)

    def _report_established(self, _: float) -> None:
        self.last_refusal = None
        self._events.append(outputs.Established(self.id, resumed=False))

    def _report_resumed(self, _: float) -> None:
        self.last_refusal = None
        self._events.append(outputs.Established(self.id, resumed=True))

    def _report_suspended(self, _: float) -> None:
        self._events.append(outputs.Suspended())

    def _report_id_lost(self, _: float) -> None:
        self._events.append(outputs.IdLost(self.id, self._why_refused()))

    def _report_refused(self, _: float) -> None:
        self._events.append(outputs.Refused(self._why_refused()))

    def _report_left(self, _: float) -> None:
        self._events.append(outputs.Left())

    def _why_refused(self) -> Reason:
        return Reason.CONFLICT if self.last_refusal is None else self.last_refusal

    @classmethod
    def runner(cls) -> Runner[ClientState, ClientSignal, ClientAction]:
        return Runner(
            CLIENT,
            {
                A.REQUEST_ID: cls._request_id,
                A.ANNOUNCE: cls._announce,
                A.CONFIRM: cls._confirm,
                A.HEARTBEAT: cls._heartbeat,
                A.SEND_DATA: cls._send_data,
                A.LOOKUP: cls._lookup,
                A.PAUSE: cls._pause,
                A.FORGET_ANSWERS: cls._forget_answers,
                A.WITHDRAW: cls._withdraw,
                A.KEEP_PEERS: cls._keep_peers,
                A.REPORT_ESTABLISHED: cls._report_established,
                A.REPORT_RESUMED: cls._report_resumed,
                A.REPORT_SUSPENDED: cls._report_suspended,
                A.REPORT_ID_LOST: cls._report_id_lost,
                A.REPORT_REFUSED: cls._report_refused,
                A.REPORT_LEFT: cls._report_left,
            },
            raised={E.LEAVE},
            counted=NACKS,
            ignored=set(E) - NACKS - {E.LEAVE},
            count=cls.count_refused,
            timed=True,
        )


_RUNNER = ClientMachine.runner()
