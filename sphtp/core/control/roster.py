"""The client's list of peers: a peer is there as long as some living server vouches for it."""

from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.digest import Fingerprints
from sphtp.core.control.events import ClientEvent, PeerChanged, PeerEntered, PeerLeft
from sphtp.core.control.fields import Digest, Gone, Holder
from sphtp.core.control.graves import Graves
from sphtp.core.control.records import PeerRecord, is_newer
from sphtp.core.control.vocabulary import Reason

CAPACITY = 16384
"""Peers remembered at most; a client must not grow for whatever servers say."""

_OWN_KEPT = 64

Events = list[ClientEvent]


class Roster:
    """Peers, and which servers vouch for each. Every change returns the events it means."""

    def __init__(self, expiry: float, counters: Counters, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._counters = counters
        self._records: dict[int, PeerRecord] = {}
        self._peers: dict[int, PeerRecord] = {}
        self._vouched: dict[int, Fingerprints] = {}
        self._gone = Graves(expiry, CAPACITY)
        self._own: deque[Holder] = deque(maxlen=_OWN_KEPT)

    @property
    def peers(self) -> Mapping[int, PeerRecord]:
        """All peers by id, without this client itself."""
        return MappingProxyType(self._peers)

    @property
    def records(self) -> Mapping[int, PeerRecord]:
        """All that servers vouch for by id, this client included."""
        return MappingProxyType(self._records)

    @property
    def servers(self) -> tuple[int, ...]:
        """The servers that vouch for anybody, dead ones included until they are dropped."""
        return tuple(self._vouched)

    def __contains__(self, number: int) -> bool:
        return number in self._records

    def ignore(self, holder: Holder) -> None:
        """Take this holder for the client itself."""
        self._own.append(holder)

    def digest(self, server: int) -> Digest:
        """Return the digest of those whom ``server`` vouches for."""
        return self._prints(server).digest

    def enter(self, now: float, server: int, record: PeerRecord) -> Events:
        """Let ``server`` vouch for a peer, as told."""
        known = self._records.get(record.id)
        if known is record:
            self._prints(server).put(record)
            return []
        grave = self._gone.find(now, record.id)
        if grave is not None and grave.nonce == record.nonce:
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
            return events + self._show(record, PeerEntered(record))
        if is_newer(known.revision, record.revision) or record == known:
            return []
        return self._show(record, PeerChanged(record))

    def leave(self, now: float, server: int, gone: Gone) -> Events:
        """Let ``server`` no longer vouch; an explicit good-bye counts for all servers at once."""
        known = self._records.get(gone.id)
        explicit = gone.reason is Reason.LEFT
        if explicit:
            self._gone.put(now, gone.id, gone.nonce, gone.reason)
        if known is None or known.nonce != gone.nonce:
            return []
        if explicit:
            return self._remove(known, gone.reason)
        return self._disown(server, known, gone.reason)

    def replace(self, now: float, server: int, records: Iterable[PeerRecord]) -> Events:
        """Let ``server`` vouch for exactly these."""
        told = {record.id: record for record in records}
        events: Events = []
        for number in self._prints(server).ids - told.keys():
            events += self._disown(server, self._records[number], Reason.EXPIRED)
        for record in told.values():
            events += self.enter(now, server, record)
        return events

    def drop_server(self, server: int) -> Events:
        """Let ``server`` vouch for nobody: it is gone."""
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
        shown = self._peers.pop(record.id, None)
        return [] if shown is None else [PeerLeft(record, reason)]

    def _show(self, record: PeerRecord, event: ClientEvent) -> Events:
        self._records[record.id] = record
        if Holder(record.id, record.nonce) in self._own:
            return []
        self._peers[record.id] = record
        return [event]
