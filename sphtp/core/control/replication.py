"""What a server does with what other servers say about clients."""

from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.fields import Digest, Gone, Holder
from sphtp.core.control.ledger import Ledger
from sphtp.core.control.member_messages import Registered, Released, Snapshot
from sphtp.core.control.outbox import Outbox
from sphtp.core.control.parts import Assembly
from sphtp.core.control.records import PeerRecord, is_newer
from sphtp.core.control.vocabulary import Reason

_PATIENCE = 2
"""Heartbeats during which another server's list may differ before it is asked for."""


class Replication:
    """Keeps the lists of all servers equal: by news at once, by snapshots when news were lost."""

    def __init__(self, ledger: Ledger, outbox: Outbox, counters: Counters, expiry: float) -> None:
        self._ledger = ledger
        self._outbox = outbox
        self._counters = counters
        self._expiry = expiry
        self._snapshots: dict[int, Assembly[PeerRecord]] = {}
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
        whole = assembly.add(message.part, message.records)
        if whole is None:
            return False
        told = {record.id for record in whole}
        for client in self._ledger.sponsored_by(message.sender):
            if client not in told:
                self._ledger.release(now, client, Reason.EXPIRED, tell_servers=False)
        for record in whole:
            self._adopt(now, message.sender, record)
        return True

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
        self._ledger.adopt_orphans(now, server)

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

    def _believes(self, server: int, gone: Gone) -> bool:
        held = self._ledger.registry.records.get(gone.id)
        if held is None or held.nonce != gone.nonce:
            return False
        return gone.reason is Reason.LEFT or self._ledger.sponsor(gone.id) == server
