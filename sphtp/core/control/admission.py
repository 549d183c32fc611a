"""What a server does with what clients say (seed, steps 6 to 8)."""

from collections.abc import Callable
from dataclasses import replace

from sphtp.core.control.client_messages import (
    Announce,
    ClientUser,
    Data,
    Heartbeat,
    Leave,
    Lookup,
)
from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.fields import Holder
from sphtp.core.control.ids import NO_NONCE
from sphtp.core.control.ledger import Ledger, Standing
from sphtp.core.control.outbox import Outbox
from sphtp.core.control.rates import RatesPerHolder
from sphtp.core.control.records import PeerRecord, is_newer
from sphtp.core.control.registry import Claim
from sphtp.core.control.server_table import ServerSignal
from sphtp.core.control.vocabulary import VERSION, Reason

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


class Admission:
    """Answers clients. ``admit`` is the application's word on who may register."""

    def __init__(
        self,
        ledger: Ledger,
        outbox: Outbox,
        counters: Counters,
        admit: Callable[[PeerRecord], bool],
        data_per_second: float,
    ) -> None:
        self._ledger = ledger
        self._registry = ledger.registry
        self._records = ledger.registry.records
        self._outbox = outbox
        self._counters = counters
        self._admit = admit
        self._data_rates = RatesPerHolder(data_per_second, self.is_holder)

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

    def holds(self, message: Leave | Data | Lookup | ClientUser) -> bool:
        """Tell whether the sender is the registered holder of its id; count it if not."""
        if self.is_holder(Holder(message.id, message.nonce)):
            return True
        self._counters.add(Count.NOT_REGISTERED)
        return False

    def register(self, now: float, message: Announce) -> None:
        """Register a new id, or say why not."""
        record = PeerRecord(message.id, message.nonce, message.candidates, key=message.key)
        holder = Holder(message.id, message.nonce)
        if message.version != VERSION:
            self._outbox.nack(holder, Reason.VERSION)
        elif self._registry.is_full:
            self._counters.add(Count.OVER_MAX_CLIENTS)
            self._outbox.nack(holder, Reason.FULL)
        elif not self._admit(record):
            self._counters.add(Count.DENIED)
            self._outbox.nack(holder, Reason.DENIED)
        elif self._ledger.enter(now, record):
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

    def say_unknown(self, _: float, message: Heartbeat) -> None:
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

    def on_data(self, now: float, message: Data) -> None:
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
        if self._data_rates.take(now, holder, len(self._records)):
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


def _as_told(message: Data, record: PeerRecord) -> PeerRecord:
    if is_newer(message.revision, record.revision):
        return replace(record, data=message.data, revision=message.revision, topics=message.topics)
    if message.revision == record.revision:
        # Another server was first to tell of this revision, and may know nothing of topics.
        return replace(record, topics=record.topics or message.topics)
    return record
