"""Ids that nobody holds but that not everybody may have: released, or seen in use."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from sphtp.core.control.codec import Digest
from sphtp.core.control.lists import Fingerprints
from sphtp.core.control.liveness import Liveness
from sphtp.core.control.records import PeerRecord
from sphtp.core.control.vocabulary import Reason
from sphtp.core.timers import ExpiringDict


@dataclass(frozen=True, slots=True)
class ReservedId:
    """The last holder of an id."""

    nonce: int
    reason: Reason | None
    """Why it was released; None when it was only seen in use."""

    def admits(self, nonce: int) -> bool:
        """Tell whether this holder may have the id: the last one, unless it gave the id up."""
        return nonce == self.nonce and self.reason is not Reason.LEFT


class ReservedIds:
    """Keeps an id from others for one expiry, so that late messages find no wrong holder."""

    __slots__ = ("_period", "_reserved")

    def __init__(self, period: float, capacity: int) -> None:
        self._period = period
        self._reserved = ExpiringDict[int, ReservedId](capacity)

    def put(self, now: float, number: int, nonce: int, reason: Reason | None) -> None:
        """Keep ``number`` for ``nonce``; when there is no room, the oldest id is free again."""
        self._reserved.take_expired(now)
        self._reserved.put(number, ReservedId(nonce, reason), now + self._period)

    def find(self, now: float, number: int) -> ReservedId | None:
        """Return the reserved of this id while it is kept."""
        self._reserved.take_expired(now)
        return self._reserved.get(number)

    def remove(self, number: int) -> None:
        """Free this id."""
        self._reserved.pop(number)

    def __len__(self) -> int:
        return len(self._reserved)

    def __iter__(self) -> Iterator[int]:
        return iter(self._reserved)


class IdAvailability(Enum):
    """What a registry says to someone who wants an id."""

    FREE = "nobody holds it"
    RESERVED = "it is kept for this very holder"
    HELD = "this very holder has it"
    TAKEN = "another holder has it, or had it a moment ago"


class Registry(Protocol):
    """Registrations, with the time at which each holder was last heard."""

    @property
    def records(self) -> Mapping[int, PeerRecord]:
        """All registrations by id, as they are at any time: a view, which may be kept."""
        ...

    @property
    def first_hand(self) -> list[PeerRecord]:
        """The registrations that expire here, because nobody else watches over them."""
        ...

    @property
    def digest(self) -> Digest:
        """A fingerprint of all registrations."""
        ...

    @property
    def is_full(self) -> bool:
        """No further id can be registered."""
        ...

    def availability(self, now: float, number: int, nonce: int) -> IdAvailability:
        """Tell how an id stands for this holder, without changing anything."""
        ...

    def create(self, now: float, record: PeerRecord) -> IdAvailability:
        """Register an id that is FREE or RESERVED; return how it stood before."""
        ...

    def replace(self, record: PeerRecord) -> None:
        """Change what is told about a holder that is registered."""
        ...

    def refresh(self, now: float, number: int) -> None:
        """Note that the holder was heard, and expire it when it is not heard again."""
        ...

    def doubt(self, now: float, number: int, wait: float) -> bool:
        """Expire the holder unless it is heard within ``wait``; tell whether that is news."""
        ...

    def rely(self, number: int) -> None:
        """Let someone else watch over the holder: it does not expire here."""
        ...

    def release(self, now: float, number: int, reason: Reason) -> PeerRecord | None:
        """De-register, delete what is told about the holder, and keep the id for one expiry."""
        ...

    def reserve(self, now: float, number: int, nonce: int) -> None:
        """Keep an id for a holder that is not registered yet."""
        ...

    def postpone_expiries(self, lag: float) -> None:
        """Postpone every expiry."""
        ...

    def take_suspects(self, now: float) -> list[int]:
        """Return the ids silent for half the expiry, each once."""
        ...

    def take_expired_ids(self, now: float) -> list[int]:
        """Return the ids silent for all the expiry; the caller releases them."""
        ...

    def next_due(self) -> float | None:
        """Return the time of the next suspicion or expiry."""
        ...


class MemoryRegistry:
    """A ``Registry`` of one process."""

    def __init__(self, expiry: float, capacity: int) -> None:
        self.reserved = ReservedIds(expiry, capacity)
        """The ids that are kept from others."""
        self._capacity = capacity
        self._records: dict[int, PeerRecord] = {}
        self._prints = Fingerprints()
        self._liveness = Liveness(expiry)

    @property
    def records(self) -> Mapping[int, PeerRecord]:
        """All registrations by id."""
        return MappingProxyType(self._records)

    @property
    def first_hand(self) -> list[PeerRecord]:
        """The registrations that expire here, because nobody else watches over them."""
        return [record for number, record in self._records.items() if number in self._liveness]

    @property
    def digest(self) -> Digest:
        """A fingerprint of all registrations."""
        return self._prints.digest

    @property
    def is_full(self) -> bool:
        """No further id can be registered."""
        return len(self._records) >= self._capacity

    def availability(self, now: float, number: int, nonce: int) -> IdAvailability:
        """Tell how an id stands for this holder, without changing anything."""
        held = self._records.get(number)
        if held is not None:
            return IdAvailability.HELD if held.nonce == nonce else IdAvailability.TAKEN
        reserved = self.reserved.find(now, number)
        if reserved is None:
            return IdAvailability.FREE
        return IdAvailability.RESERVED if reserved.admits(nonce) else IdAvailability.TAKEN

    def create(self, now: float, record: PeerRecord) -> IdAvailability:
        """Register an id that is FREE or RESERVED; return how it stood before."""
        availability = self.availability(now, record.id, record.nonce)
        if availability in (IdAvailability.FREE, IdAvailability.RESERVED):
            self.reserved.remove(record.id)
            self._records[record.id] = record
            self._prints.put(record)
        return availability

    def replace(self, record: PeerRecord) -> None:
        """Change what is told about a holder that is registered."""
        self._records[record.id] = record
        self._prints.put(record)

    def refresh(self, now: float, number: int) -> None:
        """Note that the holder was heard, and expire it when it is not heard again."""
        self._liveness.refresh(now, number)

    def doubt(self, now: float, number: int, wait: float) -> bool:
        """Expire the holder unless it is heard within ``wait``; tell whether that is news."""
        return self._liveness.doubt(now, number, wait)

    def rely(self, number: int) -> None:
        """Let someone else watch over the holder: it does not expire here."""
        self._liveness.forget(number)

    def release(self, now: float, number: int, reason: Reason) -> PeerRecord | None:
        """De-register, delete what is told about the holder, and keep the id for one expiry."""
        record = self._records.pop(number, None)
        self._liveness.forget(number)
        self._prints.drop(number)
        if record is not None:
            self.reserved.put(now, number, record.nonce, reason)
        return record

    def reserve(self, now: float, number: int, nonce: int) -> None:
        """Keep an id for a holder that is not registered yet."""
        self.reserved.put(now, number, nonce, None)

    def postpone_expiries(self, lag: float) -> None:
        """Postpone every expiry."""
        self._liveness.postpone_expiries(lag)

    def take_suspects(self, now: float) -> list[int]:
        """Return the ids silent for half the expiry, each once."""
        return self._liveness.take_suspects(now)

    def take_expired_ids(self, now: float) -> list[int]:
        """Return the ids silent for all the expiry; the caller releases them."""
        return self._liveness.take_expired(now)

    def next_due(self) -> float | None:
        """Return the time of the next suspicion or expiry."""
        return self._liveness.next_due()
