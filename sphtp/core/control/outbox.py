"""A server's outgoing answers and changes, collected in batches and sent in few messages.

PUB copies every message to every subscriber, so one message carries entries about many clients.
Within a batch the latest entry about a holder replaces earlier ones.

A batch wakes each of n clients. If n clients start at once, n small batches would wake clients n
squared times. So batches are paced. Each batch has a cost: the processor time that all clients need
for it. The server pauses for a multiple of that cost. It may postpone pauses of ``_BURST`` seconds
in all, so that batches leave at once as long as there are few. After that, it pauses for all of
them, and entries collect until the pause is over. So if thousands start at once, the first answers
leave alone until their pauses use up the burst, and one batch has the answers to all others.

A list of all peers costs n squared by itself, because n clients read n records. So lists have
pauses of their own, as long as the cost of the list or half an expiry, whichever is shorter, and no
acknowledgement waits for them. All clients that request a list during such a pause share the next
list. Lists of watched groups leave together, because each would wake all clients by itself, also
those that filter it.

An answer with the time has a stamp of the moment at which its request arrived. Such answers leave
at once as long as there are few clients. PUB needs a system call for each client to send one
message. So among many clients these answers wait for the next message to clients, or until their
own pause is over. With 500 clients they would take half of the server's processor time.

Messages of ``send`` are not paced, and their cost does not count: the server's own heartbeats and
requests, and the messages of its application. They leave at once, after the batch collected before
them, so that clients get them in order. That batch counts, so that the next one leaves later.

An acknowledgement goes to its client alone: the subscriptions of the others filter it before any
Python runs. More than 16 acknowledgements in one batch share messages. Up to 3,840, one message is
under 0, and one under 1, for clients that restrict presence. Beyond that, there is one message for
each of eight shards of the ids. So a client that subscribes to its shard receives one of these
messages from each batch, however many such clients start at once.

Records and departures go to all clients, and once more to each watched group of the client (see
``interest``). A list of a group goes to its watchers only. Heartbeats, LEAVE and commands of the
application for all clients are sent a second time, to clients that do not subscribe to presence.
"""

from collections import Counter, deque
from collections.abc import Iterable
from itertools import islice

from sphtp.core.clock import ClusterClock, TimeRequest
from sphtp.core.control.codec import Part
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.interest import GroupIndex
from sphtp.core.control.lists import MAX_CHUNK, divide, divide_records, number_parts
from sphtp.core.control.outputs import BusAudience, BusMessage, topic
from sphtp.core.control.records import Candidate, Digest, GoneHolder, Holder
from sphtp.core.control.registry import Registry
from sphtp.core.control.server_messages import (
    IdAck,
    IdNack,
    PeerCheck,
    Peers,
    PeersGone,
    Registered,
    Released,
    Snapshot,
    SnapshotRequest,
    StatusReply,
    TimeAnswer,
)
from sphtp.core.control.vocabulary import (
    EVERYBODY,
    NO_NONCE,
    RESTRICTED,
    SHARDED,
    SHARDS,
    WITHOUT_PRESENCE,
    Reason,
    shard_topic,
)
from sphtp.core.timers import ExpiringDict, earliest

_GONE_SIZE = 18
_ACKED_SIZE = 16
_TEXT_SIZE = 32 * 1024
_TO_ALL = topic(EVERYBODY)
_TO_RESTRICTED = topic(WITHOUT_PRESENCE)
_TO_SHARDS = tuple(topic(shard_topic(2 * shard + 1)) for shard in range(SHARDS))

_MOST_WATCHED = 1 << 16
"""The most watched groups. A further one replaces the group whose last watch is the oldest."""

_MOST_STATUSES = 8
"""The most answers with the status in one batch.

Each is the whole document, a megabyte with 5,000 clients. Any program may request it, under any id,
and repeats the request after 0.25 s.
"""

_MOST_ALONE = 16
"""The most acknowledgements of one batch that have a message each.

Each of them goes to all clients. To filter out 25 costs a client as much as to receive one message,
and the server has the cost of sending them.
"""

_MOST_TOGETHER = MAX_CHUNK // _ACKED_SIZE
"""The most acknowledgements of one batch without shards: as many as one message has room for.

By ``_MESSAGE_COST`` and ``_FILTER_COST``, two messages under 0 would take each client 0.2 ms. With
eight messages to shards, it receives one and filters out seven, which takes it 0.13 ms.
"""

_MESSAGE_COST = 100e-6
"""Seconds that one client needs to wake and handle a small message, as measured."""
_FILTER_COST = 4e-6
"""Seconds that one client needs to filter out a message for another client, in a long batch."""
_WAKE_COST = 15e-6
"""Seconds that one client needs for a batch with nothing but one such message."""
_RECORD_COST = 4e-6
"""Seconds that one client needs for a record that it already has."""
_SHARE = 0.25
"""The most of one core that batches may cost all clients on one machine together, as long as that
takes no pause of more than ``_LONGEST_REST``.
"""
_TIME_SHARE = 0.04
"""The same for answers with the time."""
_SEND_COST = 20e-6
"""Seconds that this server needs to send one client a batch, of any size, as measured."""
_TIME_SEND_SHARE = 0.04
"""The most of one core that this server may need for batches that have only answers with the time.
"""
_BURST = 0.05
"""The most seconds of pauses that may be postponed, and at most half of the longest pause.

Otherwise every pause could be postponed if ``expiry`` is short, and a batch would never wait.
"""
_LONGEST_REST = 1.0
"""The longest pause before a batch, in seconds; it is at most a tenth of ``expiry``.

With 0.2 s, most of 2,000 clients that started at once on two cores were never registered.
"""
_LISTS_TOGETHER = 0.25
"""Lists of groups leave together until their cost reaches this, in seconds."""
_MOST_LISTS_TOGETHER = 1024
"""The most such lists, an eighth of what PUB keeps for a connection."""


class Outbox:
    """The server's answers and changes, sent in batches; ``sender`` is the server's id."""

    def __init__(
        self,
        clock: ClusterClock,
        sender: int,
        registry: Registry,
        counters: ControlCounters,
        max_answers: int,
        expiry: float,
    ) -> None:
        self._clock = clock
        self.max_answers = max_answers
        self.shares_registry = False
        """True if servers share a registry, so that they do not send changes to each other."""
        self._expiry = expiry
        self._rested_at = 0.0
        self._batch_from = 0.0
        self._lists_from = 0.0
        self._times_from = 0.0
        self._times: list[bytes] = []
        self._times_leave_from = 0.0
        self.sender = sender
        self._registry = registry
        self._records = registry.records
        self._counters = counters
        self._ready: deque[BusMessage] = deque()
        self._groups = GroupIndex()
        self._watched: ExpiringDict[int, None] = ExpiringDict(_MOST_WATCHED)
        self._group_lists: dict[int, None] = {}
        self._empty_group_lists: dict[int, None] = {}
        self._group_lists_from = 0.0
        self._acks: dict[Holder, int] = {}
        self._nacks: dict[Holder, Reason] = {}
        self._entered: dict[int, dict[int, None]] = {}
        self._registered: dict[int, None] = {}
        self._gone: dict[int, dict[Holder, Reason]] = {}
        self._released: dict[Holder, Reason] = {}
        self._lookups: dict[tuple[int, int], None] = {}
        self._lists: dict[int, None] = {}
        self._snapshots: dict[int, None] = {}
        self._statuses: dict[int, None] = {}
        self._status = b""

    def ack(self, holder: Holder, features: int) -> None:
        """Add an ACK for a holder that has these features, if there is room."""
        self._nacks.pop(holder, None)
        if self._has_room(len(self._acks)):
            self._acks[holder] = features

    def nack(self, holder: Holder, reason: Reason) -> None:
        """Add a NACK for a holder, if there is room."""
        self._acks.pop(holder, None)
        if self._has_room(len(self._nacks)):
            self._nacks[holder] = reason

    def introduce(self, client: int, *, replicates: bool) -> None:
        """Add a new or changed client, for all clients and, with ``replicates``, all servers.

        Servers that share a registry take it from there instead.
        """
        topics = self._groups.put(self._records[client])
        for to in (EVERYBODY, *filter(self._watched.__contains__, topics)):
            self._entered.setdefault(to, {})[client] = None
        if replicates and not self.shares_registry:
            self._registered[client] = None

    def replicate(self, client: int) -> None:
        """Add the record of a client for all servers."""
        self._registered[client] = None

    def depart(self, gone: GoneHolder, *, replicates: bool) -> None:
        """Add a departure, for all clients and, with ``replicates``, all servers.

        Servers that share a registry take it from there instead.
        """
        holder = Holder(gone.id, gone.nonce)
        for to in (EVERYBODY, *filter(self._watched.__contains__, self._groups.drop(gone.id))):
            self._gone.setdefault(to, {})[holder] = gone.reason
        if replicates and not self.shares_registry:
            self._released[holder] = gone.reason

    def discard(self) -> None:
        """Drop waiting answers and changes for clients, except answers with the status."""
        self._times.clear()
        self._acks.clear()
        self._nacks.clear()
        self._entered.clear()
        self._gone.clear()
        self._lookups.clear()
        self._lists.clear()
        self._group_lists.clear()
        self._empty_group_lists.clear()

    def answer_lookup(self, client: int, peer: int) -> None:
        """Add an answer to a client's lookup of one peer."""
        if self._has_room(len(self._lookups)):
            self._lookups[client, peer] = None

    def watch(self, now: float, to: int) -> None:
        """Publish the watched topic ``to`` for one more expiry."""
        self._watched.take_expired(now)
        self._watched.put(to, None, now + self._expiry)

    def answer_group(self, group: int, known: Digest) -> None:
        """Add a list of a group, unless ``known`` is the digest of its members."""
        digest = self._groups.digest(group)
        if known == digest:
            return
        # Forged watches can name 2^31 groups without members, so these wait behind all others.
        lists = self._group_lists if digest.count else self._empty_group_lists
        if self._has_room(len(lists)):
            lists[group] = None

    def pass_check(
        self, client: int, peer: int, token: int, candidates: tuple[Candidate, ...]
    ) -> None:
        """Send a client the request to check a peer's candidates, without waiting for a batch."""
        check = PeerCheck(self.sender, client, peer, token, candidates)
        self._append(BusAudience.CLIENTS, check.encode())

    def answer_all(self, client: int) -> None:
        """Add a client that gets the next list of all peers."""
        if self._has_room(len(self._lists)):
            self._lists[client] = None

    def request_snapshot(self, now: float, server: int) -> None:
        """Request from a server a list of the clients that it sponsors."""
        self.send(now, BusAudience.SERVERS, SnapshotRequest(self.sender, server).encode())

    def answer_snapshot(self, server: int) -> None:
        """Add a list of the clients that this server sponsors, for another server."""
        if self._has_room(len(self._snapshots)):
            self._snapshots[server] = None

    @property
    def needs_status(self) -> bool:
        """True if ``answer_status`` needs a status: no request has come since the last batch."""
        return not self._statuses

    def answer_status(self, client: int, status: bytes | None) -> None:
        """Add an answer with this server's status for one client.

        All requests during a batch get the status of the first one.
        """
        if len(self._statuses) >= _MOST_STATUSES:
            self._counters.add(Count.OVER_STATUS_ANSWERS)
        elif self._has_room(len(self._statuses)):
            self._statuses[client] = None
            self._status = self._status if status is None else status

    def answer_time(
        self, now: float, audience: BusAudience, asker: int, request: TimeRequest
    ) -> None:
        """Send one client or server the time, as it is now.

        There is no answer if the request is for another server, or if the error of the time has no
        bound. If there are too many requests, some get no answer, and are repeated later. An answer
        to a client leaves at once while there are few, else with the next message to clients, or
        after a pause.
        """
        stamp = self._clock.stamp(now) if request.server == self.sender else None
        if stamp is None:
            return
        if now < self._times_from - _BURST:
            self._counters.add(Count.OVER_TIME_ANSWERS)
            return
        cost = _FILTER_COST * len(self._registry.records) / _TIME_SHARE
        self._times_from = max(now, self._times_from) + cost
        answer = TimeAnswer(self.sender, asker, request.origin, stamp).encode()
        if audience is BusAudience.CLIENTS:
            self._times.append(answer)
        else:
            self._append(audience, answer)

    def send(self, now: float, audience: BusAudience, data: bytes) -> None:
        """Send one message, after the batch that was collected before."""
        if self._is_pending:
            self._flush_batch(now)
        self._append(audience, data)

    def send_to_all(self, now: float, data: bytes, *, unwatched: bool) -> None:
        """Send one message to all clients, at once as ``send`` does.

        Clients without presence get a copy if one of them has sent a watch. With ``unwatched`` they
        get it always: a client has to receive heartbeats before it can send a watch.
        """
        self.send(now, BusAudience.CLIENTS, data)
        if unwatched or WITHOUT_PRESENCE in self._watched:
            self._append(BusAudience.CLIENTS, topic(WITHOUT_PRESENCE) + data[len(_TO_ALL) :])

    def poll(self, now: float) -> BusMessage | None:
        """Return the next message, or None. A batch that is due becomes messages here."""
        if not self._ready:
            if self._is_pending and now >= self._batch_from:
                self._flush_batch(now)
            if self._lists and now >= self._lists_from:
                self._flush_lists()
                cost = _RECORD_COST * len(self._records) ** 2
                self._lists_from = now + min(cost, self._expiry / 2)
            if self._awaits_group_list and now >= self._group_lists_from:
                cost = self._flush_group_lists()
                self._group_lists_from = now + min(cost, self._expiry / 2)
        if self._times:
            self._flush_times(now)
        return self._ready.popleft() if self._ready else None

    def _flush_times(self, now: float) -> None:
        """Send the answers with the time, if another message to clients leaves or they are due."""
        if not any(each.audience is BusAudience.CLIENTS for each in self._ready):
            if now < self._times_leave_from - _BURST:
                return
            cost = _SEND_COST * len(self._records) / _TIME_SEND_SHARE
            self._times_leave_from = max(now, self._times_leave_from) + cost
        # Before the others, since a client measures how long its answer took.
        for data in reversed(self._times):
            self._ready.appendleft(BusMessage(BusAudience.CLIENTS, data))
        self._times.clear()

    def _cost(self, messages: Iterable[BusMessage]) -> float:
        sent = Counter(it.data[:4] for it in messages if it.audience is BusAudience.CLIENTS)
        # Each client subscribes to one of these two topics and, unless it is older, to one shard.
        received = max(sent[_TO_ALL], sent[_TO_RESTRICTED]) + max(sent[it] for it in _TO_SHARDS)
        filtered = sent.total() - received
        return (received * _MESSAGE_COST + filtered * _FILTER_COST) * len(self._records)

    def next_due(self) -> float | None:
        """Return the time at which the next message is due."""
        return earliest(
            self._batch_from if self._is_pending else None,
            self._times_leave_from - _BURST if self._times else None,
            self._lists_from if self._lists else None,
            self._group_lists_from if self._awaits_group_list else None,
        )

    @property
    def _is_pending(self) -> bool:
        return bool(
            self._entered
            or self._acks
            or self._nacks
            or self._gone
            or self._registered
            or self._released
            or self._lookups
            or self._snapshots
            or self._statuses
        )

    @property
    def _awaits_group_list(self) -> bool:
        return bool(self._group_lists or self._empty_group_lists)

    def _flush_batch(self, now: float) -> None:
        """Encode the batch as messages: departures, records, answers, but no lists.

        The next batch waits for the pause of this one, unless the pause is postponed, or a message
        of ``send`` takes the batch along.
        """
        before = len(self._ready)
        self._flush_gone()
        self._flush_records()
        self._flush_answers()
        self._flush_lookups()
        self._flush_snapshots()
        self._flush_statuses()
        cost = self._cost(islice(self._ready, before, None))
        longest = min(_LONGEST_REST, self._expiry / 10)
        burst = min(_BURST, longest / 2)
        self._rested_at = min(max(now, self._rested_at) + cost / _SHARE, now + longest)
        self._batch_from = now if self._rested_at <= now + burst else self._rested_at

    def _flush_lists(self) -> None:
        to = next(iter(self._lists)) if len(self._lists) == 1 else EVERYBODY
        for part, share in number_parts(divide_records(self._records.values())):
            self._append(BusAudience.CLIENTS, Peers(self.sender, to, share, part).encode())
        self._lists.clear()

    def _flush_group_lists(self) -> float:
        """Encode the next lists of groups. Return their cost, if all members are watchers."""
        lists = self._group_lists or self._empty_group_lists
        # Forged watches can name groups without members. Their lists leave one by one, so that a
        # list with members never waits for many of them.
        most = _MOST_LISTS_TOGETHER if self._group_lists else 1
        cost = 0.0
        for group in tuple(islice(lists, most)):
            if cost >= _LISTS_TOGETHER:
                break
            del lists[group]
            members = self._groups.members(group)
            shares = number_parts(divide_records(members))
            for part, share in shares:
                self._append(BusAudience.CLIENTS, Peers(self.sender, group, share, part).encode())
            cost += _FILTER_COST * len(shares) * len(self._records)
            cost += _RECORD_COST * len(members) ** 2
        return cost + _WAKE_COST * len(self._records)

    def _flush_gone(self) -> None:
        for to, gone in self._gone.items():
            for share in divide(_gone(gone), lambda _: _GONE_SIZE):
                self._append(BusAudience.CLIENTS, PeersGone(self.sender, to, share).encode())
        for share in divide(_gone(self._released), lambda _: _GONE_SIZE):
            self._append(BusAudience.SERVERS, Released(self.sender, share).encode())
        self._gone.clear()
        self._released.clear()

    def _flush_records(self) -> None:
        records = self._records
        for to, clients in self._entered.items():
            entered = [records[client] for client in clients if client in records]
            for share in divide_records(entered):
                self._append(BusAudience.CLIENTS, Peers(self.sender, to, share).encode())
        registered = [records[client] for client in self._registered if client in records]
        for share in divide_records(registered):
            self._append(BusAudience.SERVERS, Registered(self.sender, share).encode())
        self._entered.clear()
        self._registered.clear()

    def _flush_answers(self) -> None:
        # A plain SphTP client reads its id from the header, so it gets a message of its own.
        together: dict[int, list[Holder]] = {}
        for holder, features in self._acks.items():
            if holder.nonce == NO_NONCE or len(self._acks) <= _MOST_ALONE:
                self._append(BusAudience.CLIENTS, IdAck(self.sender, (holder,)).encode())
                continue
            if features & SHARDED and len(self._acks) > _MOST_TOGETHER:
                to = shard_topic(holder.id)
            else:
                to = WITHOUT_PRESENCE if features & RESTRICTED else EVERYBODY
            together.setdefault(to, []).append(holder)
        for to, holders in together.items():
            for share in divide(holders, lambda _: _ACKED_SIZE):
                self._append(BusAudience.CLIENTS, IdAck(self.sender, share, to).encode())
        for holder, reason in self._nacks.items():
            nack = IdNack(self.sender, holder.id, holder.nonce, reason)
            self._append(BusAudience.CLIENTS, nack.encode())
        self._acks.clear()
        self._nacks.clear()

    def _flush_lookups(self) -> None:
        for client, peer in self._lookups:
            record = self._records.get(peer)
            if record is None:
                gone = (GoneHolder(peer, NO_NONCE, Reason.UNKNOWN),)
                answer = PeersGone(self.sender, client, gone).encode()
            else:
                answer = Peers(self.sender, client, (record,)).encode()
            self._append(BusAudience.CLIENTS, answer)
        self._lookups.clear()

    def _flush_snapshots(self) -> None:
        # Only clients that expire here: two servers must not keep a client alive for each other.
        for server in self._snapshots:
            for part, share in number_parts(divide_records(self._registry.first_hand)):
                snapshot = Snapshot(self.sender, server, part, share)
                self._append(BusAudience.SERVERS, snapshot.encode())
        self._snapshots.clear()

    def _flush_statuses(self) -> None:
        text = self._status
        starts = range(0, len(text), _TEXT_SIZE)
        for client in self._statuses:
            for index, start in enumerate(starts):
                part, piece = Part(index, len(starts)), text[start : start + _TEXT_SIZE]
                status = StatusReply(self.sender, client, part, piece)
                self._append(BusAudience.CLIENTS, status.encode())
        self._statuses.clear()
        self._status = b""

    def _append(self, audience: BusAudience, data: bytes) -> None:
        self._ready.append(BusMessage(audience, data))

    def _has_room(self, used: int) -> bool:
        if used < self.max_answers:
            return True
        self._counters.add(Count.OVER_MAX_ANSWERS)
        return False


def _gone(holders: dict[Holder, Reason]) -> list[GoneHolder]:
    return [GoneHolder(holder.id, holder.nonce, reason) for holder, reason in holders.items()]
