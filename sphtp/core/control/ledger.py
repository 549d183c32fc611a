"""A server's registrations, and the news of each change to clients, servers and application."""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from sphtp.core.control.events import (
    ClientChanged,
    ClientEntered,
    ClientLeft,
    ClientSuspected,
    ServerEvent,
)
from sphtp.core.control.fields import Gone
from sphtp.core.control.outbox import Outbox
from sphtp.core.control.records import PeerRecord
from sphtp.core.control.registry import Claim, Registry
from sphtp.core.control.vocabulary import Reason

ITSELF = 0
"""The sponsor of a client that this server has heard itself."""


class Standing(Enum):
    """How far a registered client has got."""

    ANNOUNCING = "it may not have heard all acknowledgements yet"
    SETTLED = "it has sent a normal heartbeat"


class Ledger:
    """Registrations with their sponsors: who told us, the client itself or another server.

    Clients heard here expire here. One known from another server lives as long as that one says.
    """

    def __init__(
        self, registry: Registry, outbox: Outbox, tell: Callable[[ServerEvent], None]
    ) -> None:
        self.registry = registry
        self._outbox = outbox
        self._tell = tell
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
        self._announce(record, ClientEntered(record))
        return True

    def hear(self, now: float, client: int) -> None:
        """Note that a registered client spoke to this server."""
        self._watch(now, client, ITSELF)

    def doubt(self, now: float, client: int, patience: float) -> None:
        """Note that the connection of a client has ended: it may come back through another one."""
        if self.registry.doubt(now, client, patience):
            self._tell(ClientSuspected(client))

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
        self._announce(record, ClientChanged(record))

    def supersede(self, now: float, record: PeerRecord, sponsor: int) -> None:
        """Give an id to another holder."""
        old = self.registry.records[record.id]
        self.registry.replace(record)
        self._standings.pop(record.id, None)
        self._watch(now, record.id, sponsor)
        self._outbox.depart(Gone(old.id, old.nonce, Reason.CONFLICT), tell_servers=False)
        self._tell(ClientLeft(old, Reason.CONFLICT))
        self._announce(record, ClientEntered(record))

    def release(self, now: float, client: int, reason: Reason, *, tell_servers: bool) -> None:
        """De-register a client and delete its data (seed, step 11)."""
        record = self.registry.release(now, client, reason)
        self._sponsors.pop(client, None)
        self._standings.pop(client, None)
        if record is not None:
            gone = Gone(record.id, record.nonce, reason)
            self._outbox.depart(gone, tell_servers=tell_servers)
            self._tell(ClientLeft(replace(record, data=b"", topics=()), reason))

    def adopt_orphans(self, now: float, server: int) -> None:
        """Give the clients of a lost server one expiry to be heard here."""
        for client in self.sponsored_by(server):
            self.hear(now, client)

    def handle_timeout(self, now: float) -> None:
        """Suspect and de-register whom this server has not heard."""
        for client in self.registry.take_suspects(now):
            self._tell(ClientSuspected(client))
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
        self._tell(event)
        self._outbox.introduce(record.id)
        if record.id not in self._sponsors:
            self._outbox.replicate(record.id)
