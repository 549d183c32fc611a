"""The server's registrations: the ids that clients hold, and the answers to clients' messages.

An ANNOUNCE or a HEARTBEAT of a client draws an ACK, a NACK or no answer in these steps (SphTP,
steps 6 to 8):

1. ``ServerMachine._on_announce`` (``server``) counts and drops an ANNOUNCE that exceeds
   ``announces_per_second`` or has another key than its holder (``ClientAdmission.believes``).
2. ``ClientAdmission.sort_announce`` and ``sort_heartbeat`` return the signal of the message. It
   depends on the holder of the id.
3. The table ``SERVER`` (``server_table``) chooses the action for this signal. A detached server
   only refreshes known holders. A joining server registers only ids that are reserved for the
   client, and does not answer the announcement of a free id.
4. The action calls the method of ``ClientAdmission`` with its name. This method decides between
   ACK, NACK and silence, and chooses the reason of a NACK: the class lists the reasons. With a
   shared registry it is a method of ``SharedAdmission``, and mostly the store decides later.
5. ``Outbox.ack`` and ``Outbox.nack`` collect the answers. A later answer to the same holder
   replaces an earlier one. Beyond ``max_answers`` they count and drop an answer.
6. ``ServerMachine.poll_transmit`` discards the collected answers while the server is detached. Else
   ``Outbox.poll`` sends them with the next batch.

Two NACKs answer no message. ``Replication._resolve_conflict`` refuses a holder if two servers have
registered different holders of one id, and ``SharedAdmission._supersede`` refuses the holder that
the store has replaced.

``Registrations`` holds the registered clients and their sponsors. The sponsor of a client is this
server if it receives the client's messages, or if it has lost the sponsor before; else a server
that has reported the client.
``Registrations`` reports each change to clients, servers and the application. ``Replication`` keeps
the lists of all servers equal: servers send each change at once, and a snapshot if a change was
lost.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from sphtp.core.control.client_messages import (
    Announce,
    CheckRequest,
    ClientData,
    ClientUser,
    Heartbeat,
    Leave,
    Lookup,
)
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.interest import NOTHING, is_group_topic
from sphtp.core.control.lists import Assembly, fingerprint
from sphtp.core.control.outbox import Outbox
from sphtp.core.control.outputs import (
    BusAudience,
    PeerChanged,
    PeerEntered,
    PeerLeft,
    PeerSuspected,
    ServerEvent,
)
from sphtp.core.control.records import (
    Candidate,
    Digest,
    GoneHolder,
    Holder,
    Peer,
    PeerRecord,
    is_newer,
)
from sphtp.core.control.registry import (
    HolderEntrusted,
    HolderGone,
    HolderSeen,
    IdAvailability,
    IdGranted,
    IdRefused,
    Registry,
    ReservedId,
    SharedRegistry,
)
from sphtp.core.control.server_messages import Registered, Released, Snapshot
from sphtp.core.control.server_table import ServerSignal
from sphtp.core.control.settings import ServerLimits
from sphtp.core.control.vocabulary import NO_NONCE, VERSION, Reason, is_client_id
from sphtp.core.token_bucket import TokenBucket

ITSELF = 0
"""Stands for this server as the sponsor of a client."""


CHECKS_PER_SECOND: Final = 10
"""Requests for checks of one client that the server passes on per second, and at once. Each causes
a message with up to eight addresses to another client. Clients repeat them.
"""


class RegistrationStage(Enum):
    """The stage of a registration."""

    ANNOUNCING = "the client may not have received all acknowledgements yet"
    SETTLED = "the client has sent a normal heartbeat"


class Registrations:
    """The registered clients, each with its sponsor: this server, or another one.

    A client whose sponsor is this server expires here. The client of another sponsor stays until
    that server reports its departure. These rules decide on the expiry:

    1. A message of a registered client restarts it here (``refresh``), and makes this server the
       sponsor. Requests for the status, lookups for another server, refused announcements, and
       announcements, lookups and requests for checks over a limit do not.
    2. After half of ``expiry`` the client is suspected, after all of it de-registered
       (``handle_timeout``; the times are in ``registry``).
    3. If the client's connection ends, ``timers.reconnect`` is left at most
       (``ServerMachine._doubt``).
    4. If this process overslept, every expiry is postponed by as long (``ControlMachine._wake``).
    5. If another server becomes the sponsor (``entrust``, ``hand_over``), the expiry here ends.
       When that server is lost, it starts anew (``adopt_clients_of``).
    6. With etcd, a client that another live server receives is handed to that server instead
       (``EtcdRegistry.take_expired_ids``).
    """

    def __init__(self, registry: Registry, outbox: Outbox, events: deque[ServerEvent]) -> None:
        self.registry = registry
        self._outbox = outbox
        self._events = events
        self._sponsors: dict[int, int] = {}
        self._stages: dict[int, RegistrationStage] = {}

    def stage(self, client: int) -> RegistrationStage:
        """Return the stage of a client's registration."""
        return self._stages.get(client, RegistrationStage.ANNOUNCING)

    def sponsor(self, client: int) -> int:
        """Return the sponsor of a client: ``ITSELF``, or the id of another server."""
        return self._sponsors.get(client, ITSELF)

    def sponsored_by(self, server: int) -> list[int]:
        """Return the clients whose sponsor is the other server ``server``."""
        return [client for client, sponsor in self._sponsors.items() if sponsor == server]

    def enter(self, now: float, record: PeerRecord, sponsor: int = ITSELF) -> bool:
        """Register a client whose id is FREE or RESERVED. Return False if there is no room."""
        if self.registry.is_full:
            return False
        if sponsor != ITSELF:
            self._sponsors[record.id] = sponsor
        self.registry.create(now, record, expires=sponsor == ITSELF)
        self._events.append(PeerEntered(Peer.from_record(record)))
        self._outbox.introduce(record.id, replicates=sponsor == ITSELF)
        return True

    def refresh(self, now: float, client: int) -> None:
        """Restart the expiry of a client that sent a message to this server, now its sponsor."""
        self._set_sponsor(now, client, ITSELF)

    def doubt(self, now: float, client: int, wait: float) -> None:
        """Suspect a client whose connection has ended; it expires within ``wait`` s of silence."""
        if self.registry.doubt(now, client, wait):
            self._suspect(client)

    def note_normal_heartbeat(self, client: int) -> None:
        """Note that a registered client has sent a normal heartbeat."""
        self._stages[client] = RegistrationStage.SETTLED

    def entrust(self, now: float, client: int, sponsor: int) -> None:
        """Make another server the sponsor of a client, unless this server is its sponsor."""
        if self.sponsor(client) != ITSELF:
            self._set_sponsor(now, client, sponsor)

    def hand_over(self, now: float, client: int, sponsor: int) -> None:
        """Make another server the sponsor of a client, also if this server was its sponsor."""
        self._set_sponsor(now, client, sponsor)

    def change(self, record: PeerRecord) -> None:
        """Replace the record of a registered client, and report the change."""
        self.registry.replace(record)
        self._events.append(PeerChanged(Peer.from_record(record)))
        self._outbox.introduce(record.id, replicates=record.id not in self._sponsors)

    def supersede(self, now: float, record: PeerRecord, sponsor: int) -> None:
        """Replace the holder of an id by another holder."""
        old = self.registry.records[record.id]
        self.registry.replace(record)
        self._stages.pop(record.id, None)
        self._set_sponsor(now, record.id, sponsor)
        self._outbox.depart(GoneHolder(old.id, old.nonce, Reason.CONFLICT), replicates=False)
        self._events.append(PeerLeft(Peer.from_record(old), Reason.CONFLICT))
        self._events.append(PeerEntered(Peer.from_record(record)))
        self._outbox.introduce(record.id, replicates=sponsor == ITSELF)

    def release(self, now: float, client: int, reason: Reason, *, replicates: bool) -> None:
        """De-register a client and delete its data (SphTP, step 11)."""
        record = self.registry.release(now, client, reason)
        self._sponsors.pop(client, None)
        self._stages.pop(client, None)
        if record is not None:
            gone = GoneHolder(record.id, record.nonce, reason)
            self._outbox.depart(gone, replicates=replicates)
            self._events.append(
                PeerLeft(Peer.from_record(replace(record, data=b"", topics=())), reason)
            )

    def adopt_clients_of(self, now: float, server: int) -> None:
        """Become the sponsor of the clients of a lost server, which restarts their expiry."""
        for client in self.sponsored_by(server):
            self.refresh(now, client)

    def handle_timeout(self, now: float) -> None:
        """Suspect clients after half of ``expiry``, and de-register them after all of it."""
        for client in self.registry.take_suspects(now):
            self._suspect(client)
        for client in self.registry.take_expired_ids(now):
            self.release(now, client, Reason.EXPIRED, replicates=True)

    def _suspect(self, client: int) -> None:
        self._events.append(PeerSuspected(Peer.from_record(self.registry.records[client])))

    def _set_sponsor(self, now: float, client: int, sponsor: int) -> None:
        if sponsor == ITSELF:
            self._sponsors.pop(client, None)
            self.registry.refresh(now, client)
        else:
            self._sponsors[client] = sponsor
            self.registry.rely(client)


class RatesPerHolder:
    """One token bucket for each holder of an id.

    The buckets of former holders are removed in bulk. ``records`` are the records of the present
    holders, by id.
    """

    __slots__ = ("_buckets", "_rate", "_records")

    def __init__(self, rate: float, records: Mapping[int, PeerRecord]) -> None:
        self._rate = rate
        self._records = records
        self._buckets: dict[Holder, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def set_rate(self, rate: float) -> None:
        """Change the rate of all holders."""
        self._rate = rate
        for bucket in self._buckets.values():
            bucket.set_rate(rate)

    def take(self, now: float, holder: Holder) -> bool:
        """Take a token of a holder. Return False if it has none left."""
        bucket = self._buckets.get(holder)
        if bucket is None:
            if len(self._buckets) >= 2 * len(self._records):
                here = {Holder(each.id, each.nonce) for each in self._records.values()}
                self._buckets = {it: kept for it, kept in self._buckets.items() if it in here}
            bucket = self._buckets[holder] = TokenBucket(self._rate)
        return bucket.take(now)


_ANNOUNCED = {
    IdAvailability.FREE: ServerSignal.ANNOUNCED_NEW,
    IdAvailability.RESERVED: ServerSignal.ANNOUNCED_NEW,
    IdAvailability.HELD: ServerSignal.ANNOUNCED_HELD,
    IdAvailability.TAKEN: ServerSignal.ANNOUNCED_TAKEN,
}

_ANNOUNCED_PLAINLY = {
    RegistrationStage.ANNOUNCING: ServerSignal.ANNOUNCED_HELD,
    RegistrationStage.SETTLED: ServerSignal.ANNOUNCED_TAKEN,
}


class ClientAdmission:
    """The answers to clients. With ``asks`` the application decides which clients may register.

    A NACK has one of these reasons:

    * VERSION: the client has another protocol version (``register``).
    * FULL: there are ``max_clients`` (``_enter``; with a shared registry also ``handle_granted``).
    * DENIED: the application refused the client (``judge``).
    * CONFLICT: the id has another holder, had one less than an expiry ago, or was given up by this
      client (``refuse``, ``judge``). With a shared registry: the store has another holder
      (``SharedAdmission.handle_refused``), or has replaced the holder registered here
      (``_supersede``). Without one: two servers have registered different holders
      (``Replication._resolve_conflict``).
    * UNKNOWN: a heartbeat has an id that is not registered or, with a shared registry, that
      another client holds (``refuse_unknown``).
    * STALE_DATA: a heartbeat has another revision than the registered data (``refresh``).
    """

    def __init__(
        self,
        ledger: Registrations,
        outbox: Outbox,
        counters: ControlCounters,
        limits: ServerLimits,
        *,
        asks: bool,
    ) -> None:
        self._asks = asks
        self._max_applicants = limits.max_answers
        self._ledger = ledger
        self._registry = ledger.registry
        self._records = ledger.registry.records
        self._outbox = outbox
        self._counters = counters
        self._lookups = TokenBucket(limits.lookups_per_second)
        self._data_rates = RatesPerHolder(limits.data_per_second, self._records)
        self._check_rates = RatesPerHolder(CHECKS_PER_SECOND, self._records)
        self._applicants: dict[Holder, Announce] = {}
        self._unjudged: deque[PeerRecord] = deque()

    def set_limits(self, limits: ServerLimits) -> None:
        """Replace the limits, from the next message on."""
        self._max_applicants = limits.max_answers
        self._registry.set_capacity(limits.max_clients)
        self._lookups.set_rate(limits.lookups_per_second)
        self._data_rates.set_rate(limits.data_per_second)

    def sort_announce(self, now: float, message: Announce) -> ServerSignal:
        """Return the signal of an ANNOUNCE for the server's table."""
        availability = self._registry.availability(now, message.id, message.nonce)
        # Without nonces a retry looks like the announcement of a second client. So until the first
        # normal heartbeat, every announcement of the id counts as a retry.
        if availability is IdAvailability.HELD and message.nonce == NO_NONCE:
            return _ANNOUNCED_PLAINLY[self._ledger.stage(message.id)]
        return _ANNOUNCED[availability]

    def believes(self, message: Announce) -> bool:
        """Return False, and count it, if an ANNOUNCE has a holder's nonce but another key."""
        record = self._records.get(message.id)
        known = record.key if record is not None and record.nonce == message.nonce else b""
        if not known or message.key in (b"", known):
            return True
        self._counters.add(Count.FOREIGN_KEY)
        return False

    def sort_heartbeat(self, message: Heartbeat) -> ServerSignal:
        """Return the signal of a client's HEARTBEAT for the server's table."""
        record = self._records.get(message.id)
        if record is None:
            return ServerSignal.HEARTBEAT_UNKNOWN
        if record.nonce == message.nonce:
            return ServerSignal.HEARTBEAT_HELD
        return ServerSignal.HEARTBEAT_FOREIGN

    def is_holder(self, holder: Holder) -> bool:
        """Return True if ``holder`` is the registered holder of its id."""
        record = self._records.get(holder.id)
        return record is not None and record.nonce == holder.nonce

    def holds(self, message: Leave | ClientData | Lookup | CheckRequest | ClientUser) -> bool:
        """Return True if the sender is the registered holder of its id, else count the message."""
        if self.is_holder(Holder(message.id, message.nonce)):
            return True
        self._counters.add(Count.NOT_REGISTERED)
        return False

    def register(self, now: float, message: Announce) -> None:
        """Register a new id, or send a NACK. With ``asks``, the application decides first."""
        holder = Holder(message.id, message.nonce)
        if message.version != VERSION:
            self._outbox.nack(holder, Reason.VERSION)
        elif not self._asks:
            self._enter(now, message)
        elif holder in self._applicants:
            pass  # The application has not decided yet.
        elif len(self._applicants) >= self._max_applicants:
            self._counters.add(Count.OVER_MAX_ANSWERS)
        else:
            self._applicants[holder] = message
            self._unjudged.append(_as_announced(message))

    def poll_applicant(self) -> PeerRecord | None:
        """Return the next client that the application has to decide on, or None."""
        return self._unjudged.popleft() if self._unjudged else None

    def judge(self, now: float, record: PeerRecord, *, is_admitted: bool) -> None:
        """Register a client that the application has decided on, or send a NACK."""
        holder = Holder(record.id, record.nonce)
        message = self._applicants.pop(holder, None)
        if message is None:
            return
        availability = self._registry.availability(now, record.id, record.nonce)
        if not is_admitted:
            self._counters.add(Count.DENIED)
            self._outbox.nack(holder, Reason.DENIED)
        elif (
            availability is IdAvailability.TAKEN
        ):  # by a client with the same id on which the application decided first
            self._outbox.nack(holder, Reason.CONFLICT)
        elif availability is IdAvailability.HELD:  # by this client: another server was faster
            self.acknowledge(now, message)
        else:
            self._enter(now, message)

    def _enter(self, now: float, message: Announce) -> None:
        holder = Holder(message.id, message.nonce)
        if self._ledger.enter(now, _as_announced(message)):
            self._outbox.ack(holder, message.features)
        else:
            self._refuse_full(holder)

    def _refuse_full(self, holder: Holder) -> None:
        self._counters.add(Count.OVER_MAX_CLIENTS)
        self._outbox.nack(holder, Reason.FULL)

    def register_reserved(self, now: float, message: Announce) -> None:
        """Register an id only if it is reserved for this client."""
        if self._registry.availability(now, message.id, message.nonce) is IdAvailability.RESERVED:
            self.register(now, message)

    def acknowledge(self, now: float, message: Announce) -> None:
        """Acknowledge a registered id again, and store new addresses of its holder."""
        self._ledger.refresh(now, message.id)
        record = self._records[message.id]
        revised = _readdressed(record, message.candidates, message.key, message.name)
        if revised != record:
            self._ledger.change(revised)
        self._outbox.ack(Holder(message.id, message.nonce), message.features)

    def refuse(self, _: float, message: Announce | Heartbeat) -> None:
        """Send NACK(CONFLICT)."""
        self._outbox.nack(Holder(message.id, message.nonce), Reason.CONFLICT)

    def refuse_unknown(self, _: float, message: Heartbeat) -> None:
        """Send NACK(UNKNOWN), upon which the client announces the id again."""
        self._outbox.nack(Holder(message.id, message.nonce), Reason.UNKNOWN)

    def reserve(self, now: float, message: Heartbeat) -> None:
        """Reserve an id for the client that uses it, unless the id is TAKEN."""
        if self._registry.availability(now, message.id, message.nonce) is not IdAvailability.TAKEN:
            self._registry.reserve(now, message.id, message.nonce)

    def refresh(self, now: float, message: Heartbeat) -> None:
        """Restart the expiry of a client, and answer its request for the time, if it has one.

        Send NACK(STALE_DATA) if its revision differs.
        """
        self._ledger.note_normal_heartbeat(message.id)
        self._ledger.refresh(now, message.id)
        record = self._records[message.id]
        if message.revision is not None and message.revision != record.revision:
            self._outbox.nack(Holder(message.id, message.nonce), Reason.STALE_DATA)
        if message.request is not None:
            self._outbox.answer_time(now, BusAudience.CLIENTS, message.id, message.request)

    def on_leave(self, now: float, message: Leave) -> None:
        """De-register a client that gives up its id."""
        if self.holds(message):
            self._ledger.release(now, message.id, Reason.LEFT, replicates=True)

    def on_data(self, now: float, message: ClientData) -> None:
        """Store a client's initial simulation data, topics and groups."""
        if not self.holds(message):
            return
        self._ledger.refresh(now, message.id)
        record = self._records[message.id]
        revised = _revised(message, record)
        if revised == record:
            return
        # After a dropped change, the client's next heartbeat causes a NACK: see ``refresh``.
        holder = Holder(message.id, message.nonce)
        if self._data_rates.take(now, holder):
            self._ledger.change(revised)
        else:
            self._counters.add(Count.OVER_DATA_PER_SECOND)

    def on_lookup(self, now: float, message: Lookup) -> None:
        """Send a client one peer, the differences in its watches, or all peers."""
        if not self.holds(message) or message.target not in (None, self._outbox.sender):
            return
        if not self._takes_lookup(now):
            return
        self._ledger.refresh(now, message.id)
        for topic, digest in message.watches:
            if is_client_id(topic):
                # Each answer counts as a lookup.
                if digest != self._digest_of(topic) and self._takes_lookup(now):
                    self._outbox.answer_lookup(message.id, topic)
            else:
                self._outbox.watch(now, topic)
                if is_group_topic(topic):
                    self._outbox.answer_group(topic, digest)
        if message.peer is not None:
            self._outbox.answer_lookup(message.id, message.peer)
        elif not message.watches:
            self._outbox.answer_all(message.id)

    def on_check_request(self, now: float, message: CheckRequest) -> None:
        """Pass a client's request on to the peer that has to check the client's candidates.

        The request counts as a lookup. If the peer is not registered, no message leaves.
        """
        if not self.holds(message):
            return
        if not self._check_rates.take(now, Holder(message.id, message.nonce)):
            self._counters.add(Count.OVER_CHECKS_PER_SECOND)
            return
        if not self._takes_lookup(now):
            return
        self._ledger.refresh(now, message.id)
        if message.peer in self._records:
            candidates = self._records[message.id].candidates
            self._outbox.pass_check(message.peer, message.id, message.token, candidates)

    def _takes_lookup(self, now: float) -> bool:
        if self._lookups.take(now):
            return True
        self._counters.add(Count.OVER_LOOKUPS_PER_SECOND)
        return False

    def _digest_of(self, client: int) -> Digest:
        record = self._records.get(client)
        return NOTHING if record is None else Digest(1, fingerprint(record))


def _as_announced(message: Announce) -> PeerRecord:
    return PeerRecord(
        message.id, message.nonce, message.candidates, key=message.key, name=message.name
    )


def _readdressed(
    record: PeerRecord, candidates: tuple[Candidate, ...], key: bytes, name: str
) -> PeerRecord:
    """Return a record with the candidates of a new announcement; a known key or name stays."""
    return replace(record, candidates=candidates, key=record.key or key, name=record.name or name)


def _revised(message: ClientData, record: PeerRecord) -> PeerRecord:
    if is_newer(message.revision, record.revision):
        return replace(
            record,
            data=message.data,
            revision=message.revision,
            topics=message.topics,
            groups=message.groups,
        )
    if message.revision == record.revision:
        # Another server has sent this revision first, perhaps without topics and groups.
        return replace(
            record,
            topics=record.topics or message.topics,
            groups=record.groups or message.groups,
        )
    return record


_PATIENCE = 2
"""Heartbeats of another server whose list may differ before this server requests that list."""


class Replication:
    """The replication of lists among servers: changes at once, and snapshots after losses."""

    def __init__(
        self, ledger: Registrations, outbox: Outbox, counters: ControlCounters, expiry: float
    ) -> None:
        self._ledger = ledger
        self._outbox = outbox
        self._counters = counters
        self._expiry = expiry
        self._snapshots: dict[int, Assembly[int]] = {}
        self._differing: dict[int, int] = {}
        self._asked: dict[int, float] = {}

    def on_registered(self, now: float, message: Registered) -> None:
        """Add or update clients that another server has registered."""
        for record in message.records:
            self._take_record(now, message.sender, record)

    def on_released(self, now: float, message: Released) -> None:
        """Remove clients that have left, and clients whose sponsor is the sender."""
        for gone in message.gone:
            if self._believes(message.sender, gone):
                self._ledger.release(now, gone.id, gone.reason, replicates=False)

    def on_snapshot(self, now: float, message: Snapshot) -> bool:
        """Take a part of another server's list. Return True if the list is complete now."""
        assembly = self._snapshots.setdefault(message.sender, Assembly(self._counters))
        whole = assembly.add(message.part, [record.id for record in message.records])
        if whole is not None:
            # The list has all clients that its sender sponsors. If one is not on it, the sender has
            # de-registered this client, and the message RELEASED was lost.
            listed = set(whole)
            for client in self._ledger.sponsored_by(message.sender):
                if client in listed:
                    continue
                self._ledger.release(now, client, Reason.EXPIRED, replicates=False)
        # The rest of the list may be lost, so each part has its effect at once.
        for record in message.records:
            self._take_record(now, message.sender, record)
        return whole is not None

    def compare(self, now: float, server: int, digest: Digest) -> None:
        """Request a server's list if it has differed in more than two heartbeats in a row.

        Request it at most once per expiry.
        """
        if digest == self._ledger.registry.digest:
            self._differing.pop(server, None)
            return
        self._differing[server] = self._differing.get(server, 0) + 1
        rested = now - self._asked.get(server, float("-inf")) >= self._expiry
        if self._differing[server] > _PATIENCE and rested:
            self._asked[server] = now
            self._outbox.request_snapshot(now, server)

    def lose(self, now: float, server: int) -> None:
        """Forget a lost server, and become the sponsor of its clients."""
        self._snapshots.pop(server, None)
        self._differing.pop(server, None)
        self._asked.pop(server, None)
        self._ledger.adopt_clients_of(now, server)

    def _take_record(self, now: float, server: int, record: PeerRecord) -> None:
        held = self._ledger.registry.records.get(record.id)
        if held is None:
            self._take_in(now, server, record)
        elif held.nonce == record.nonce:
            record = record.after(held)
            self._ledger.entrust(now, record.id, server)
            sponsored = self._ledger.sponsor(record.id) == server
            if is_newer(record.revision, held.revision) or (sponsored and record != held):
                self._ledger.change(record)
        else:
            self._resolve_conflict(now, server, held, record)

    def _take_in(self, now: float, server: int, record: PeerRecord) -> None:
        availability = self._ledger.registry.availability(now, record.id, record.nonce)
        if availability is IdAvailability.TAKEN:
            self._counters.add(Count.STALE_NONCE)
        elif not self._ledger.enter(now, record, server):
            self._counters.add(Count.OVER_MAX_CLIENTS)

    def _resolve_conflict(
        self, now: float, server: int, held: PeerRecord, claimed: PeerRecord
    ) -> None:
        """Resolve a conflict: on every server, the holder with the lower nonce keeps the id."""
        loser = max(held, claimed, key=lambda record: record.nonce)
        self._outbox.nack(Holder(loser.id, loser.nonce), Reason.CONFLICT)
        if loser is held:
            self._ledger.supersede(now, claimed, server)
        else:
            self._outbox.replicate(held.id)

    def _believes(self, server: int, gone: GoneHolder) -> bool:
        held = self._ledger.registry.records.get(gone.id)
        if held is None or held.nonce != gone.nonce:
            return False
        return gone.reason is Reason.LEFT or self._ledger.sponsor(gone.id) == server


class SharedAdmission(ClientAdmission):
    """The answers to clients of servers with a shared registry.

    The store decides on each id. So an announcement becomes a claim, and the answer waits for the
    store. A server claims the id of each client whose messages it receives, under its own lease. So
    an id stays held as long as one server receives messages of its holder, and an acknowledgement
    is valid as long as that server's lease is live. The server's copy of the store may be outdated.
    So a server refuses an id because of another holder only after an answer of the store
    (``EtcdRegistry.availability``), not because of the copy.
    """

    def __init__(
        self,
        ledger: Registrations,
        outbox: Outbox,
        counters: ControlCounters,
        limits: ServerLimits,
        *,
        asks: bool,
        store: SharedRegistry,
    ) -> None:
        super().__init__(ledger, outbox, counters, limits, asks=asks)
        self._store = store
        self._announced: dict[Holder, int] = {}

    def sort_heartbeat(self, message: Heartbeat) -> ServerSignal:
        if self.is_holder(Holder(message.id, message.nonce)):
            return ServerSignal.HEARTBEAT_HELD
        # Also if another holder is registered: upon an announcement, the store decides.
        return ServerSignal.HEARTBEAT_UNKNOWN

    def refresh(self, now: float, message: Heartbeat) -> None:
        super().refresh(now, message)
        self._claim(now, self._records[message.id])

    def on_leave(self, now: float, message: Leave) -> None:
        holder = Holder(message.id, message.nonce)
        if not self.is_holder(holder) and self._store.claims(holder):
            self._announced.pop(holder, None)
            self._store.withdraw(now, holder)
        else:
            super().on_leave(now, message)

    def forget_announcements(self) -> None:
        """Drop the unanswered announcements that wait for the store; clients repeat them."""
        self._announced.clear()

    def handle_granted(self, now: float, change: IdGranted) -> None:
        """Register a client whose claim the store has granted, and answer its announcement."""
        record = change.record
        holder = Holder(record.id, record.nonce)
        features = self._announced.pop(holder, None)
        held = self._records.get(record.id)
        if held is None:
            if not self._ledger.enter(now, record):
                # The registry has become full since the claim.
                self._store.withdraw(now, holder)
                if features is not None:
                    self._refuse_full(holder)
                return
        elif held.nonce != record.nonce:
            self._supersede(now, held, record, ITSELF)
        else:
            self._ledger.refresh(now, record.id)
            revised = _readdressed(held, record.candidates, record.key, record.name)
            if revised != held:
                self._ledger.change(revised)
        if features is not None:
            self._outbox.ack(holder, features)

    def handle_refused(self, now: float, change: IdRefused) -> None:
        """Refuse a client whose id has another holder in the store."""
        holder = change.holder
        if self.is_holder(holder):
            self._ledger.release(now, holder.id, Reason.CONFLICT, replicates=False)
        self._announced.pop(holder, None)
        self._outbox.nack(holder, Reason.CONFLICT)

    def handle_seen(self, now: float, change: HolderSeen) -> None:
        """Add or update a client that another server has registered."""
        record, server = change.record, change.server
        reserved = self._store.reserved.find(now, record.id)
        if reserved == ReservedId(record.nonce, Reason.LEFT):
            return  # It has left; the other server receives LEAVE, or the change in the store.
        held = self._records.get(record.id)
        if held is None:
            if not self._ledger.enter(now, record, server):
                self._counters.add(Count.OVER_MAX_CLIENTS)
        elif held.nonce == record.nonce:
            if server != ITSELF:
                self._ledger.entrust(now, record.id, server)
            if is_newer(record.revision, held.revision):
                self._ledger.change(record.after(held))
        else:
            self._supersede(now, held, record, server)

    def handle_entrusted(self, now: float, change: HolderEntrusted) -> None:
        """Make another server the sponsor of a client that no longer sends to this server."""
        if self.is_holder(change.holder):
            self._ledger.hand_over(now, change.holder.id, change.server)

    def handle_gone(self, now: float, change: HolderGone) -> None:
        """Remove a client that has left, or that no other server has registered any longer."""
        number = change.holder.id
        is_sponsor = self._ledger.sponsor(number) == ITSELF
        if self.is_holder(change.holder) and (change.reason is Reason.LEFT or not is_sponsor):
            self._ledger.release(now, number, change.reason, replicates=False)

    def _enter(self, now: float, message: Announce) -> None:
        holder = Holder(message.id, message.nonce)
        if self._registry.is_full and message.id not in self._records:
            self._refuse_full(holder)
            return
        if len(self._announced) >= self._max_applicants:
            # Drop the announcements whose claims ended before the store decided.
            claims = self._store.claims
            self._announced = {it: kept for it, kept in self._announced.items() if claims(it)}
        if holder not in self._announced and len(self._announced) >= self._max_applicants:
            self._counters.add(Count.OVER_MAX_ANSWERS)
            return
        self._announced[holder] = message.features
        held = self._records.get(message.id)
        if held is not None and held.nonce == message.nonce:
            claimed = _readdressed(held, message.candidates, message.key, message.name)
        else:
            claimed = _as_announced(message)
        self._claim(now, claimed)

    def _supersede(self, now: float, held: PeerRecord, record: PeerRecord, server: int) -> None:
        self._outbox.nack(Holder(held.id, held.nonce), Reason.CONFLICT)
        self._ledger.supersede(now, record, server)

    def _claim(self, now: float, record: PeerRecord) -> None:
        if not self._store.attests(record.id, record.nonce):
            self._store.claim(now, record)
