"""Registries: the registered ids, the reserved ids, and the expiry of both.

A reserved id has no holder, but not every client may have it: it was released, or seen in use.

A ``MemoryRegistry`` belongs to one server, and servers replicate their lists. A ``SharedRegistry``
is one server's part of a store that all servers share, which alone decides on ids and on the view.
It keeps a copy of the store, like a ``MemoryRegistry``, and reports what the store has decided or
what has changed there as ``RegistryChange``.
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
    """A reservation: the last holder of an id, and why it no longer holds it."""

    nonce: int
    reason: Reason | None
    """The reason of its release; None if the id was only seen in use."""

    def admits(self, nonce: int) -> bool:
        """Return True if this holder may have the id: the last holder, unless it gave the id up."""
        return nonce == self.nonce and self.reason is not Reason.LEFT


class ReservedIds:
    """The ids reserved for ``expiry``, so that late messages do not reach a wrong holder."""

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
    """The availability of an id to a client that wants it."""

    FREE = "nobody holds it"
    RESERVED = "it is kept for this very holder"
    HELD = "this very holder has it"
    TAKEN = "another holder has it, or had it a moment ago"


class Registry(Protocol):
    """The interface of a registry: registrations, and the expiry of each."""

    @property
    def records(self) -> Mapping[int, PeerRecord]:
        """All registrations by id: a live view."""
        ...

    @property
    def first_hand(self) -> list[PeerRecord]:
        """The registrations that expire here, because no other server vouches for them."""
        ...

    @property
    def digest(self) -> Digest:
        """The digest of all registrations."""
        ...

    def set_capacity(self, capacity: int) -> None:
        """Change the most registrations; those beyond it stay."""
        ...

    @property
    def is_full(self) -> bool:
        """True if no further id can be registered."""
        ...

    def availability(self, now: float, number: int, nonce: int) -> IdAvailability:
        """Return the availability of an id to this holder. Nothing changes."""
        ...

    def create(self, now: float, record: PeerRecord, *, expires: bool) -> None:
        """Register an id that is FREE or RESERVED.

        Start its expiry, unless another server vouches for it.
        """
        ...

    def replace(self, record: PeerRecord) -> None:
        """Replace the record of a registered holder."""
        ...

    def refresh(self, now: float, number: int) -> None:
        """Restart the expiry of an id, because its holder has sent a message."""
        ...

    def doubt(self, now: float, number: int, wait: float) -> bool:
        """Expire the holder unless it is heard within ``wait``. Return True if that is new."""
        ...

    def rely(self, number: int) -> None:
        """Stop the expiry of a holder: another server vouches for it."""
        ...

    def release(self, now: float, number: int, reason: Reason) -> PeerRecord | None:
        """De-register a holder, delete its record, and reserve its id for ``expiry``."""
        ...

    def reserve(self, now: float, number: int, nonce: int) -> None:
        """Reserve an id for a holder that is not registered yet."""
        ...

    def postpone_expiries(self, lag: float) -> None:
        """Postpone every expiry by ``lag`` seconds."""
        ...

    def take_suspects(self, now: float) -> list[int]:
        """Return the ids that were silent for half of ``expiry``, each once."""
        ...

    def take_expired_ids(self, now: float) -> list[int]:
        """Return the ids that were silent for ``expiry``. The caller releases them."""
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
        """Change the most registrations; those beyond it stay."""
        self._capacity = capacity

    @property
    def records(self) -> Mapping[int, PeerRecord]:
        """All registrations by id: a live view."""
        return MappingProxyType(self._records)

    @property
    def first_hand(self) -> list[PeerRecord]:
        """The registrations that expire here, because no other server vouches for them."""
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
        """Return the availability of an id to this holder. Nothing changes."""
        held = self._records.get(number)
        if held is not None:
            return IdAvailability.HELD if held.nonce == nonce else IdAvailability.TAKEN
        reserved = self.reserved.find(now, number)
        if reserved is None:
            return IdAvailability.FREE
        return IdAvailability.RESERVED if reserved.admits(nonce) else IdAvailability.TAKEN

    def create(self, now: float, record: PeerRecord, *, expires: bool) -> None:
        """Register an id that is FREE or RESERVED.

        Start its expiry, unless another server vouches for it. A reservation may stay: a holder
        comes before it, and its release replaces it.
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
        """Expire the holder unless it is heard within ``wait``. Return True if that is new."""
        return self._liveness.doubt(now, number, wait)

    def rely(self, number: int) -> None:
        """Stop the expiry of a holder: another server vouches for it."""
        self._liveness.forget(number)

    def release(self, now: float, number: int, reason: Reason) -> PeerRecord | None:
        """De-register a holder, delete its record, and reserve its id for ``expiry``."""
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
        """Return the ids that were silent for half of ``expiry``, each once."""
        return self._liveness.take_suspects(now)

    def take_expired_ids(self, now: float) -> list[int]:
        """Return the ids that were silent for ``expiry``. The caller releases them."""
        return self._liveness.take_expired(now)

    def next_due(self) -> float | None:
        """Return the time of the next suspicion or expiry."""
        return self._liveness.next_due()


class StoreReached(NamedTuple):
    """The store is in reach: this server's lease is live, and its copy is fresh."""


class StoreLost(NamedTuple):
    """The lease may have ended, or the copy may be stale: nothing of it may be passed on."""


class StoreFailing(NamedTuple):
    """A request to the store has failed; it is tried again."""

    why: str


class MembersChanged(NamedTuple):
    """The servers whose leases are live, and a number that rises with each change of them."""

    number: int
    members: tuple[Member, ...]


class ServerIdTaken(NamedTuple):
    """Another program holds the id that this server has drawn."""


class IdGranted(NamedTuple):
    """The store has registered a claim: the id is this holder's as long as the lease is live."""

    record: PeerRecord


class IdRefused(NamedTuple):
    """The store has refused a claim: the id is another holder's, or reserved for one."""

    holder: Holder


class HolderSeen(NamedTuple):
    """Another server has registered this holder, or has changed its record."""

    record: PeerRecord
    server: int
    """The id of that server; 0 if its lease has ended meanwhile, so that nobody answers for it."""


class HolderGone(NamedTuple):
    """No other server has this holder registered any longer, or the holder has left."""

    holder: Holder
    reason: Reason


class HolderEntrusted(NamedTuple):
    """A holder that this server hears no longer, and another one does."""

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
    """One server's part of a store of registrations that all servers share.

    It begins with ``handle_start``. After each input, and before each output of the server, the
    changes of ``poll_change`` are taken until there are none.
    """

    def handle_start(self, now: float, own: Member) -> None:
        """Enter this server among the members, or enter it again under another id."""
        raise NotImplementedError

    def handle_stop(self, now: float) -> None:
        """Remove this server from the members. Its registrations stay until its lease ends."""
        raise NotImplementedError

    def handle_time(self, now: float) -> None:
        """Do what is due; above all, notice the end of the lease."""
        raise NotImplementedError

    def attests(self, number: int, nonce: int) -> bool:
        """Return True if this holder is registered under this server's own lease."""
        raise NotImplementedError

    def claims(self, holder: Holder) -> bool:
        """Return True if this server has claimed an id, and the store has not decided yet."""
        raise NotImplementedError

    def claim(self, now: float, record: PeerRecord) -> None:
        """Ask the store to register this holder, unless another one has the id.

        ``IdGranted`` or ``IdRefused`` follows, unless the holder is released before.
        """
        raise NotImplementedError

    def withdraw(self, now: float, holder: Holder) -> None:
        """Give up a claim: its holder has left, or there is no room for it."""
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        """Return what an operator wants to know of the store, ready for JSON."""
        raise NotImplementedError

    def poll_change(self) -> RegistryChange | None:
        """Return the next change, or None."""
        raise NotImplementedError
