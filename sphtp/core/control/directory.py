"""The directory of a client: its servers, its peers, its lookups, and the lease of its id.

A client has no timer for a peer. It keeps a peer as long as one server vouches for it. Every
departure of a peer passes ``Roster._remove``, for one of these reasons:

* A server reports the departure (``Directory.handle_gone``, ``Roster.leave``). ``LEFT`` counts for
  all servers at once. With any other reason, only this server stops vouching. The reason is
  ``EXPIRED`` if the server received nothing from the peer for one expiry, or for a shorter time
  after the end of its connection (``Registrations.handle_timeout`` and ``doubt``).
* A server's whole list, or the list of a group, lacks the peer (``Roster.keep_only``): this server
  stops vouching, with ``EXPIRED``. For a client that watches groups, the reply ``UNKNOWN`` to a
  lookup does the same (``Roster.disown``).
* A server was silent for its expiry (``Directory.handle_timeout``), or has stopped
  (``handle_leave``). ``_forget`` and ``_drop_ghosts`` end its vouching for all its peers, with
  ``EXPIRED``. They postpone this for the latest lost servers while no server is live, and for one
  expiry after a server returns or the client is established (``keep_peers``). At the end of that
  expiry, ``handle_timeout`` calls ``_drop_ghosts`` for all of them.
* Another holder has the id (``Roster.enter``): ``CONFLICT``.
* The client no longer follows the peer (``Roster.enter``, ``narrow``): ``LEFT``.

When a server stops vouching, ``Roster._disown`` removes the peer only if no other server vouches
for it. So ``EXPIRED`` does not always mean that the peer was silent.
"""

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
"""The most open lookups. Answers may be lost, so a further one ends the oldest."""


class PendingLookups:
    """The open lookups of peers, each with the servers that still have to answer, and those that
    have not registered the peer.
    """

    __slots__ = ("_denied", "_open")

    def __init__(self) -> None:
        self._open: dict[int, set[int]] = {}
        self._denied: dict[int, set[int]] = {}

    @property
    def peers(self) -> tuple[int, ...]:
        """The peers with a lookup that is not over."""
        return tuple(self._open)

    def begin(self, peer: int, servers: Iterable[int]) -> None:
        """Begin a lookup of a peer at these servers."""
        self.found(peer)
        if len(self._open) >= _MOST_LOOKUPS:
            self.found(next(iter(self._open)))
        self._open[peer] = set(servers)

    def found(self, peer: int) -> None:
        """End a lookup, because a server has sent the peer."""
        self._open.pop(peer, None)
        self._denied.pop(peer, None)

    def deny(self, peer: int, server: int) -> bool:
        """Note that a server has not registered a peer.

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
        """Stop waiting for lost servers. Return the peers that no other server has registered.

        If no other server has answered, a lookup stays open until it is repeated.
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
"""The most watches of a group per expiry.

A watch leaves at a heartbeat of a server. So with the default periods three leave per expiry, and
two in a row may be lost before a server stops publishing the group.
"""

Events = list[ClientEvent]


class Roster:
    """The peers, each with the servers that vouch for it, because they have registered it.

    Every change returns its events. The records of the holders in ``own``, a live view, describe
    the client itself.
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
        """All records by id for which servers vouch, with this client's own: a read-only view."""
        self._peers: dict[int, PeerRecord] = {}
        self._vouched: dict[int, Fingerprints] = {}
        self._gone = ReservedIds(expiry, MOST_PEERS)
        self._own = own

    @property
    def peers(self) -> Mapping[int, PeerRecord]:
        """All peers by id, without this client."""
        return MappingProxyType(self._peers)

    @property
    def servers(self) -> tuple[int, ...]:
        """The servers that vouch for a peer, or have done so, until ``drop_server``."""
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
        """Return the client's watches, with digests of the records for which ``server`` vouches."""
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
        if known is None and len(self._peers) >= self._capacity and not self._is_own(record):
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

        With ``group`` this holds for the members of the group only.
        """
        events: Events = []
        kept = frozenset(peers)
        # The record of this server: another may have sent a later one, with other groups.
        for record, _ in tuple(self._prints(server).marked()):
            if record.id not in kept and (group is None or group in topics_of(record)):
                events += self._disown(server, self._records[record.id], Reason.EXPIRED)
        return events

    def disown(self, server: int, peer: int) -> Events:
        """Note that ``server`` does not vouch for a peer."""
        is_vouched = peer in self._prints(server)
        return self._disown(server, self._records[peer], Reason.EXPIRED) if is_vouched else []

    def narrow(self) -> Events:
        """Drop the peers that are outside the present interest."""
        events: Events = []
        for record in tuple(self._records.values()):
            if not self._interest.covers(record):
                events += self._remove(record, Reason.LEFT)
        return events

    def drop_server(self, server: int) -> Events:
        """Note that ``server`` is lost and vouches for no peer."""
        events: Events = []
        for number in self._prints(server).ids:
            events += self._disown(server, self._records[number], Reason.EXPIRED)
        del self._vouched[server]
        return events

    def _is_own(self, record: PeerRecord) -> bool:
        return Holder(record.id, record.nonce) in self._own

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
        if self._is_own(record):
            return []
        self._peers[record.id] = record
        return [event]


class IdLease:
    """The time for which a client certainly holds its id, although its messages may be lost.

    A server refuses an id to all others as long as its holder is registered, and for one expiry
    after that. So for one expiry after any moment at which a server had the client registered, no
    other client can be established with the id. Two events prove such a moment: the ACK of an
    announcement, which the server received after the client had sent it; and a list of the server
    that contains the client. A client that watches groups has no list. For it, any heartbeat of a
    server counts as such a list, although it proves nothing.
    """

    __slots__ = ("_expiry", "_is_excused", "announced_at", "is_over", "is_void", "since")

    def __init__(self, expiry: float) -> None:
        self._expiry = expiry
        self._is_excused = False
        self.since: float | None = None
        """The latest proven moment; None before the first ACK."""
        self.announced_at: float | None = None
        """The time of the first announcement since the last ACK."""
        self.is_over = False
        """True if one expiry has passed since the latest proven moment."""
        self.is_void = False
        """True if a server has only plain SphTP, and so would refuse a repeated announcement."""

    def needs_answer(self, now: float) -> bool:
        """Return True if the client has to announce its id for the lease.

        It has to if half of the lease is over, or if the lease has not begun; never if it is void.
        """
        return not self.is_void and (self.since is None or now >= self.since + self._expiry / 2)

    def handle_acknowledged(self) -> None:
        """Renew the lease by an ACK, from the first announcement since the last ACK on."""
        if self.announced_at is not None:
            self.since = max(self.announced_at, self.since or self.announced_at)
            self.announced_at = None
            self.is_over = self._is_excused = False

    def handle_listed(self, now: float) -> None:
        """Renew the lease, because a server's list contains this client.

        The list may have been on its way for a quarter of an expiry.
        """
        self._prove(now - self._expiry / 4)
        self._is_excused = False

    def excuse(self, until: float) -> None:
        """Extend the lease to ``until`` at least, because this process did not run for a while.

        This has an effect only once until a server proves the lease again, because a program may
        fail to run for seconds in every step.
        """
        if not self._is_excused:
            self._prove(until - self._expiry)
            self._is_excused = True

    def _prove(self, since: float) -> None:
        """Renew the lease from the time ``since`` on, if it has begun."""
        if self.since is not None and since > self.since:
            self.since = since
            self.is_over = False

    def handle_timeout(self, now: float) -> None:
        """End the lease if it is due."""
        due = self.next_due()
        self.is_over = self.is_over or (due is not None and due <= now)

    def forget(self) -> None:
        """Reset the lease: the acknowledgements no longer count, or the client gave the id up."""
        self.since = self.announced_at = None
        self.is_over = self.is_void = self._is_excused = False

    def next_due(self) -> float | None:
        """Return the time of the end of the lease; None if it is over, void or has not begun."""
        if self.since is None or self.is_void or self.is_over:
            return None
        return self.since + self._expiry


class Directory:
    """The servers whose heartbeats a client receives, and the peers for which these servers vouch.

    ``own`` is a live view of the present and former holders that are this client.
    ``acknowledged_by`` is the client's set of the servers that have acknowledged its id: the
    directory adds servers to it and removes them.
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
        """The last heartbeat of each live server by its id: a read-only view."""
        self._lists: dict[int, tuple[int, Assembly[int]]] = {}
        self._watched_at: dict[int, float] = {}
        self._backoff: dict[int, ExponentialBackoff] = {}
        self._acknowledged_by = acknowledged_by
        self.lease = IdLease(timers.expiry)
        self._pending_lookups = PendingLookups()
        self._ghosts_until: float | None = None
        self.needs_lists = False
        """True while lists are requested, or a server's digest differs from that of its records."""

    @property
    def servers(self) -> Mapping[int, Member]:
        """The live servers by id."""
        return self._servers.members

    @property
    def view(self) -> ClusterView:
        """The view: the servers that have to agree on the id."""
        return self._servers.view

    @property
    def is_unanimous(self) -> bool:
        """True if every server that has to acknowledge the id has done so.

        These are the active servers of the view or, if none is active, all of its servers.
        """
        needed = self._servers.active or {member.id for member in self._servers.view.members}
        return bool(needed) and needed <= self._acknowledged_by

    @property
    def finding(self) -> ClientSignal:
        """The signal of the client's table for the present state of the servers."""
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
        """Return True if a server's answer to ``answered`` is for this client, ``own``.

        The nonce must be equal, except from servers with plain SphTP, which have none.
        """
        if own.nonce == NO_NONCE or answered.id != own.id or not self._knows(server):
            return False
        if answered.nonce == own.nonce:
            return True
        member = self.servers.get(server)
        return member is not None and member.nonce == answered.nonce == NO_NONCE

    def handle_ack(self, now: float, message: IdAck, own: Holder) -> bool:
        """Record a server's ACK. Return True if it is for this client."""
        self._servers.refresh(now, message.sender)
        for answered in message.holders:
            if self.is_for(own, message.sender, answered):
                self._acknowledged_by.add(message.sender)
                self.lease.handle_acknowledged()
                return True
        return False

    def refresh(self, now: float, server: int) -> None:
        """Restart the expiry of a server that has sent a message."""
        self._servers.refresh(now, server)

    def handle_heartbeat(self, now: float, heartbeat: ServerHeartbeat, own: Holder) -> None:
        """Take a server's heartbeat; ``own`` is the present holder of this client."""
        if not self.heartbeats:
            self.keep_peers(now)
        if heartbeat.member.nonce == NO_NONCE:
            self.lease.is_void = True
        elif self.interest.is_restricted or (
            self.lease.since is not None and self._is_listed(heartbeat, own)
        ):
            # A client that watches groups has no list, so that each heartbeat renews its lease.
            self.lease.handle_listed(now)
        effect = self._servers.handle_heartbeat(now, heartbeat)
        if effect is not None and effect.left is not None:
            self._forget([effect.left.id])

    def _is_listed(self, heartbeat: ServerHeartbeat, own: Holder) -> bool:
        """Return True if a server's list contains this client, which has the same list."""
        server = heartbeat.member.id
        return self.roster.has(server, own) and heartbeat.roster == self.roster.digest(server)

    def wants_list(self, now: float, heartbeat: ServerHeartbeat) -> bool:
        """Return True if the client has to request a server's list now, because it differs.

        A client that watches groups sends its watches regularly, and the server compares digests.
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

    def take_watches(self, now: float, server: int) -> tuple[tuple[Watch, ...], int | None]:
        """Return the watches to send now, and their server; None stands for all servers.

        As long as nothing is lost, the client has the same records from all servers, and so the
        same watches. PUB sends each message to all servers. So one message for each of n servers
        would reach n servers each.
        """
        watches, digest = self.roster.watches(server), self.roster.digest(server)
        if any(self.roster.digest(other) != digest for other in self.heartbeats):
            return watches, server
        self._watched_at = dict.fromkeys(self.heartbeats, now)
        return watches, None

    def set_interest(self, groups: Iterable[str] | None) -> None:
        """Follow the members of other groups, or with None all clients.

        Raises ``SettingsError`` if a group is wrong, or if there are too many.
        """
        self.interest.set(groups)
        self._watched_at.clear()
        self._lists.clear()
        self._events.extend(self.roster.narrow())

    def handle_leave(self, message: ServerLeave) -> None:
        """Remove a server that has stopped."""
        if self._servers.handle_leave(message.sender, message.nonce):
            self._forget([message.sender])

    def search(self, peer: int) -> None:
        """Begin a lookup of a peer at all live servers."""
        if self.interest.look_up(peer):
            self._events.extend(self.roster.narrow())
        self._pending_lookups.begin(peer, self._servers.heartbeats)

    def search_again(self) -> tuple[int, ...]:
        """Begin open lookups again, and mark lists as needed. Return the peers to look up."""
        self.needs_lists = True
        peers = self._pending_lookups.peers
        self._watched_at.clear()
        for peer in peers:
            self.search(peer)
        return peers

    def handle_peers(self, now: float, message: Peers) -> None:
        """Take peers from a server: single ones, or a part of its whole list or a group's."""
        if message.sender not in self.heartbeats:
            self._counters.add(Count.FOREIGN)
            return
        if message.part is not None:
            # A server sends the parts of a list in a row, so one assembly per server is enough.
            begun_for, assembly = self._lists.get(message.sender, (None, None))
            if assembly is None or begun_for != message.to:
                assembly = Assembly[int](self._counters)
                self._lists[message.sender] = message.to, assembly
            whole = assembly.add(message.part, [record.id for record in message.records])
            if whole is not None:
                group = message.to if is_group_topic(message.to) else None
                self._events.extend(self.roster.keep_only(message.sender, whole, group))
        # The rest of the list may be lost, so each part has its effect at once.
        for record in message.records:
            self._pending_lookups.found(record.id)
            self._events.extend(self.roster.enter(now, message.sender, record))

    def handle_gone(self, now: float, message: PeersGone) -> None:
        """Handle a server's message about clients that are no longer registered there.

        The message may also be the reply to a lookup that did not find a client.
        """
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
        """Remove silent servers, and end the lease if it is due.

        At the end of ``keep_peers``, remove the peers for which only lost servers vouch.
        """
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
        """Postpone every expiry by ``lag`` seconds."""
        self._servers.postpone_expiries(lag)
        if self._ghosts_until is not None:
            self._ghosts_until += lag

    def next_due(self) -> float | None:
        """Return the time of the next expiry, or of the next address to dial."""
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
        # Keep the peers of lost servers for now, but only of the latest ones: many servers may come
        # and go.
        self._drop_ghosts(keep=MAX_MEMBERS)
        if not self.heartbeats:
            self._ghosts_until = None

    def _drop_ghosts(self, keep: int = 0) -> None:
        """Drop lost servers and their peers, except the ``keep`` latest ones."""
        ghosts = [server for server in self.roster.servers if server not in self.heartbeats]
        for server in ghosts[: max(0, len(ghosts) - keep)]:
            self._events.extend(self.roster.drop_server(server))
