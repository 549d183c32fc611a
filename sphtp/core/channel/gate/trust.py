"""Whom a node speaks with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from sphtp.core.secure.identity import KEY_SIZE
from sphtp.core.secure.noise.small_order import require_useful
from sphtp.errors import LocalError, SettingsError


class Verdict(Enum):
    """What to make of somebody who has proven an identity and claims an id in the cluster."""

    WELCOME = "is who it says"
    DENIED = "is not, or is not wanted"
    STRANGER = "may be, but was not introduced yet; it asks again"


class Trust(Protocol):
    """Who is who. Keys are public ones, 32 bytes; ids are those of a cluster, 0 for none."""

    def key_of(self, peer_id: int) -> bytes | None:
        """The key that the peer with this id must have; None when nobody said."""
        ...

    def judge(self, key: bytes, peer_id: int) -> Verdict:
        """Whether who has this key may have this id, and speak with this node."""
        ...


class OpenDoor:
    """Trusts whoever comes, or those that ``allow`` says: for nodes that are dialled by address."""

    def __init__(self, allow: Callable[[bytes], bool] | None = None) -> None:
        self._allow = allow

    def key_of(self, peer_id: int) -> bytes | None:
        """Nobody is introduced here."""
        return None

    def judge(self, key: bytes, peer_id: int) -> Verdict:
        """Ask ``allow``; an id in a cluster means nothing without one."""
        is_wanted = self._allow is None or self._allow(key)
        return Verdict.WELCOME if is_wanted else Verdict.DENIED


class Keyed(Protocol):
    """Somebody introduced, with the key that was told; nothing when none was."""

    @property
    def key(self) -> bytes:
        """A public key, 32 bytes."""
        ...


class Roster:
    """Trusts those whom the servers have introduced, with the keys that they told.

    ``peers`` are those by id, as they are at the moment: the mapping is kept, not copied.
    """

    def __init__(self, peers: Mapping[int, Keyed]) -> None:
        self._peers = peers

    def key_of(self, peer_id: int) -> bytes | None:
        """What the servers said."""
        peer = self._peers.get(peer_id)
        return peer.key or None if peer is not None else None

    def judge(self, key: bytes, peer_id: int) -> Verdict:
        """Let in who has the key that goes with the id, and nobody without an id."""
        peer = self._peers.get(peer_id)
        if peer is not None:
            return Verdict.WELCOME if peer.key == key else Verdict.DENIED
        return Verdict.STRANGER if peer_id else Verdict.DENIED


@dataclass(frozen=True, slots=True)
class Expectation:
    """Whom a dialler expects: the holder of ``key``, or somebody whose key ``pin`` approves of.

    Raises ``SettingsError`` for a ``key`` that is none.
    """

    key: bytes | None = None
    pin: Callable[[bytes], bool] | None = None

    def __post_init__(self) -> None:
        if self.key is None:
            return
        if len(self.key) != KEY_SIZE:
            raise SettingsError(f"key has {len(self.key)} bytes; allowed is {KEY_SIZE}")
        try:
            require_useful(self.key)
        except LocalError as error:
            raise SettingsError(f"key is {error}") from error

    def is_met_by(self, key: bytes) -> bool:
        """Whether the one who answered is the one expected."""
        if self.key is not None and key != self.key:
            return False
        return self.pin is None or self.pin(key)
