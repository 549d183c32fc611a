"""The registry on etcd, without I/O: it composes requests to etcd, and interprets the replies.

Theory of operation. The registry holds a ``StoreCopy``, and a table of the *wanted* contents of its
own keys in etcd: its entry among the members, the key of its own id, a beat, and one key for each
client whose heartbeats it receives. If the copy differs from the table, a transaction is due; at
most one is in progress. From the reply to a transaction the registry takes refusals, and the
revision that the copy has to reach. Only the copy determines whether a key exists. So a lost or
late reply, or a transaction that is performed twice, needs no rule of its own, and all changes that
this server reports are a prefix of etcd's history.

Three properties make it safe to acknowledge an id:

- etcd grants a claim only if there is no key of another nonce. As long as the own key exists, etcd
  grants no other claim. The own key ends with the lease, or when this server deletes it.
- Two proofs limit the time for which the server may rely on the copy. A lease is proven from the
  start of its last renewal. The copy is proven by a *beat*: a number that this server writes, and
  receives in the copy. The copy then contains all changes that etcd had when the beat was written.
- One expiry after the earlier of the two proofs, the store is lost (``StoreLost``), and the server
  stops sending, whatever the reason: a slow etcd, a lost leader or quorum, a stalled watch, or a
  stopped process. ``leases`` explains why that is early enough.

Each kind of request has a lane: one request at a time, and after a failure a pause that doubles.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from sphtp.core.control.records import MAX_MEMBERS, Holder, Member, PeerRecord, is_newer
from sphtp.core.control.registry import (
    HolderEntrusted,
    HolderGone,
    HolderSeen,
    IdAvailability,
    IdGranted,
    IdRefused,
    MembersChanged,
    RegistryChange,
    ReservedId,
    ServerIdTaken,
    SharedRegistry,
    StoreFailing,
    StoreLost,
    StoreReached,
)
from sphtp.core.control.vocabulary import Reason, is_client_id
from sphtp.core.timers import TimerQueue, earliest
from sphtp.errors import RemoteError
from sphtp_server.registry.copy import StoreCopy
from sphtp_server.registry.keyspace import (
    MOST_BYTES,
    MOST_OPERATIONS,
    SERVER_VALUE,
    DeleteKey,
    JsonObject,
    KeyEvent,
    KeyOperation,
    Keyspace,
    PutKey,
    StoredKey,
    encode_member,
    encode_registration,
    encode_release,
    parse_entries_untrusted,
    parse_events_untrusted,
    parse_lease_untrusted,
    parse_outcomes_untrusted,
    parse_revision_untrusted,
    parse_watch_untrusted,
)
from sphtp_server.registry.leases import NEVER, Lease, LeaseKind

SHORTEST_PAUSE: Final = 0.02
"""Seconds before the first repetition of a failed request. The pause doubles with each failure, up
to a tenth of the expiry."""

SHORTEST_TIMEOUT: Final = 0.25
"""The shortest timeout of a request, in seconds, however short the expiry is."""


SHORTEST_SUSPENSION: Final = 0.05
"""The shortest suspension that counts, in seconds: two clocks read one after the other may differ
by less."""


class StoreTask(Enum):
    """The kinds of requests."""

    MEMBER = "lease of the member"
    REGISTRATIONS = "lease of the registrations"
    LIST = "list of all keys"
    WATCH = "changes of keys"
    WRITE = "transaction"


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """A request to etcd, with its path, its body and its timeout in seconds.

    Its reply is one document. A request without a timeout is a watch, whose reply is a stream of
    documents.
    """

    task: StoreTask
    path: str
    body: JsonObject
    timeout: float | None
    number: int


class Wanted(NamedTuple):
    """The wanted content of a key."""

    value: bytes
    lease: LeaseKind
    guard: Holder | None = None
    """The holder whose claim the key is; None for another key."""
    record: PeerRecord | None = None
    """The record of the client that the key registers; None for another key."""
    is_release: bool = False
    """True if the key only keeps a released id reserved. It replaces a key, and creates none."""


@dataclass(slots=True)
class StoreTaskState:
    """The state of a lane: its request in progress, or the time before which none is sent."""

    request: StoreRequest | None = None
    started: float = NEVER
    revision: int = 0
    """The revision of the copy at the start."""
    not_before: float = NEVER
    pause: float = SHORTEST_PAUSE
    why: str = ""


@dataclass(slots=True)
class Listing:
    """The pages of a list that have arrived, all of one revision."""

    revision: int = 0
    start: str = ""
    entries: list[StoredKey] = field(default_factory=list)


class EtcdRegistry(SharedRegistry):
    """One server's part of the registry on etcd.

    Its driver takes requests from ``poll_request``, and passes in each reply, each document of a
    watch, and each failure. ``name`` is the name of the cluster, since several may share one etcd.
    ``suspended`` returns the total time, in seconds, for which the machine was suspended. The time
    ``now`` does not include it, but etcd's leases do.
    """

    def __init__(
        self,
        expiry: float,
        capacity: int,
        name: str = "sphtp",
        *,
        suspended: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__(expiry, capacity)
        self._suspended = suspended
        self._was_suspended = suspended()
        self._expiry = expiry
        self._period = expiry / 4
        self._timeout = max(SHORTEST_TIMEOUT, expiry / 6)
        self._keyspace = Keyspace(name)
        self._copy = StoreCopy(self._keyspace)
        self._own = Member(0, 0, None)
        self._own_name = self._member_name = self._beat_name = ""
        self._now = NEVER
        self._changes: deque[RegistryChange] = deque()
        self._leases = {kind: Lease(kind, expiry) for kind in LeaseKind}
        self._lanes = {lane: StoreTaskState() for lane in StoreTask}
        self._numbers = 0
        self._listing = Listing()
        self._is_listed = False
        self._is_reached = False
        self._is_stopping = False
        self._has_entered, self._is_displaced = False, False
        self._members: tuple[Member, ...] = ()
        self._wanted: dict[str, Wanted] = {}
        self._undecided: dict[str, None] = {}
        self._dirty: dict[str, None] = {}
        self._awaited: dict[str, int] = {}
        self._batch: list[tuple[str, KeyOperation]] = []
        self._most_operations = MOST_OPERATIONS
        self._releases: TimerQueue[str] = TimerQueue()
        self._beat, self._beat_started, self._beat_seen = 0, NEVER, NEVER
        self._unseen: tuple[int, float] | None = None

    # Inputs and commands of the server

    def handle_start(self, now: float, own: Member) -> None:
        self._now = now
        self._own = own
        # Keys of another nonce end with their lease.
        for lease in self._leases.values():
            lease.handle_ended()
        for names in (self._wanted, self._undecided, self._dirty, self._awaited):
            names.clear()
        self._releases = TimerQueue()
        self._has_entered, self._is_displaced = False, False
        itself = Holder(own.id, own.nonce)
        self._own_name = self._name(itself)
        self._member_name = self._keyspace.member(own)
        self._beat_name = self._keyspace.beat(own.nonce)
        self._want(self._own_name, Wanted(SERVER_VALUE, LeaseKind.REGISTRATIONS, itself))
        self._want(self._member_name, Wanted(encode_member(own), LeaseKind.MEMBER))
        self._raise_beat(now)
        self._judge(now)

    def handle_stop(self, now: float) -> None:
        self._is_stopping = True
        self._now = now

    def handle_time(self, now: float) -> None:
        self._now = now
        if self._is_stopping:
            return
        self._count_suspension()
        for name in self._releases.take_due(now):
            self._unwant(name)
        if self._beat_due is not None and self._beat_due <= now:
            self._raise_beat(now)
        if self._unseen is not None and now >= self._unseen[1]:
            # The change was written, and the watch did not report it in time: it has stalled.
            self._unseen = (self._unseen[0], now + self._timeout)
            watch = self._lanes[StoreTask.WATCH]
            if watch.request is not None and now >= watch.started + self._timeout:
                self._fail(now, StoreTask.WATCH, "changes do not arrive")
        self._judge(now)

    def attests(self, number: int, nonce: int) -> bool:
        holder = Holder(number, nonce)
        stored = self._copy.keys.get(self._name(holder))
        lease = self._leases[LeaseKind.REGISTRATIONS].number
        if stored is None or not lease or stored.lease != lease:
            return False
        return any(server == self._own.nonce for server, _, _ in self._copy.registrations(holder))

    def claims(self, holder: Holder) -> bool:
        return self._name(holder) in self._undecided

    def claim(self, now: float, record: PeerRecord) -> None:
        self._now = now
        holder = Holder(record.id, record.nonce)
        name = self._name(holder)
        self._want(name, self._registration(record))
        self._undecided[name] = None
        self._settle(name)

    def withdraw(self, now: float, holder: Holder) -> None:
        self._now = now
        self._unwant(self._name(holder))

    def poll_change(self) -> RegistryChange | None:
        return self._changes.popleft() if self._changes else None

    def status(self) -> dict[str, Any]:
        proven = self._proven
        return {
            "kind": "etcd",
            "is_reached": self._is_reached,
            "proven_seconds_ago": None if proven == NEVER else round(self._now - proven, 3),
            "revision": self._copy.revision,
            "keys": len(self._copy.keys),
            "malformed": self._copy.malformed,
            "failing": {lane.value: state.why for lane, state in self._lanes.items() if state.why},
        }

    # Methods that the registry in memory has, too

    def availability(self, now: float, number: int, nonce: int) -> IdAvailability:
        """Return HELD if the store has granted the id here, TAKEN if its holder has left.

        In all other cases return FREE: the store decides on the claim.
        """
        if self.reserved.find(now, number) == ReservedId(nonce, Reason.LEFT):
            return IdAvailability.TAKEN
        held = self.records.get(number)
        if held is not None and held.nonce == nonce and self.attests(number, nonce):
            return IdAvailability.HELD
        return IdAvailability.FREE

    def replace(self, record: PeerRecord) -> None:
        before = self.records.get(record.id)
        super().replace(record)
        if before is not None and before.nonce != record.nonce:
            self._unwant(self._name(Holder(before.id, before.nonce)))
        name = self._name(Holder(record.id, record.nonce))
        wanted = self._wanted.get(name)
        if wanted is not None and wanted.record is not None and wanted.record != record:
            self._want(name, self._registration(record))

    def release(self, now: float, number: int, reason: Reason) -> PeerRecord | None:
        record = super().release(now, number, reason)
        if record is None:
            return None
        holder = Holder(number, record.nonce)
        name = self._name(holder)
        if reason is Reason.CONFLICT:
            self._unwant(name)
        elif name in self._wanted or name in self._copy.keys:
            self._keep_reserved(now, holder, reason)
        return record

    def take_expired_ids(self, now: float) -> list[int]:
        """Return the expired ids of clients that no other live server has registered."""
        expired = []
        for number in super().take_expired_ids(now):
            record = self.records.get(number)
            if record is None:
                continue
            holder = Holder(number, record.nonce)
            server = self._find_server(holder)
            if server:
                # Not deleted at once: that server may be about to rely on this one.
                self._keep_reserved(now, holder, Reason.EXPIRED)
                self._changes.append(HolderEntrusted(holder, server))
            else:
                expired.append(number)
        return expired

    def next_due(self) -> float | None:
        if self._is_stopping:
            return super().next_due()
        times = [self._beat_due, self._releases.next_due()]
        if self._is_reached:
            times.append(self._proven + self._expiry)
        if self._unseen is not None:
            times.append(self._unseen[1])
        for lane, state in self._lanes.items():
            if state.request is None:
                times += [state.not_before, self._lease_due(lane)]
        # Times up to now are skipped: ``handle_time`` and ``poll_request`` have handled them.
        return earliest(super().next_due(), *(t for t in times if t is None or t > self._now))

    # Requests to etcd, and its replies

    def poll_request(self, now: float) -> StoreRequest | None:
        """Return the next request to send; None if there is none. A watch replaces the last one."""
        self._now = now
        if self._is_stopping:
            return self._leave(now)
        for lane, state in self._lanes.items():
            if state.request is not None or now < state.not_before:
                continue
            found = self._compose(now, lane)
            if found is not None:
                path, body = found
                self._numbers += 1
                timeout = None if lane is StoreTask.WATCH else self._timeout
                state.request = StoreRequest(lane, path, body, timeout, self._numbers)
                state.started, state.revision = now, self._copy.revision
                return state.request
        return None

    def handle_answer(self, now: float, request: StoreRequest, document: JsonObject) -> bool:
        """Handle one document of a reply. Return False if the request is complete."""
        self._now = now
        state = self._lanes[request.task]
        if state.request is not request:
            return False
        try:
            if request.task is StoreTask.WATCH:
                self._on_changes(document)
            else:
                state.request = None
                self._on_answer(now, request.task, state, document)
                state.pause, state.why = SHORTEST_PAUSE, ""
        except RemoteError as error:
            self._fail(now, request.task, str(error))
        self._judge(now)
        return state.request is request

    def handle_failure(self, now: float, request: StoreRequest, why: str) -> None:
        """Handle the failure of a request, which etcd may have performed, or may perform later."""
        self._now = now
        if self._lanes[request.task].request is request:
            self._fail(now, request.task, why)
        self._judge(now)

    def _compose(self, now: float, lane: StoreTask) -> tuple[str, JsonObject] | None:
        match lane:
            case StoreTask.MEMBER | StoreTask.REGISTRATIONS:
                lease = self._leases[LeaseKind[lane.name]]
                return lease.request() if now >= lease.due else None
            case StoreTask.LIST if not self._is_listed:
                start = self._listing.start or self._keyspace.prefix
                return "/v3/kv/range", self._keyspace.range(start, self._listing.revision)
            case StoreTask.WATCH if self._is_listed:
                return "/v3/watch", self._keyspace.watch(self._copy.revision + 1)
            case StoreTask.WRITE if self._is_listed:
                self._batch = self._next_batch()
                if self._batch:
                    operations = [operation for _, operation in self._batch]
                    return "/v3/kv/txn", self._keyspace.write(operations)
        return None

    def _on_answer(
        self, now: float, lane: StoreTask, state: StoreTaskState, document: JsonObject
    ) -> None:
        match lane:
            case StoreTask.MEMBER | StoreTask.REGISTRATIONS:
                self._on_lease(LeaseKind[lane.name], state, document)
            case StoreTask.LIST:
                self._on_page(document)
            case StoreTask.WRITE:
                self._on_written(now, state, document)

    def _fail(self, now: float, lane: StoreTask, why: str) -> None:
        state = self._lanes[lane]
        state.request = None
        state.not_before = now + state.pause
        state.pause = min(2 * state.pause, self._expiry / 10)
        if why != state.why:
            state.why = why
            self._changes.append(StoreFailing(f"{lane.value}: {why}"))
        if lane is StoreTask.WRITE:
            self._dirty.update((name, None) for name, _ in self._batch)
            # The reason may be a lease that has ended.
            for lease in self._leases.values():
                lease.due = NEVER
            # Or an operation that etcd rejects: smaller transactions separate it from the others.
            self._most_operations = max(1, self._most_operations // 2)
        elif lane is StoreTask.LIST:
            self._listing = Listing()

    def _leave(self, now: float) -> StoreRequest | None:
        """Return the request that ends the lease of the member; None if there is none."""
        lease = self._leases[LeaseKind.MEMBER]
        if not lease.number:
            return None
        body: JsonObject = {"ID": lease.number}
        lease.handle_ended()
        self._numbers += 1
        request = StoreRequest(
            StoreTask.MEMBER, "/v3/lease/revoke", body, self._timeout, self._numbers
        )
        self._lanes[StoreTask.MEMBER] = StoreTaskState(started=now)
        return request

    # Leases

    def _count_suspension(self) -> None:
        """Move all proofs back by the time for which the machine was suspended."""
        before, self._was_suspended = self._was_suspended, self._suspended()
        seconds = self._was_suspended - before
        if seconds < SHORTEST_SUSPENSION:
            self._was_suspended = before
            return
        for lease in self._leases.values():
            lease.handle_suspension(seconds)
        for state in self._lanes.values():
            state.started -= seconds
        self._beat_started -= seconds
        self._beat_seen -= seconds

    def _lease_due(self, lane: StoreTask) -> float | None:
        if lane in (StoreTask.MEMBER, StoreTask.REGISTRATIONS):
            return self._leases[LeaseKind[lane.name]].due
        return None

    def _on_lease(self, kind: LeaseKind, state: StoreTaskState, document: JsonObject) -> None:
        number, seconds = parse_lease_untrusted(document)
        lease = self._leases[kind]
        if seconds <= 0:
            lease.handle_ended()
        elif seconds < lease.seconds:
            raise RemoteError(f"etcd granted {seconds} s, and {lease.seconds} s are necessary")
        elif lease.handle_live(number, state.started, self._period):
            for name, wanted in self._wanted.items():
                if wanted.lease is kind:
                    self._dirty[name] = None

    # The copy

    def _on_page(self, document: JsonObject) -> None:
        entries, has_more = parse_entries_untrusted(document)
        listing = self._listing
        listing.revision = listing.revision or parse_revision_untrusted(document)
        listing.entries += entries
        if has_more and entries:
            listing.start = entries[-1].name + "\0"
            return
        self._listing = Listing()
        self._is_listed = True
        self._awaited.clear()
        self._unseen = None
        self._lanes[StoreTask.WATCH] = StoreTaskState()
        self._take_in(self._copy.replace(listing.entries, listing.revision))
        for name in self._wanted:
            self._dirty[name] = None

    def _on_changes(self, document: JsonObject) -> None:
        watch = parse_watch_untrusted(document)
        if watch.is_compacted:
            self._is_listed = False
            raise RemoteError("the changes since then were compacted")
        if watch.is_canceled:
            raise RemoteError(f"canceled by etcd: {watch.why}")
        events = parse_events_untrusted(document)
        if not events:
            # The watch has begun. This proves nothing, because etcd may cancel it at once.
            return
        state = self._lanes[StoreTask.WATCH]
        state.pause, state.why = SHORTEST_PAUSE, ""
        for event in events:
            self._copy.apply(event)
        self._take_in(events)
        if self._unseen is not None and self._copy.revision >= self._unseen[0]:
            self._unseen = None

    def _take_in(self, events: Sequence[KeyEvent]) -> None:
        """Report the changes that events cause, after they were applied to the copy."""
        others: dict[Holder, None] = {}
        changed = [event.revision for event in events if self._keyspace.is_member(event.name)]
        if changed:
            # All servers give this change this number, and later changes higher numbers.
            self._compare_members(max(changed))
        for event in events:
            name = event.name
            if name == self._beat_name:
                if event.stored is not None and event.stored.value == self._beat_value:
                    self._beat_seen = self._beat_started
                self._touch(event)
            elif name == self._member_name:
                self._touch(event)
            elif self._keyspace.is_id(name):
                key = self._copy.parse_id(name)
                if key is None:
                    continue
                if key.server == self._own.nonce:
                    self._touch(event)
                    self._settle(name)
                elif is_client_id(key.id):
                    others[key.holder] = None
        # Holders that are gone come first, because another holder may have their id.
        for holder in sorted(others, key=self._is_registered):
            self._report(holder)

    def _touch(self, event: KeyEvent) -> None:
        """Compare a key of this server with its wanted content again."""
        self._dirty[event.name] = None
        if self._awaited.get(event.name, event.revision + 1) <= event.revision:
            del self._awaited[event.name]

    def _settle(self, name: str) -> None:
        """Report a claim as granted if the copy contains its key."""
        wanted = self._wanted.get(name)
        if name not in self._undecided or wanted is None or wanted.record is None:
            return
        if self.attests(wanted.record.id, wanted.record.nonce):
            del self._undecided[name]
            self._changes.append(IdGranted(wanted.record))

    def _compare_members(self, revision: int) -> None:
        members = tuple(self._copy.members[:MAX_MEMBERS])
        if members != self._members:
            self._members = members
            self._changes.append(MembersChanged(revision, members))

    def _is_registered(self, holder: Holder) -> bool:
        return any(True for _ in self._copy.registrations(holder))

    def _report(self, holder: Holder) -> None:
        """Report the registrations of a holder by other servers, or their end."""
        if self._copy.has_left(holder):
            self._changes.append(HolderGone(holder, Reason.LEFT))
            return
        latest: PeerRecord | None = None
        for server, record, _ in self._copy.registrations(holder):
            if server != self._own.nonce and (
                latest is None or is_newer(record.revision, latest.revision)
            ):
                latest = record
        if latest is not None:
            self._changes.append(HolderSeen(latest, self._find_server(holder)))
            return
        wanted = self._wanted.get(self._name(holder))
        # A key that only keeps the id reserved does not prove that its holder is live.
        if wanted is None or wanted.record is None:
            self._changes.append(HolderGone(holder, Reason.EXPIRED))

    def _find_server(self, holder: Holder) -> int:
        """Return the id of another live server that has registered this holder; 0 if none."""
        live = {member.nonce: member.id for member in self._members}
        for server, _, _ in self._copy.registrations(holder):
            if server != self._own.nonce and server in live:
                return live[server]
        return 0

    # Own keys

    @property
    def _beat_value(self) -> bytes:
        return str(self._beat).encode()

    def _name(self, holder: Holder) -> str:
        return self._keyspace.id(holder, self._own.nonce)

    def _registration(self, record: PeerRecord) -> Wanted:
        value = encode_registration(record, self._own.id)
        holder = Holder(record.id, record.nonce)
        return Wanted(value, LeaseKind.REGISTRATIONS, holder, record)

    def _want(self, name: str, wanted: Wanted) -> None:
        self._wanted[name] = wanted
        self._releases.set(name, None)
        self._dirty[name] = None

    def _keep_reserved(self, now: float, holder: Holder, reason: Reason) -> None:
        """Replace a registration by its end, which keeps the id reserved for one expiry."""
        name = self._name(holder)
        value = encode_release(holder, reason, self._own.id)
        self._undecided.pop(name, None)
        self._want(name, Wanted(value, LeaseKind.REGISTRATIONS, holder, is_release=True))
        self._releases.set(name, now + self._expiry)

    def _unwant(self, name: str) -> None:
        self._undecided.pop(name, None)
        self._wanted.pop(name, None)
        self._releases.set(name, None)
        self._dirty[name] = None

    @property
    def _beat_due(self) -> float | None:
        # The next beat is due only after the copy contains the last one.
        seen = self._beat_seen == self._beat_started
        return self._beat_started + self._period if seen else None

    def _raise_beat(self, now: float) -> None:
        self._beat += 1
        self._beat_started = now
        self._want(self._beat_name, Wanted(self._beat_value, LeaseKind.MEMBER))

    def _next_batch(self) -> list[tuple[str, KeyOperation]]:
        """Return the next operations that make the keys in etcd equal to the wanted contents.

        An id occurs once, because etcd evaluates all conditions before it performs an operation.
        """
        batch: list[tuple[str, KeyOperation]] = []
        ids: set[int] = set()
        size = 0
        first = [name for name in (self._beat_name, self._member_name) if name in self._dirty]
        for name in (*first, *(name for name in tuple(self._dirty) if name not in first)):
            if len(batch) >= self._most_operations or size >= MOST_BYTES:
                break
            # A key whose change is awaited is compared again when the change arrives.
            operation = None if name in self._awaited else self._operation(name)
            key = self._copy.parse_id(name) if operation is not None else None
            if key is not None and key.id in ids:
                continue
            del self._dirty[name]
            if operation is not None:
                batch.append((name, operation))
                size += len(operation.value) if isinstance(operation, PutKey) else 0
                if key is not None:
                    ids.add(key.id)
        return batch

    def _operation(self, name: str) -> KeyOperation | None:
        stored, wanted = self._copy.keys.get(name), self._wanted.get(name)
        if wanted is None:
            return None if stored is None else DeleteKey(name, stored.revision)
        lease = self._leases[wanted.lease].number
        if not lease or (wanted.is_release and stored is None):
            return None
        if name == self._member_name and self._is_taken_over:
            return None
        if stored is not None and stored.value == wanted.value and stored.lease == lease:
            return None
        return PutKey(name, wanted.value, lease, wanted.guard)

    @property
    def _is_taken_over(self) -> bool:
        """True if another server has written its entry to this server's address.

        This server then does not write again, so that the two do not overwrite each other forever.
        """
        if not self._has_entered or self._member_name not in self._copy.keys:
            return False
        member = self._copy.member(self._member_name)
        return member is None or member.nonce != self._own.nonce

    def _on_written(self, now: float, state: StoreTaskState, document: JsonObject) -> None:
        revision = parse_revision_untrusted(document)
        outcomes = parse_outcomes_untrusted(document, len(self._batch))
        if revision < state.revision:
            self._is_listed = False
            self._fail(now, StoreTask.WATCH, "etcd has gone back to an earlier state")
            return
        self._most_operations = min(2 * self._most_operations, MOST_OPERATIONS)
        for (name, operation), is_done in zip(self._batch, outcomes, strict=True):
            if not is_done:
                self._on_refused(name, operation)
            elif self._copy.revision < revision:
                self._awaited[name] = revision
                self._unseen = (revision, now + self._timeout)
            else:
                self._dirty[name] = None

    def _on_refused(self, name: str, operation: KeyOperation) -> None:
        if isinstance(operation, DeleteKey) or operation.guard is None:
            return  # The key has changed; the copy will contain the change.
        if operation.guard == Holder(self._own.id, self._own.nonce):
            self._changes.append(ServerIdTaken())
            return
        self._unwant(name)
        self._changes.append(IdRefused(operation.guard))

    # The proofs of leases and copy

    @property
    def _proven(self) -> float:
        return min(self._beat_seen, *(lease.proven for lease in self._leases.values()))

    @property
    def _is_in_place(self) -> bool:
        for name in (self._own_name, self._member_name):
            stored, wanted = self._copy.keys.get(name), self._wanted.get(name)
            if stored is None or wanted is None or stored.value != wanted.value:
                return False
            if stored.lease != self._leases[wanted.lease].number:
                return False
        return True

    def _judge(self, now: float) -> None:
        self._has_entered = self._has_entered or self._is_in_place
        was_displaced, self._is_displaced = self._is_displaced, self._is_taken_over
        if self._is_displaced and not was_displaced:
            why = f"another server has entered the address {self._own.address}"
            self._changes.append(StoreFailing(why))
        if not self._is_displaced and was_displaced:
            self._dirty[self._member_name] = None
        is_reached = self._is_in_place and now < self._proven + self._expiry
        if is_reached != self._is_reached:
            self._is_reached = is_reached
            self._changes.append(StoreReached() if is_reached else StoreLost())
