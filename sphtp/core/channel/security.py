"""How safe a node is: its identity, whom it lets in, and how much strangers may ask of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Final, Protocol

from sphtp.core.secure.identity import KEY_SIZE, Identity
from sphtp.core.secure.noise_framework import require_useful
from sphtp.errors import LocalError, SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeLimits:
    """How much strangers may ask of a node; times in seconds.

    Raises ``SettingsError``, naming the setting, when one is out of range.
    """

    handshakes_per_second: float = 500.0
    """Messages of others' handshakes that are computed, each some 0.3 ms; others come again.

    Those who know this node's key or its secret, and strangers, have this much each."""
    half_open: int = 256
    """Handshakes of others under way at a time; for one who was introduced a stranger goes."""
    handshake_timeout: float = 5.0
    """After how much silence one of them is forgotten; after four times that in any case."""
    resets_per_second: float = 100.0
    """Peers told that their channel is not known here; a quarter of them at one address, and half
    at one host."""
    cookie_lifetime: float = 30.0
    """How long an address counts as proven, at least."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            low, high = RANGES[limit.name]
            value = getattr(self, limit.name)
            if not low <= value <= high:
                raise SettingsError(f"{limit.name} is {value}; allowed is {low} to {high}")


RANGES: dict[str, tuple[float, float]] = {
    "handshakes_per_second": (1, 1e6),
    "half_open": (1, 65_536),
    "handshake_timeout": (0.1, 3600),
    "resets_per_second": (1, 1e6),
    "cookie_lifetime": (1, 3600),
}


@dataclass(slots=True)
class HandshakeCounters:
    """Datagrams and handshakes of a sealed node; none of those dropped has changed anything.

    ``in_the_clear`` were not sealed; ``forged`` were sealed by nobody who has the key, or altered
    on their way; ``replayed`` had come before, or come from elsewhere. ``handshakes`` were begun by
    others and are counted after their cookie; ``handshakes_over_rate`` and
    ``handshakes_over_limit`` are those not answered because of ``handshakes_per_second`` and
    ``half_open``. ``strangers`` claimed an id that nobody introduced yet, ``denied`` were told that
    they are not wanted. A reset says that a peer has forgotten a channel; a path is what has
    changed when a peer's address has.
    """

    in_the_clear: int = 0
    forged: int = 0
    replayed: int = 0
    cookies_sent: int = 0
    handshakes: int = 0
    handshakes_over_rate: int = 0
    handshakes_over_limit: int = 0
    strangers: int = 0
    denied: int = 0
    resets_sent: int = 0
    resets_over_rate: int = 0
    resets_taken: int = 0
    resets_forged: int = 0
    paths_tried: int = 0
    paths_changed: int = 0


class Verdict(Enum):
    """What to make of somebody who has proven an identity and claims an id in the cluster."""

    ACCEPT = "is who it says"
    REJECT = "is not, or is not wanted"
    RETRY = "may be, but was not introduced yet; it asks again"


class PeerAuthenticator(Protocol):
    """Says which peers a node speaks with, and under which ids.

    Keys are public ones, 32 bytes; ids are those of a cluster, 0 for none.
    """

    def key_of(self, peer_id: int) -> bytes | None:
        """The key that the peer with this id must have; None when nobody said."""
        ...

    def judge(self, key: bytes, peer_id: int) -> Verdict:
        """Whether who has this key may have this id, and speak with this node."""
        ...


class AllowKeys:
    """Accepts every key, or those that ``allow`` approves of: for nodes dialled by address."""

    def __init__(self, allow: Callable[[bytes], bool] | None = None) -> None:
        self._allow = allow

    def key_of(self, peer_id: int) -> bytes | None:
        """Nobody is introduced here."""
        return None

    def judge(self, key: bytes, peer_id: int) -> Verdict:
        """Ask ``allow``; an id in a cluster means nothing without one."""
        is_wanted = self._allow is None or self._allow(key)
        return Verdict.ACCEPT if is_wanted else Verdict.REJECT


class HasKey(Protocol):
    """A peer that was introduced, with the key that was told; empty when none was."""

    @property
    def key(self) -> bytes:
        """A public key, 32 bytes."""
        ...


class RosterAuthenticator:
    """Accepts the peers that the servers have introduced, under the keys that they told.

    ``peers`` are those by id, as they are at the moment: the mapping is kept, not copied.
    """

    def __init__(self, peers: Mapping[int, HasKey]) -> None:
        self._peers = peers

    def key_of(self, peer_id: int) -> bytes | None:
        """What the servers said."""
        peer = self._peers.get(peer_id)
        return peer.key or None if peer is not None else None

    def judge(self, key: bytes, peer_id: int) -> Verdict:
        """Let in who has the key that goes with the id, and nobody without an id."""
        peer = self._peers.get(peer_id)
        if peer is not None:
            return Verdict.ACCEPT if peer.key == key else Verdict.REJECT
        return Verdict.RETRY if peer_id else Verdict.REJECT


@dataclass(frozen=True, slots=True)
class PeerPin:
    """The peer that a dialler expects: by its ``key``, or by what ``pin`` says of its key.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Of a node whose channels are sealed. Raises ``SettingsError`` for a ``psk`` that is none."""

    identity: Identity | None = None
    """Who it is to its peers; drawn anew by default."""
    allow: Callable[[bytes], bool] | None = None
    """Which public keys of peers it opens channels with; all by default.

    An error of its own is logged under ``sphtp.security``, and means no.
    """
    psk: bytes | None = field(default=None, repr=False)
    """A secret of 32 bytes that both sides need; nobody else gets further than a cookie."""
    limits: HandshakeLimits = field(default_factory=HandshakeLimits)
    """How much strangers may ask of it."""
    authenticator: PeerAuthenticator | None = None
    """Who is who, instead of ``allow``: for members of a cluster."""

    def __post_init__(self) -> None:
        if self.psk is not None and len(self.psk) != KEY_SIZE:
            raise SettingsError(f"psk has {len(self.psk)} bytes; allowed is {KEY_SIZE}")

    @property
    def peer_authenticator(self) -> PeerAuthenticator:
        """Who says who is who."""
        return self.authenticator or AllowKeys(self.allow)


SEALED: Final = Security()
"""What a node is by default: sealed, with a new identity, open to whoever comes."""
