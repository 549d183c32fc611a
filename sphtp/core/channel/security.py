"""The security of a node: its identity, the peers that it lets in, and limits for strangers."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Final, Protocol

from sphtp.core.secure.identity import KEY_SIZE, Identity
from sphtp.core.secure.noise_framework import require_useful
from sphtp.errors import LocalError, SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeLimits:
    """The limits of what strangers may ask of a node; times in seconds.

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
    """The seconds for which an address counts as proven, at least."""

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
    """The decision about a peer that has proven an identity and claims an id in the cluster."""

    ACCEPT = "is who it says"
    REJECT = "is not, or is not wanted"
    RETRY = "may be, but was not introduced yet; it asks again"


class AllowKeys:
    """Accepts every key, or those in a set: for nodes dialled by address.

    The set is kept, not copied: a program may add keys to it and remove keys at any time.
    """

    def __init__(self, keys: AbstractSet[bytes] | None = None) -> None:
        self._keys = keys

    def key_of(self, peer_id: int) -> bytes | None:
        """None: nobody is introduced here."""
        return None

    def judge(self, key: bytes, peer_id: int) -> Verdict:
        """Accept a key in the set. An id means nothing where there is no cluster."""
        is_wanted = self._keys is None or key in self._keys
        return Verdict.ACCEPT if is_wanted else Verdict.REJECT


class IntroducedPeer(Protocol):
    """A peer that was introduced, with the key that was told; empty when none was."""

    @property
    def key(self) -> bytes:
        """A public key, 32 bytes."""
        ...


class RosterAuthenticator:
    """Accepts the peers that the servers have introduced, under the keys that they told.

    ``peers`` are those by id, as they are at the moment: the mapping is kept, not copied.
    """

    def __init__(self, peers: Mapping[int, IntroducedPeer]) -> None:
        self._peers = peers

    def key_of(self, peer_id: int) -> bytes | None:
        """The key that the servers told of the peer with this id; None if they told none."""
        peer = self._peers.get(peer_id)
        return peer.key or None if peer is not None else None

    def judge(self, key: bytes, peer_id: int) -> Verdict:
        """Accept the peer whose key goes with its id, and nobody without an id."""
        peer = self._peers.get(peer_id)
        if peer is not None:
            return Verdict.ACCEPT if peer.key == key else Verdict.REJECT
        return Verdict.RETRY if peer_id else Verdict.REJECT


PeerAuthenticator = AllowKeys | RosterAuthenticator


@dataclass(frozen=True, slots=True)
class PeerPin:
    """The key that a dialled peer must have, 32 bytes; any will do when it is None.

    Raises ``SettingsError`` for a ``key`` that is none.
    """

    key: bytes | None = None

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
        """True if the peer that answered is the one expected."""
        return self.key is None or key == self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The security of a node whose channels are sealed.

    Raises ``SettingsError`` for a ``psk`` of another length, and for an ``allow`` that is no set.
    """

    identity: Identity | None = None
    """Its key pair, by which its peers know it; drawn anew by default."""
    allow: AbstractSet[bytes] | None = None
    """The public keys of the peers with which it opens channels; all by default.

    The set is kept, not copied: what a program adds or removes counts for the next handshake."""
    psk: bytes | None = field(default=None, repr=False)
    """A secret of 32 bytes that both sides need; nobody else gets further than a cookie."""
    limits: HandshakeLimits = field(default_factory=HandshakeLimits)
    """The limits of what strangers may ask of it."""
    roster: RosterAuthenticator | None = None
    """The members of its cluster, which take the place of ``allow``."""

    def __post_init__(self) -> None:
        if self.psk is not None and len(self.psk) != KEY_SIZE:
            raise SettingsError(f"psk has {len(self.psk)} bytes; allowed is {KEY_SIZE}")
        if self.allow is not None and not isinstance(self.allow, AbstractSet):
            raise SettingsError("allow is no set; allowed is a set of public keys, or None")

    @property
    def authenticator(self) -> PeerAuthenticator:
        """The decision about keys and ids: by the members of the cluster, or by ``allow``."""
        return self.roster or AllowKeys(self.allow)


SEALED: Final = Security()
"""The security that a node has by default: sealed, with a new identity, open to everybody."""
