"""A server's copy of the keys in etcd: a list, and after it each change, in etcd's order.

So the copy always equals the store at one revision, never a mixture of two. It may lag behind; the
registry bounds the lag.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from sphtp.core.control.records import Holder, Member, PeerRecord
from sphtp.core.control.vocabulary import Reason
from sphtp.errors import RemoteError
from sphtp_server.registry.keyspace import (
    SERVER_VALUE,
    IdKey,
    KeyEvent,
    Keyspace,
    StoredKey,
    StoredRegistration,
)


class StoreCopy:
    """The keys of one cluster at ``revision``."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.revision = 0
        self.malformed = 0
        """The number of malformed keys and values received so far."""
        self._keyspace = keyspace
        self._keys: dict[str, StoredKey] = {}
        self._members: dict[str, Member] = {}
        self._holders: dict[Holder, dict[int, StoredRegistration | Reason]] = {}

    @property
    def keys(self) -> Mapping[str, StoredKey]:
        """All keys by name, as a live view."""
        return MappingProxyType(self._keys)

    @property
    def members(self) -> list[Member]:
        """The members, sorted by id, one for each id."""
        by_id = {member.id: member for member in self._members.values()}
        return [by_id[number] for number in sorted(by_id)]

    def member(self, name: str) -> Member | None:
        """Return the member with the key ``name``; None if there is none."""
        return self._members.get(name)

    def registrations(self, holder: Holder) -> Iterator[tuple[int, PeerRecord, int]]:
        """Yield for each server that has registered this holder its nonce, the record, its id."""
        for server, value in self._holders.get(holder, {}).items():
            if isinstance(value, StoredRegistration):
                yield server, value.record, value.server

    def has_left(self, holder: Holder) -> bool:
        """Return True if a server has stored that this holder has left."""
        return Reason.LEFT in self._holders.get(holder, {}).values()

    def replace(self, stored: Iterable[StoredKey], revision: int) -> list[KeyEvent]:
        """Replace all keys by those of a list; return the changes, deletions first."""
        new = {each.name: each for each in stored}
        events = [KeyEvent(name, revision, None) for name in self._keys if name not in new]
        events += [
            KeyEvent(name, revision, each)
            for name, each in new.items()
            if self._keys.get(name) != each
        ]
        for event in events:
            self.apply(event)
        self.revision = revision
        return events

    def apply(self, event: KeyEvent) -> None:
        """Apply one change."""
        name = event.name
        self._forget(name)
        self._keys.pop(name, None)
        if event.stored is not None:
            self._keys[name] = event.stored
            self._note(event.stored)
        self.revision = max(self.revision, event.revision)

    def parse_id(self, name: str) -> IdKey | None:
        """Return the parts of the key of a registration; None for another key."""
        try:
            return self._keyspace.parse_id_untrusted(name)
        except RemoteError:
            return None

    def _note(self, stored: StoredKey) -> None:
        name = stored.name
        try:
            if self._keyspace.is_member(name):
                self._members[name] = self._keyspace.parse_member_untrusted(stored.value)
            elif self._keyspace.is_id(name) and stored.value != SERVER_VALUE:
                key = self._keyspace.parse_id_untrusted(name)
                value = self._keyspace.parse_registration_untrusted(stored.value)
                if isinstance(value, StoredRegistration) and key.holder != value.holder:
                    raise RemoteError(f"the value of {name} is of another holder")
                self._holders.setdefault(key.holder, {})[key.server] = value
        except RemoteError:
            self.malformed += 1

    def _forget(self, name: str) -> None:
        self._members.pop(name, None)
        key = self.parse_id(name)
        if key is not None and key.holder in self._holders:
            servers = self._holders[key.holder]
            servers.pop(key.server, None)
            if not servers:
                del self._holders[key.holder]
