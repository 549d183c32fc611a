"""A client's knowledge of servers and peers."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from sphtp.core.control.client_table import ClientSignal
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.interest import Interest, is_group_topic, topics_of
from sphtp.core.control.lists import Assembly, Fingerprints
from sphtp.core.control.outputs import (
    ClientEvent,
    Dial,
    HangUp,
    PeerChanged,
    PeerEntered,
    PeerLeft,
    PeerUnknown,
)
from sphtp.core.control.records import (
    MAX_MEMBERS,
    MOST_PEERS,
    ClusterView,
    Digest,
    GoneHolder,
    Holder,
    Member,
    Peer,
    PeerRecord,
    ServerAddress,
    Watch,
    is_newer,
)
from sphtp.core.control.registry import ReservedIds
from sphtp.core.control.server_messages import IdAck, Peers, PeersGone, ServerHeartbeat, ServerLeave
from sphtp.core.control.server_set import ClientServerSet, ExponentialBackoff
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import NO_NONCE, Reason, is_client_id
from sphtp.core.timers import earliest

_MOST_LOOKUPS = 1024
"""The most lookups that are remembered. Answers may be lost, so the oldest makes room."""


class PendingLookups:
    """The servers that still have to answer for each peer asked for, and those that deny it."""

    __slots__ = ("_denied", "_open")

    def __init__(self) -> None:
        self._open: dict[int, set[int]] = {}
        self._denied: dict[int, set[int]] = {}

    @property
    def peers(self) -> tuple[int, ...]:
        """The peers with a lookup that is not over."""
        return tuple(self._open)

    def begin(self, peer: int, servers: Iterable[int]) -> None:
        """Note that these servers were asked for a peer."""
        self.found(peer)
        if len(self._open) >= _MOST_LOOKUPS:
            self.found(next(iter(self._open)))
        self._open[peer] = set(servers)

    def found(self, peer: int) -> None:
        """End a lookup: a server knows the peer."""
        self._open.pop(peer, None)
        self._denied.pop(peer, None)

    def deny(self, peer: int, server: int) -> bool:
        """Note that a server does not know a peer.

        Return True if it was the last server that had to answer.
        """
        waited_for = self._open.get(peer, set())
        if server not in waited_for:
            return False
        waited_for.remove(server)
        self._denied.setdefault(peer, set()).add(server)
        if not waited_for:
            self.found(peer)
        return not waited_for

    def lose(self, servers: Sequence[int]) -> list[int]:
        """Stop waiting for servers that are gone; return the peers that no other server knows.

        A lookup stays open, until servers are asked again, if no server that is left has answered.
        """
        unknown: list[int] = []
        for peer, waited_for in self._open.items():
            waited_for.difference_update(servers)
            denied = self._denied.get(peer, set())
            denied.difference_update(servers)
            if denied and not waited_for:
                unknown.append(peer)
        for peer in unknown:
            self.found(peer)
        return unknown


_WATCHES_PER_EXPIRY = 4
"""So that three of four may be lost before a server stops publishing what is watched."""

Events = list[ClientEvent]


class Roster:
    """The peers, with the servers that vouch for each. Every change returns its events.

    The holders in ``own``, a live view, are the client itself.
    """

    def __init__(
        self,
        expiry: float,
        counters: ControlCounters,
        capacity: int = MOST_PEERS,
        interest: Interest | None = None,
        *,
        own: Collection[Holder] = (),
    ) -> None:
        self._interest = interest or Interest()
        self._capacity = capacity
        self._counters = counters
        self._records: dict[int, PeerRecord] = {}
        self.records: Mapping[int, PeerRecord] = MappingProxyType(self._records)
        """All records by id that servers vouch for, this client's own included: a live view."""
        self._peers: dict[int, PeerRecord] = {}
        self._vouched: dict[int, Fingerprints] = {}
        self._gone = ReservedIds(expiry, MOST_PEERS)
        self._own = own

    @property
    def peers(self) -> Mapping[int, PeerRecord]:
        """All peers by id, without this client itself."""
        return MappingProxyType(self._peers)

    @property
    def servers(self) -> tuple[int, ...]:
        """The servers that vouch for any peer. Dead ones are among them until they are dropped."""
        return tuple(self._vouched)

    def digest(self, server: int) -> Digest:
        """Return the digest of the records that ``server`` vouches for."""
        return self._prints(server).digest

    def has(self, server: int, holder: Holder) -> bool:
        """Return True if ``server`` vouches for a holder."""
        record = self._records.get(holder.id)
        if record is None or record.nonce != holder.nonce:
            return False
        return holder.id in self._prints(server)

    def watches(self, server: int) -> tuple[Watch, ...]:
        """Return what is watched, with the digests of what ``server`` vouches for."""
        return tuple(Watch(*each) for each in self._interest.watches(self._prints(server)))

    def enter(self, now: float, server: int, record: PeerRecord) -> Events:
        """Note that ``server`` vouches for a peer, with this record."""
        known = self._records.get(record.id)
        if known is record:
            self._prints(server).put(record)
            return []
        is_same = known is not None and known.nonce == record.nonce
        if not self._interest.covers(record.after(known) if known and is_same else record):
            if known is None or (is_same and is_newer(known.revision, record.revision)):
                return []
            return self._remove(known, Reason.LEFT)
        reserved = self._gone.find(now, record.id)
        if reserved is not None and reserved.nonce == record.nonce:
            return []
        if known is None and len(self._records) >= self._capacity:
            self._counters.add(Count.OVER_MAX_PEERS)
            return []
        events: Events = []
        if known is not None and known.nonce != record.nonce:
            events = self._remove(known, Reason.CONFLICT)
            known = None
        self._prints(server).put(record)
        record = record if known is None else record.after(known)
        if known is None:
            return events + self._show(record, PeerEntered(Peer.from_record(record)))
        if is_newer(known.revision, record.revision) or record == known:
            return []
        return self._show(record, PeerChanged(Peer.from_record(record)))

    def leave(self, now: float, server: int, gone: GoneHolder) -> Events:
        """Note that ``server`` no longer vouches for a peer.

        A LEAVE of the peer counts for all servers at once.
        """
        known = self._records.get(gone.id)
        explicit = gone.reason is Reason.LEFT
        if explicit:
            self._gone.put(now, gone.id, gone.nonce, gone.reason)
        if known is None or known.nonce != gone.nonce:
            return []
        if explicit:
            return self._remove(known, gone.reason)
        return self._disown(server, known, gone.reason)

    def keep_only(self, server: int, peers: Iterable[int], group: int | None = None) -> Events:
        """Note that ``server`` vouches for these peers only; it has sent their records.

        If they are the members of a group, it may vouch for others beside them.
        """
        events: Events = []
        kept = frozenset(peers)
        # The record as this server has sent it: others may know a later one, with other groups.
        for record, _ in tuple(self._prints(server).marked()):
            if record.id not in kept and (group is None or group in topics_of(record)):
                events += self._disown(server, self._records[record.id], Reason.EXPIRED)
        return events

    def disown(self, server: int, peer: int) -> Events:
        """Note that ``server`` does not know a peer."""
        is_vouched = peer in self._prints(server)
        return self._disown(server, self._records[peer], Reason.EXPIRED) if is_vouched else []

    def narrow(self) -> Events:
        """Drop the peers that are of no interest any more."""
        events: Events = []
        for record in tuple(self._records.values()):
            if not self._interest.covers(record):
                events += self._remove(record, Reason.LEFT)
        return events

    def drop_server(self, server: int) -> Events:
        """Note that ``server`` is gone and vouches for no peer."""
        events: Events = []
        for number in self._prints(server).ids:
            events += self._disown(server, self._records[number], Reason.EXPIRED)
        del self._vouched[server]
        return events

    def _prints(self, server: int) -> Fingerprints:
        return self._vouched.setdefault(server, Fingerprints())

    def _disown(self, server: int, record: PeerRecord, reason: Reason) -> Events:
        self._prints(server).drop(record.id)
        if any(record.id in prints for prints in self._vouched.values()):
            return []
        return self._remove(record, reason)

    def _remove(self, record: PeerRecord, reason: Reason) -> Events:
        del self._records[record.id]
        for prints in self._vouched.values():
            prints.drop(record.id)
        if reason is not Reason.CONFLICT:
            self._interest.forget(record.id)
        shown = self._peers.pop(record.id, None)
        return [] if shown is None else [PeerLeft(Peer.from_record(record), reason)]

    def _show(self, record: PeerRecord, event: ClientEvent) -> Events:
        self._records[record.id] = record
        if Holder(record.id, record.nonce) in self._own:
            return []
        self._peers[record.id] = record
        return [event]


class IdLease:
    """The time for which an id is surely this client's, although its messages may be lost.

    A server keeps an id from all others as long as its holder is registered, and for one expiry
    after that. So one expiry after any moment at which a server had the client registered, nobody
    else can be established with the id. Two things prove such a moment: the answer to an
    announcement, which the server received after the client had sent it; and a list of the server
    with the client on it.
    """

    __slots__ = ("_expiry", "_is_excused", "announced_at", "is_over", "is_void", "since")

    def __init__(self, expiry: float) -> None:
        self._expiry = expiry
        self._is_excused = False
        self.since: float | None = None
        """The latest proven moment; None before the first answer."""
        self.announced_at: float | None = None
        """The time of the first announcement since the last answer."""
        self.is_over = False
        """True if it is over, and nothing has proven it again."""
        self.is_void = False
        """True if a server knows plain SphTP only: it refuses what it has registered."""

    def needs_answer(self, now: float) -> bool:
        """Return True if it is half over."""
        return not self.is_void and (self.since is None or now >= self.since + self._expiry / 2)

    def handle_acknowledged(self) -> None:
        """Note an answer to an announcement: at the earliest, to the first since the last one."""
        if self.announced_at is not None:
            self.since = max(self.announced_at, self.since or self.announced_at)
            self.announced_at = None
            self.is_over = self._is_excused = False

    def handle_listed(self, now: float) -> None:
        """Note that a list of a server has this client; it may have been on its way for a while."""
        self._prove(now - self._expiry / 4)
        self._is_excused = False

    def excuse(self, until: float) -> None:
        """Let it last until then at least: this process did not run, and servers have to answer.

        Once only until something proves it: a program that computes for seconds in each step does
        not run again and again.
        """
        if not self._is_excused:
            self._prove(until - self._expiry)
            self._is_excused = True

    def _prove(self, since: float) -> None:
        """Note that a server had the client registered at a moment, if one has answered before."""
        if self.since is not None and since > self.since:
            self.since = since
            self.is_over = False

    def handle_timeout(self, now: float) -> None:
        """Note the time."""
        due = self.next_due()
        self.is_over = self.is_over or (due is not None and due <= now)

    def forget(self) -> None:
        """End it: no server has acknowledged the id, or the client has given it up."""
        self.since = self.announced_at = None
        self.is_over = self.is_void = self._is_excused = False

    def next_due(self) -> float | None:
        """Return the time at which it is over; None if it is over or has not begun."""
        if self.since is None or self.is_void or self.is_over:
            return None
        return self.since + self._expiry


class Directory:
    """The servers, by their heartbeats, and the peers, by the servers that vouch for them.

    ``own`` are the holders that the client is or was, and ``acknowledged_by`` the servers that have
    acknowledged its id: live views.
    """

    def __init__(
        self,
        timers: ControlTimers,
        servers: Sequence[ServerAddress],
        counters: ControlCounters,
        events: deque[ClientEvent],
        max_peers: int,
        interest: Interest,
        *,
        own: Collection[Holder],
        acknowledged_by: set[int],
    ) -> None:
        self.interest = interest
        self.roster = Roster(timers.expiry, counters, max_peers, interest, own=own)
        self._timers = timers
        self._counters = counters
        self._events = events
        self._servers = ClientServerSet(timers.expiry, counters, events, standing=servers)
        self.heartbeats = self._servers.heartbeats
        """The last heartbeat of each living server by its id: a live view."""
        self._lists: dict[int, tuple[int, Assembly[int]]] = {}
        self._watched_at: dict[int, float] = {}
        self._backoff: dict[int, ExponentialBackoff] = {}
        self._acknowledged_by = acknowledged_by
        self.lease = IdLease(timers.expiry)
        self._pending_lookups = PendingLookups()
        self._ghosts_until: float | None = None
        self.needs_lists = False
        """True if a server was asked for its list and its digest still differs."""

    @property
    def servers(self) -> Mapping[int, Member]:
        """The living servers by id."""
        return self._servers.members

    @property
    def view(self) -> ClusterView:
        """The servers that have to acknowledge the id."""
        return self._servers.view

    @property
    def is_unanimous(self) -> bool:
        """True if every server that has to acknowledge the id has done so.

        If all servers are joining, all of them have to acknowledge the id.
        """
        needed = self._servers.active or {member.id for member in self._servers.view.members}
        return bool(needed) and needed <= self._acknowledged_by

    @property
    def finding(self) -> ClientSignal:
        """The signal for the present state of the servers; the most advanced one that applies."""
        if not self.heartbeats:
            return ClientSignal.SERVERS_LOST
        if self.lease.is_over:
            return ClientSignal.LEASE_OVER
        if self.is_unanimous:
            return ClientSignal.ACKNOWLEDGED
        return ClientSignal.SERVER_READY if self._servers.active else ClientSignal.SERVER_LIVE

    def start(self) -> None:
        """Connect to the standing servers."""
        self._servers.connect()

    def is_for(self, own: Holder, server: int, answered: Holder) -> bool:
        """Return True if a server's answer is for this client; plain SphTP has no nonces."""
        if own.nonce == NO_NONCE or answered.id != own.id or not self._knows(server):
            return False
        if answered.nonce == own.nonce:
            return True
        member = self.servers.get(server)
        return member is not None and member.nonce == answered.nonce == NO_NONCE

    def handle_ack(self, now: float, message: IdAck, own: Holder) -> bool:
        """Note a server's acknowledgement. Return true if it is for this client."""
        self._servers.refresh(now, message.sender)
        for answered in message.holders:
            if self.is_for(own, message.sender, answered):
                self._acknowledged_by.add(message.sender)
                self.lease.handle_acknowledged()
                return True
        return False

    def refresh(self, now: float, server: int) -> None:
        """Note that a server sent a message."""
        self._servers.refresh(now, server)

    def handle_heartbeat(self, now: float, heartbeat: ServerHeartbeat, own: Holder) -> None:
        """Note a server's heartbeat, for the client that is this holder."""
        if not self.heartbeats:
            self.keep_peers(now)
        if heartbeat.member.nonce == NO_NONCE:
            self.lease.is_void = True
        elif self.interest.is_restricted or (
            self.lease.since is not None and self._is_listed(heartbeat, own)
        ):
            # A client that watches groups has no list. An answer would be copied to all clients.
            self.lease.handle_listed(now)
        effect = self._servers.handle_heartbeat(now, heartbeat)
        if effect is not None and effect.left is not None:
            self._forget([effect.left.id])

    def _is_listed(self, heartbeat: ServerHeartbeat, own: Holder) -> bool:
        """Return True if a server has this client on its list, whose digest is the same here."""
        server = heartbeat.member.id
        return self.roster.has(server, own) and heartbeat.roster == self.roster.digest(server)

    def wants_list(self, now: float, heartbeat: ServerHeartbeat) -> bool:
        """Return True if a server's list of peers differs from ours, so that we must ask for it.

        A client that watches groups asks regularly, and the server finds out what differs.
        """
        server, digest = heartbeat.member.id, heartbeat.roster
        if self.interest.is_restricted:
            return self._is_watch_due(now, server)
        if digest is None or server not in self.heartbeats:
            return False
        if digest == self.roster.digest(server):
            self._backoff.pop(server, None)
            self.needs_lists = bool(self._backoff)
            return False
        self.needs_lists = True
        wait = self._backoff.get(server)
        if wait is None:
            wait = ExponentialBackoff(self._timers.heartbeat / 2, self._timers.expiry)
            self._backoff[server] = wait
        return wait.allows(now)

    def _is_watch_due(self, now: float, server: int) -> bool:
        rest = self._timers.expiry / _WATCHES_PER_EXPIRY
        if server not in self.heartbeats or now < self._watched_at.get(server, -rest) + rest:
            return False
        self._watched_at[server] = now
        return True

    def set_interest(self, groups: Iterable[str] | None) -> None:
        """Want the members of other groups. Raises ``SettingsError``."""
        self.interest.set(groups)
        self._watched_at.clear()
        self._lists.clear()
        self._events.extend(self.roster.narrow())

    def handle_leave(self, message: ServerLeave) -> None:
        """Drop a server that stops."""
        if self._servers.handle_leave(message.sender, message.nonce):
            self._forget([message.sender])

    def search(self, peer: int) -> None:
        """Note that all living servers are asked for a peer."""
        if self.interest.look_up(peer):
            self._events.extend(self.roster.narrow())
        self._pending_lookups.begin(peer, self._servers.heartbeats)

    def search_again(self) -> tuple[int, ...]:
        """Repeat the open lookups, and ask for lists. Return the peers to look up."""
        self.needs_lists = True
        peers = self._pending_lookups.peers
        self._watched_at.clear()
        for peer in peers:
            self.search(peer)
        return peers

    def handle_peers(self, now: float, message: Peers) -> None:
        """Take peers from a server: single ones, or a part of its whole list."""
        if message.sender not in self.heartbeats:
            self._counters.add(Count.FOREIGN)
            return
        if message.part is not None:
            # A server sends the parts of one list in a row: one list of each is enough.
            begun_for, assembly = self._lists.get(message.sender, (None, None))
            if assembly is None or begun_for != message.to:
                assembly = Assembly[int](self._counters)
                self._lists[message.sender] = message.to, assembly
            whole = assembly.add(message.part, [record.id for record in message.records])
            if whole is not None:
                group = message.to if is_group_topic(message.to) else None
                self._events.extend(self.roster.keep_only(message.sender, whole, group))
        # A record counts at once, though the rest of its list may never come.
        for record in message.records:
            self._pending_lookups.found(record.id)
            self._events.extend(self.roster.enter(now, message.sender, record))

    def handle_gone(self, now: float, message: PeersGone) -> None:
        """Take from a server the clients that are no longer registered."""
        if message.sender not in self.heartbeats:
            self._counters.add(Count.FOREIGN)
            return
        for gone in message.gone:
            self._events.extend(self.roster.leave(now, message.sender, gone))
            if gone.reason is Reason.UNKNOWN and is_client_id(message.to):
                if self.interest.is_restricted:
                    self._events.extend(self.roster.disown(message.sender, gone.id))
                if self._pending_lookups.deny(gone.id, message.sender):
                    self.interest.forget(gone.id)
                    self._events.append(PeerUnknown(gone.id))

    def handle_timeout(self, now: float) -> None:
        """Drop silent servers and, a while after a resumption, peers without a server."""
        expired = self._servers.drop_expired(now)
        if expired:
            self._forget(expired)
        self.lease.handle_timeout(now)
        if self._ghosts_until is not None and self._ghosts_until <= now:
            self._ghosts_until = None
            self._drop_ghosts()

    def keep_peers(self, now: float) -> None:
        """Give servers ``expiry`` seconds to vouch again for the peers of lost servers."""
        self._ghosts_until = now + self._timers.expiry

    def postpone_expiries(self, lag: float) -> None:
        """Postpone every expiry."""
        self._servers.postpone_expiries(lag)
        if self._ghosts_until is not None:
            self._ghosts_until += lag

    def next_due(self) -> float | None:
        """Return the time of the next expiry."""
        return earliest(self.lease.next_due(), self._servers.next_due(), self._ghosts_until)

    def poll_bus(self) -> Dial | HangUp | None:
        """Return the next ``Dial`` or ``HangUp``, or None."""
        return self._servers.poll_bus()

    def _knows(self, server: int) -> bool:
        return server in self.heartbeats or any(m.id == server for m in self.view.members)

    def _forget(self, servers: Sequence[int]) -> None:
        for server in servers:
            self._acknowledged_by.discard(server)
            self._backoff.pop(server, None)
            self._watched_at.pop(server, None)
            self._lists.pop(server, None)
        self._events.extend(PeerUnknown(peer) for peer in self._pending_lookups.lose(servers))
        if self.heartbeats and self._ghosts_until is None:
            self._drop_ghosts()
            return
        # The peers of lost servers are kept for now, but not those of ever more servers that come
        # and go: the oldest of so many are dropped.
        self._drop_ghosts(keep=MAX_MEMBERS)
        if not self.heartbeats:
            self._ghosts_until = None

    def _drop_ghosts(self, keep: int = 0) -> None:
        """Drop the servers that are gone, and their peers, but for the ``keep`` latest ones."""
        ghosts = [server for server in self.roster.servers if server not in self.heartbeats]
        for server in ghosts[: max(0, len(ghosts) - keep)]:
            self._events.extend(self.roster.drop_server(server))
