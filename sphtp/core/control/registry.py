"""Registries: the registered ids, the reserved ids, and the expiry of both.

A reserved id has no holder: it was released a short time ago, or an unregistered client has sent
heartbeats with it. Only its last holder may get it, unless this holder gave it up.

For each server, the *sponsor* of a client is this server itself if it receives the client's
messages, or if it has lost the sponsor before; else another server that has reported the client. A
client expires only at servers that are their own sponsor of it.

A ``MemoryRegistry`` belongs to one server, and servers replicate their lists. A ``SharedRegistry``
is one server's access to a store that all servers share. Only this store decides on ids and on the
view. The registry keeps a copy of the store, like a ``MemoryRegistry``, and reports decisions and
changes of the store as ``RegistryChange``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from sphtp.core.control.lists import Fingerprints
from sphtp.core.control.records import Digest, Holder, Member, PeerRecord
from sphtp.core.control.vocabulary import Reason
from sphtp.core.timers import ExpiringDict, Liveness


@dataclass(frozen=True, slots=True)
class ReservedId:
    """A reservation: the nonce of the last holder of an id, and the reason of the release."""

    nonce: int
    reason: Reason | None
    """The reason of its release; None if only heartbeats with the id have come."""

    def admits(self, nonce: int) -> bool:
        """Return True for the nonce of the last holder, unless it gave the id up."""
        return nonce == self.nonce and self.reason is not Reason.LEFT


class ReservedIds:
    """The reserved ids. A reservation lasts for ``period`` seconds, so that late messages to the
    last holder do not reach another one.
    """

    __slots__ = ("_period", "_reserved")

    def __init__(self, period: float, capacity: int) -> None:
        self._period = period
        self._reserved = ExpiringDict[int, ReservedId](capacity)

    def put(self, now: float, number: int, nonce: int, reason: Reason | None) -> None:
        """Reserve ``number`` for ``nonce``. If there is no room, the oldest reservation ends."""
        self._reserved.take_expired(now)
        self._reserved.put(number, ReservedId(nonce, reason), now + self._period)

    def find(self, now: float, number: int) -> ReservedId | None:
        """Return the reservation of an id; None if there is none."""
        self._reserved.take_expired(now)
        return self._reserved.get(number)

    def __len__(self) -> int:
        return len(self._reserved)

    def __iter__(self) -> Iterator[int]:
        return iter(self._reserved)


class IdAvailability(Enum):
    """The availability of an id to a client that announces it."""

    FREE = "it has no holder"
    RESERVED = "it is reserved for this holder"
    HELD = "this holder has it"
    TAKEN = "another holder has it, or had it less than an expiry ago, or this holder gave it up"


class Registry(Protocol):
    """The interface of a registry: registrations, and the expiry of each."""

    @property
    def records(self) -> Mapping[int, PeerRecord]:
        """All registrations by id: a read-only view."""
        ...

    @property
    def first_hand(self) -> list[PeerRecord]:
        """The registrations that expire here, because this server is their sponsor."""
        ...

    @property
    def digest(self) -> Digest:
        """The digest of all registrations."""
        ...

    def set_capacity(self, capacity: int) -> None:
        """Set the most registrations; those beyond it stay."""
        ...

    @property
    def is_full(self) -> bool:
        """True if no further id can be registered."""
        ...

    def availability(self, now: float, number: int, nonce: int) -> IdAvailability:
        """Return the availability of the id ``number`` to the holder with this nonce."""
        ...

    def create(self, now: float, record: PeerRecord, *, expires: bool) -> None:
        """Register an id that is FREE or RESERVED; with ``expires`` start its expiry."""
        ...

    def replace(self, record: PeerRecord) -> None:
        """Replace the record of a registered holder."""
        ...

    def refresh(self, now: float, number: int) -> None:
        """Restart the expiry of an id, because its holder has sent a message."""
        ...

    def doubt(self, now: float, number: int, wait: float) -> bool:
        """Expire a holder within ``wait`` seconds of silence. Return True for a new suspect."""
        ...

    def rely(self, number: int) -> None:
        """Stop the expiry of a holder, because another server is its sponsor."""
        ...

    def release(self, now: float, number: int, reason: Reason) -> PeerRecord | None:
        """De-register a holder, and reserve its id for ``expiry``.

        Return its record; None if the id was not registered.
        """
        ...

    def reserve(self, now: float, number: int, nonce: int) -> None:
        """Reserve an id for a holder that is not registered yet."""
        ...

    def postpone_expiries(self, lag: float) -> None:
        """Postpone every expiry by ``lag`` seconds."""
        ...

    def take_suspects(self, now: float) -> list[int]:
        """Return the ids whose holders are silent for half of ``expiry``, once per silence."""
        ...

    def take_expired_ids(self, now: float) -> list[int]:
        """Return the ids that have expired. The caller has to release them."""
        ...

    def next_due(self) -> float | None:
        """Return the time of the next suspicion or expiry."""
        ...


class MemoryRegistry:
    """A ``Registry`` in the memory of one process."""

    def __init__(self, expiry: float, capacity: int) -> None:
        self.reserved = ReservedIds(expiry, capacity)
        """The reserved ids."""
        self._capacity = capacity
        self._records: dict[int, PeerRecord] = {}
        self._prints = Fingerprints()
        self._liveness = Liveness(expiry)

    def set_capacity(self, capacity: int) -> None:
        """Set the most registrations; those beyond it stay."""
        self._capacity = capacity

    @property
    def records(self) -> Mapping[int, PeerRecord]:
        """All registrations by id: a read-only view."""
        return MappingProxyType(self._records)

    @property
    def first_hand(self) -> list[PeerRecord]:
        """The registrations that expire here, because this server is their sponsor."""
        return [record for number, record in self._records.items() if number in self._liveness]

    @property
    def digest(self) -> Digest:
        """The digest of all registrations."""
        return self._prints.digest

    @property
    def is_full(self) -> bool:
        """True if no further id can be registered."""
        return len(self._records) >= self._capacity

    def availability(self, now: float, number: int, nonce: int) -> IdAvailability:
        """Return the availability of the id ``number`` to the holder with this nonce."""
        held = self._records.get(number)
        if held is not None:
            return IdAvailability.HELD if held.nonce == nonce else IdAvailability.TAKEN
        reserved = self.reserved.find(now, number)
        if reserved is None:
            return IdAvailability.FREE
        return IdAvailability.RESERVED if reserved.admits(nonce) else IdAvailability.TAKEN

    def create(self, now: float, record: PeerRecord, *, expires: bool) -> None:
        """Register an id that is FREE or RESERVED; with ``expires`` start its expiry.

        A reservation may stay: it has no effect while the id has a holder, and the release of the
        holder replaces it.
        """
        self._records[record.id] = record
        self._prints.put(record)
        if expires:
            self._liveness.refresh(now, record.id)

    def replace(self, record: PeerRecord) -> None:
        """Replace the record of a registered holder."""
        self._records[record.id] = record
        self._prints.put(record)

    def refresh(self, now: float, number: int) -> None:
        """Restart the expiry of an id, because its holder has sent a message."""
        self._liveness.refresh(now, number)

    def doubt(self, now: float, number: int, wait: float) -> bool:
        """Expire a holder within ``wait`` seconds of silence. Return True for a new suspect."""
        return self._liveness.doubt(now, number, wait)

    def rely(self, number: int) -> None:
        """Stop the expiry of a holder, because another server is its sponsor."""
        self._liveness.forget(number)

    def release(self, now: float, number: int, reason: Reason) -> PeerRecord | None:
        """De-register a holder, and reserve its id for ``expiry``.

        Return its record; None if the id was not registered.
        """
        record = self._records.pop(number, None)
        self._liveness.forget(number)
        self._prints.drop(number)
        if record is not None:
            self.reserved.put(now, number, record.nonce, reason)
        return record

    def reserve(self, now: float, number: int, nonce: int) -> None:
        """Reserve an id for a holder that is not registered yet."""
        self.reserved.put(now, number, nonce, None)

    def postpone_expiries(self, lag: float) -> None:
        """Postpone every expiry by ``lag`` seconds."""
        self._liveness.postpone_expiries(lag)

    def take_suspects(self, now: float) -> list[int]:
        """Return the ids whose holders are silent for half of ``expiry``, once per silence."""
        return self._liveness.take_suspects(now)

    def take_expired_ids(self, now: float) -> list[int]:
        """Return the ids that have expired. The caller has to release them."""
        return self._liveness.take_expired(now)

    def next_due(self) -> float | None:
        """Return the time of the next suspicion or expiry."""
        return self._liveness.next_due()


class StoreReached(NamedTuple):
    """The store is in reach: this server's lease is live, and its copy is up to date."""


class StoreLost(NamedTuple):
    """The lease may have ended, or the copy may be outdated: the server must not use the copy."""


class StoreFailing(NamedTuple):
    """A request to the store has failed; the registry repeats it. ``why`` is the cause in words."""

    why: str


class MembersChanged(NamedTuple):
    """The members, that is servers with a live lease, and a number that rises with changes."""

    number: int
    members: tuple[Member, ...]


class ServerIdTaken(NamedTuple):
    """Another program has the id that this server has drawn."""


class IdGranted(NamedTuple):
    """The store has granted a claim: the holder has the id while this server's lease is live."""

    record: PeerRecord


class IdRefused(NamedTuple):
    """The store has refused a claim: another holder has the id, or it is reserved for one."""

    holder: Holder


class HolderSeen(NamedTuple):
    """Another server has registered this holder, or has changed its record."""

    record: PeerRecord
    server: int
    """The id of that server; 0 if its lease has ended meanwhile."""


class HolderGone(NamedTuple):
    """No other server has registered this holder any longer, or the holder has left."""

    holder: Holder
    reason: Reason


class HolderEntrusted(NamedTuple):
    """A holder that no longer sends messages to this server, but to the server ``server``."""

    holder: Holder
    server: int


RegistryChange = (
    StoreReached
    | StoreLost
    | StoreFailing
    | MembersChanged
    | ServerIdTaken
    | IdGranted
    | IdRefused
    | HolderSeen
    | HolderGone
    | HolderEntrusted
)


class SharedRegistry(MemoryRegistry):
    """One server's access to a store of registrations that all servers share: interface.

    It begins with ``handle_start``. Before each input, after each answer of the store, and before
    messages to clients leave, the server calls ``handle_time``, and then ``poll_change`` until
    there are no changes.
    """

    def handle_start(self, now: float, own: Member) -> None:
        """Add this server to the members, or add it again under another id."""
        raise NotImplementedError

    def handle_stop(self, now: float) -> None:
        """Remove this server from the members. Its registrations stay until its lease ends."""
        raise NotImplementedError

    def handle_time(self, now: float) -> None:
        """Run the timers that are due, in particular the end of the lease."""
        raise NotImplementedError

    def attests(self, number: int, nonce: int) -> bool:
        """Return True if this holder is registered under this server's own lease."""
        raise NotImplementedError

    def claims(self, holder: Holder) -> bool:
        """Return True if this server has a claim for a holder on which the store has to decide."""
        raise NotImplementedError

    def claim(self, now: float, record: PeerRecord) -> None:
        """Request from the store to register this holder, unless another one has the id.

        ``IdGranted`` or ``IdRefused`` follows, unless the holder is released before.
        """
        raise NotImplementedError

    def withdraw(self, now: float, holder: Holder) -> None:
        """Withdraw a claim, because its holder has left, or there is no room for it."""
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        """Return the status of the store for operators, as values for JSON."""
        raise NotImplementedError

    def poll_change(self) -> RegistryChange | None:
        """Return the next change, or None."""
        raise NotImplementedError
