"""What a server does with what clients say (seed, steps 6 to 8), and servers about clients.

``Registrations`` holds who is registered and who told of it, and has each change told to clients,
servers and the application. ``ClientAdmission`` answers clients. ``Replication`` keeps the lists of
all servers equal: by news at once, by snapshots when news were lost.
"""

from collections import deque
from dataclasses import replace
from enum import Enum

from sphtp.core.control.client_messages import (
    Announce,
    ClientData,
    ClientUser,
    Heartbeat,
    Leave,
    Lookup,
)
from sphtp.core.control.codec import Digest, GoneHolder, Holder
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.events import (
    PeerChanged,
    PeerEntered,
    PeerLeft,
    PeerSuspected,
    ServerEvent,
)
from sphtp.core.control.inbound import RatesPerHolder
from sphtp.core.control.lists import Assembly
from sphtp.core.control.outbox import Outbox
from sphtp.core.control.records import Peer, PeerRecord, is_newer
from sphtp.core.control.registry import Claim, Registry
from sphtp.core.control.server_messages import Registered, Released, Snapshot
from sphtp.core.control.server_table import ServerSignal
from sphtp.core.control.settings import ServerLimits
from sphtp.core.control.vocabulary import NO_NONCE, VERSION, Reason

ITSELF = 0
"""The sponsor of a client that this server has heard itself."""


class Standing(Enum):
    """How far a registered client has got."""

    ANNOUNCING = "it may not have heard all acknowledgements yet"
    SETTLED = "it has sent a normal heartbeat"


class Registrations:
    """Registrations with their sponsors: who told us, the client itself or another server.

    Clients heard here expire here. One known from another server lives as long as that one says.
    """

    def __init__(self, registry: Registry, outbox: Outbox, events: deque[ServerEvent]) -> None:
        self.registry = registry
        self._outbox = outbox
        self._events = events
        self._sponsors: dict[int, int] = {}
        self._standings: dict[int, Standing] = {}

    def standing(self, client: int) -> Standing:
        """Return how far a registered client has got."""
        return self._standings.get(client, Standing.ANNOUNCING)

    def sponsor(self, client: int) -> int:
        """Return who told us about a client."""
        return self._sponsors.get(client, ITSELF)

    def sponsored_by(self, server: int) -> list[int]:
        """Return the clients that only this server told us about."""
        return [client for client, sponsor in self._sponsors.items() if sponsor == server]

    def enter(self, now: float, record: PeerRecord, sponsor: int = ITSELF) -> bool:
        """Register a client; tell whether the registry let it in."""
        claim = self.registry.create(now, record)
        if claim not in (Claim.FREE, Claim.RESERVED):
            return False
        self._watch(now, record.id, sponsor)
        self._announce(record, PeerEntered(Peer.from_record(record)))
        return True

    def hear(self, now: float, client: int) -> None:
        """Note that a registered client spoke to this server."""
        self._watch(now, client, ITSELF)

    def doubt(self, now: float, client: int, wait: float) -> None:
        """Note that the connection of a client has ended: it may come back through another one."""
        if self.registry.doubt(now, client, wait):
            self._events.append(PeerSuspected(client))

    def settle(self, client: int) -> None:
        """Note that a registered client has sent a normal heartbeat."""
        self._standings[client] = Standing.SETTLED

    def entrust(self, now: float, client: int, sponsor: int) -> None:
        """Let another server watch over a client, unless it speaks to this one itself."""
        if self.sponsor(client) != ITSELF:
            self._watch(now, client, sponsor)

    def change(self, record: PeerRecord) -> None:
        """Replace what is told about a registered client."""
        self.registry.replace(record)
        self._announce(record, PeerChanged(Peer.from_record(record)))

    def supersede(self, now: float, record: PeerRecord, sponsor: int) -> None:
        """Give an id to another holder."""
        old = self.registry.records[record.id]
        self.registry.replace(record)
        self._standings.pop(record.id, None)
        self._watch(now, record.id, sponsor)
        self._outbox.depart(GoneHolder(old.id, old.nonce, Reason.CONFLICT), tell_servers=False)
        self._events.append(PeerLeft(Peer.from_record(old), Reason.CONFLICT))
        self._announce(record, PeerEntered(Peer.from_record(record)))

    def release(self, now: float, client: int, reason: Reason, *, tell_servers: bool) -> None:
        """De-register a client and delete its data (seed, step 11)."""
        record = self.registry.release(now, client, reason)
        self._sponsors.pop(client, None)
        self._standings.pop(client, None)
        if record is not None:
            gone = GoneHolder(record.id, record.nonce, reason)
            self._outbox.depart(gone, tell_servers=tell_servers)
            self._events.append(
                PeerLeft(Peer.from_record(replace(record, data=b"", topics=())), reason)
            )

    def adopt_clients_of(self, now: float, server: int) -> None:
        """Give the clients of a lost server one expiry to be heard here."""
        for client in self.sponsored_by(server):
            self.hear(now, client)

    def handle_timeout(self, now: float) -> None:
        """Suspect and de-register whom this server has not heard."""
        for client in self.registry.take_suspects(now):
            self._events.append(PeerSuspected(client))
        for client in self.registry.take_expired(now):
            self.release(now, client, Reason.EXPIRED, tell_servers=True)

    def _watch(self, now: float, client: int, sponsor: int) -> None:
        if sponsor == ITSELF:
            self._sponsors.pop(client, None)
            self.registry.refresh(now, client)
        else:
            self._sponsors[client] = sponsor
            self.registry.rely(client)

    def _announce(self, record: PeerRecord, event: ServerEvent) -> None:
        self._events.append(event)
        self._outbox.introduce(record.id)
        if record.id not in self._sponsors:
            self._outbox.replicate(record.id)


_ANNOUNCED = {
    Claim.FREE: ServerSignal.ANNOUNCED_NEW,
    Claim.RESERVED: ServerSignal.ANNOUNCED_NEW,
    Claim.HELD: ServerSignal.ANNOUNCED_HELD,
    Claim.TAKEN: ServerSignal.ANNOUNCED_TAKEN,
}

_ANNOUNCED_PLAINLY = {
    Standing.ANNOUNCING: ServerSignal.ANNOUNCED_HELD,
    Standing.SETTLED: ServerSignal.ANNOUNCED_TAKEN,
}


class ClientAdmission:
    """Answers clients. With ``asks`` the application has the last word on who may register.

    A NACK says why not: VERSION of another protocol, FULL at ``max_clients``, DENIED by the
    application (``register``); CONFLICT where another client holds the id (``refuse``); UNKNOWN to
    a heartbeat of an id that nobody announced here (``refuse_unknown``), and STALE_DATA where a
    heartbeat tells of data that did not arrive (``refresh``).
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
        self._data_rates = RatesPerHolder(limits.data_per_second, self._records)
        self._applicants: dict[Holder, Announce] = {}
        self._unjudged: deque[PeerRecord] = deque()

    def sort_announce(self, now: float, message: Announce) -> ServerSignal:
        """Tell what an announcement means."""
        claim = self._registry.claim(now, message.id, message.nonce)
        # Without nonces nobody can tell a retry from a second client: the id counts as the same
        # client's until it switches to normal heartbeats.
        if claim is Claim.HELD and message.nonce == NO_NONCE:
            return _ANNOUNCED_PLAINLY[self._ledger.standing(message.id)]
        return _ANNOUNCED[claim]

    def believes(self, message: Announce) -> bool:
        """Tell whether an announcement may be the holder's, who has one key for good; count it."""
        record = self._records.get(message.id)
        known = record.key if record is not None and record.nonce == message.nonce else b""
        if not known or message.key in (b"", known):
            return True
        self._counters.add(Count.FOREIGN_KEY)
        return False

    def sort_heartbeat(self, message: Heartbeat) -> ServerSignal:
        """Tell what a client's heartbeat means."""
        record = self._records.get(message.id)
        if record is None:
            return ServerSignal.HEARTBEAT_UNKNOWN
        if record.nonce == message.nonce:
            return ServerSignal.HEARTBEAT_HELD
        return ServerSignal.HEARTBEAT_FOREIGN

    def is_holder(self, holder: Holder) -> bool:
        """Tell whether somebody is the registered holder of an id."""
        record = self._records.get(holder.id)
        return record is not None and record.nonce == holder.nonce

    def holds(self, message: Leave | ClientData | Lookup | ClientUser) -> bool:
        """Tell whether the sender is the registered holder of its id; count it if not."""
        if self.is_holder(Holder(message.id, message.nonce)):
            return True
        self._counters.add(Count.NOT_REGISTERED)
        return False

    def register(self, now: float, message: Announce) -> None:
        """Register a new id, or say why not; where the application is asked, it is asked first."""
        holder = Holder(message.id, message.nonce)
        if message.version != VERSION:
            self._outbox.nack(holder, Reason.VERSION)
        elif not self._asks:
            self._enter(now, message)
        elif holder in self._applicants:
            pass  # It is being judged.
        elif len(self._applicants) >= self._max_applicants:
            self._counters.add(Count.OVER_MAX_ANSWERS)
        else:
            self._applicants[holder] = message
            self._unjudged.append(_as_announced(message))

    def poll_applicant(self) -> PeerRecord | None:
        """Return the next client that the application has to judge, or None."""
        return self._unjudged.popleft() if self._unjudged else None

    def judge(self, now: float, record: PeerRecord, *, is_admitted: bool) -> None:
        """Register a client that the application has judged, or refuse it."""
        holder = Holder(record.id, record.nonce)
        message = self._applicants.pop(holder, None)
        if message is None:
            return
        claim = self._registry.claim(now, record.id, record.nonce)
        if not is_admitted:
            self._counters.add(Count.DENIED)
            self._outbox.nack(holder, Reason.DENIED)
        elif claim is Claim.TAKEN:  # by one that applied for the same id, and was judged first
            self._outbox.nack(holder, Reason.CONFLICT)
        elif claim is Claim.HELD:  # by itself: another server was faster
            self.acknowledge(now, message)
        else:
            self._enter(now, message)

    def _enter(self, now: float, message: Announce) -> None:
        holder = Holder(message.id, message.nonce)
        if self._registry.is_full:
            self._counters.add(Count.OVER_MAX_CLIENTS)
            self._outbox.nack(holder, Reason.FULL)
        elif self._ledger.enter(now, _as_announced(message)):
            self._outbox.ack(holder)

    def register_reserved(self, now: float, message: Announce) -> None:
        """Register an id only when this client was heard using it."""
        if self._registry.claim(now, message.id, message.nonce) is Claim.RESERVED:
            self.register(now, message)

    def acknowledge(self, now: float, message: Announce) -> None:
        """Acknowledge a registered id again; its addresses may be new."""
        self._ledger.hear(now, message.id)
        record = self._records[message.id]
        told = replace(record, candidates=message.candidates, key=record.key or message.key)
        if told != record:
            self._ledger.change(told)
        self._outbox.ack(Holder(message.id, message.nonce))

    def refuse(self, _: float, message: Announce | Heartbeat) -> None:
        """Refuse an id that another client holds."""
        self._outbox.nack(Holder(message.id, message.nonce), Reason.CONFLICT)

    def refuse_unknown(self, _: float, message: Heartbeat) -> None:
        """Ask for an announcement."""
        self._outbox.nack(Holder(message.id, message.nonce), Reason.UNKNOWN)

    def reserve(self, now: float, message: Heartbeat) -> None:
        """Keep an id for the client that uses it."""
        if self._registry.claim(now, message.id, message.nonce) is not Claim.TAKEN:
            self._registry.reserve(now, message.id, message.nonce)

    def refresh(self, now: float, message: Heartbeat) -> None:
        """Note that a registered client is alive; ask for its data when ours is not the last."""
        self._ledger.hear(now, message.id)
        self._ledger.settle(message.id)
        record = self._records[message.id]
        if message.revision is not None and message.revision != record.revision:
            self._outbox.nack(Holder(message.id, message.nonce), Reason.STALE_DATA)

    def on_leave(self, now: float, message: Leave) -> None:
        """De-register a client that gives its id up."""
        if self.holds(message):
            self._ledger.release(now, message.id, Reason.LEFT, tell_servers=True)

    def on_data(self, now: float, message: ClientData) -> None:
        """Take a client's initial simulation data and topics."""
        if not self.holds(message):
            return
        self._ledger.hear(now, message.id)
        record = self._records[message.id]
        told = _as_told(message, record)
        if told == record:
            return
        # What is not taken now is asked for when a heartbeat tells its revision: see ``refresh``.
        holder = Holder(message.id, message.nonce)
        if self._data_rates.take(now, holder):
            self._ledger.change(told)
        else:
            self._counters.add(Count.OVER_DATA_PER_SECOND)

    def on_lookup(self, now: float, message: Lookup) -> None:
        """Tell a client about one peer, or all."""
        if not self.holds(message) or message.target not in (None, self._outbox.sender):
            return
        self._ledger.hear(now, message.id)
        if message.peer is None:
            self._outbox.answer_all(message.id)
        else:
            self._outbox.answer_lookup(message.id, message.peer)


def _as_announced(message: Announce) -> PeerRecord:
    return PeerRecord(message.id, message.nonce, message.candidates, key=message.key)


def _as_told(message: ClientData, record: PeerRecord) -> PeerRecord:
    if is_newer(message.revision, record.revision):
        return replace(record, data=message.data, revision=message.revision, topics=message.topics)
    if message.revision == record.revision:
        # Another server was first to tell of this revision, and may know nothing of topics.
        return replace(record, topics=record.topics or message.topics)
    return record


_PATIENCE = 2
"""Heartbeats during which another server's list may differ before it is asked for."""


class Replication:
    """Keeps the lists of all servers equal: by news at once, by snapshots when news were lost."""

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
        """Take clients that another server registered."""
        for record in message.records:
            self._adopt(now, message.sender, record)

    def on_released(self, now: float, message: Released) -> None:
        """Drop clients that left, and those that were only known from the sender."""
        for gone in message.gone:
            if self._believes(message.sender, gone):
                self._ledger.release(now, gone.id, gone.reason, tell_servers=False)

    def on_snapshot(self, now: float, message: Snapshot) -> bool:
        """Take a part of another server's list; tell whether it is complete now."""
        assembly = self._snapshots.setdefault(message.sender, Assembly())
        whole = assembly.add(message.part, [record.id for record in message.records])
        if whole is not None:
            told = set(whole)
            for client in self._ledger.sponsored_by(message.sender):
                if client in told:
                    continue
                self._ledger.release(now, client, Reason.EXPIRED, tell_servers=False)
        # A record counts at once, though the rest of its list may never come.
        for record in message.records:
            self._adopt(now, message.sender, record)
        return whole is not None

    def compare(self, now: float, server: int, digest: Digest) -> None:
        """Ask a server for its list when it differs from ours for more than two heartbeats."""
        if digest == self._ledger.registry.digest:
            self._differing.pop(server, None)
            return
        self._differing[server] = self._differing.get(server, 0) + 1
        rested = now - self._asked.get(server, float("-inf")) >= self._expiry
        if self._differing[server] > _PATIENCE and rested:
            self._asked[server] = now
            self._outbox.request_snapshot(server)

    def lose(self, now: float, server: int) -> None:
        """Forget a server that is gone."""
        self._snapshots.pop(server, None)
        self._differing.pop(server, None)
        self._asked.pop(server, None)
        self._ledger.adopt_clients_of(now, server)

    def _adopt(self, now: float, server: int, record: PeerRecord) -> None:
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
            self._settle(now, server, held, record)

    def _take_in(self, now: float, server: int, record: PeerRecord) -> None:
        if self._ledger.registry.is_full:
            self._counters.add(Count.OVER_MAX_CLIENTS)
        elif not self._ledger.enter(now, record, server):
            self._counters.add(Count.STALE_NONCE)

    def _settle(self, now: float, server: int, held: PeerRecord, told: PeerRecord) -> None:
        """Two holders: the lower nonce keeps the id, on every server alike."""
        loser = max(held, told, key=lambda record: record.nonce)
        self._outbox.nack(Holder(loser.id, loser.nonce), Reason.CONFLICT)
        if loser is held:
            self._ledger.supersede(now, told, server)
        else:
            self._outbox.replicate(held.id)

    def _believes(self, server: int, gone: GoneHolder) -> bool:
        held = self._ledger.registry.records.get(gone.id)
        if held is None or held.nonce != gone.nonce:
            return False
        return gone.reason is Reason.LEFT or self._ledger.sponsor(gone.id) == server
