"""The security of a node: its identity, the peers that it admits, and limits for strangers."""

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
    """Limits of the work that strangers can cause in a node; times in seconds.

    Raises ``SettingsError``, naming the setting, when one is out of range.
    """

    handshakes_per_second: float = 500.0
    """Noise messages of peers that are computed per second, each in some 0.3 ms. Others are
    dropped, and their senders retransmit them.

    Messages of a pattern that needs this node's key or its secret have this budget, and all others
    another of the same size.
    """
    half_open: int = 256
    """Handshakes of peers that may be incomplete at a time. An introduced peer displaces a
    stranger."""
    handshake_timeout: float = 5.0
    """Seconds of silence after which an incomplete handshake is dropped. It is dropped after four
    times as long in any case.
    """
    resets_per_second: float = 100.0
    """Stateless resets sent per second; at most a quarter of them to one address, and half to one
    host."""
    cookie_lifetime: float = 30.0
    """Seconds for which a cookie proves an address: at least this, and at most twice as long."""

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
    """Counts of the datagrams and handshakes of a sealed node. A dropped datagram changes nothing.

    ``in_the_clear`` counts datagrams that were not sealed. ``forged`` counts those sealed with
    another key, or altered; ``replayed`` those that had arrived before, are too old to tell, or
    came from another address than the original. ``cookies_sent`` counts COOKIEs. ``handshakes``
    counts handshakes that peers began, after their cookie. ``handshakes_over_rate`` and
    ``handshakes_over_limit`` count those that ``handshakes_per_second`` and ``half_open`` affected:
    dropped, or admitted in place of a stranger. ``strangers`` counts peers whose claimed id nobody
    has introduced yet, and ``denied`` peers that were refused or were not the wanted peer.
    ``resets_sent``, ``resets_over_rate``, ``resets_taken`` and ``resets_forged`` count stateless
    resets that were sent, not sent because of ``resets_per_second``, accepted, and rejected.
    ``paths_tried`` counts challenges to new addresses of peers, and ``paths_changed`` the addresses
    that were adopted.
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


class KeyLog(Protocol):
    """A log of the keys of channels, with which captured datagrams can be decrypted."""

    def write(self, connection_id: int, key: bytes) -> None:
        """Record the first key that seals the datagrams with this connection id in front."""
        ...


class Verdict(Enum):
    """The decision about a peer that has proven a key and claims an id in the cluster."""

    ACCEPT = "the peer is the one that it claims to be"
    REJECT = "the peer is another one, or is not allowed"
    RETRY = "the servers have not introduced the peer yet; it will retransmit"


class AllowKeys:
    """An authenticator that accepts every key, or the keys in a set, for nodes without a cluster.

    The set is kept, not copied: a program may add keys to it and remove keys at any time.
    """

    def __init__(self, keys: AbstractSet[bytes] | None = None) -> None:
        self._keys = keys

    def key_of(self, peer_id: int) -> bytes | None:
        """Return None: no peer is introduced without a cluster."""
        return None

    def judge(self, key: bytes, peer_id: int) -> Verdict:
        """Return ACCEPT for a key in the set, else REJECT. Ids mean nothing without a cluster."""
        is_wanted = self._keys is None or key in self._keys
        return Verdict.ACCEPT if is_wanted else Verdict.REJECT


class IntroducedPeer(Protocol):
    """A peer that the servers have introduced, with its key."""

    @property
    def key(self) -> bytes:
        """The public key, 32 bytes; empty if the servers gave none."""
        ...


class RosterAuthenticator:
    """An authenticator that accepts the peers that servers have introduced, with their keys.

    ``peers`` maps ids to present peers: the mapping is kept, not copied.
    """

    def __init__(self, peers: Mapping[int, IntroducedPeer]) -> None:
        self._peers = peers

    def key_of(self, peer_id: int) -> bytes | None:
        """Return the key that the servers gave for a peer id; None if they gave none."""
        peer = self._peers.get(peer_id)
        return peer.key or None if peer is not None else None

    def judge(self, key: bytes, peer_id: int) -> Verdict:
        """Return ACCEPT if the key is that of the id, REJECT if not or without an id.

        Return RETRY for an id that the servers have not introduced yet.
        """
        peer = self._peers.get(peer_id)
        if peer is not None:
            return Verdict.ACCEPT if peer.key == key else Verdict.REJECT
        return Verdict.RETRY if peer_id else Verdict.REJECT


PeerAuthenticator = AllowKeys | RosterAuthenticator


@dataclass(frozen=True, slots=True)
class PeerPin:
    """The key that a dialled peer must have: 32 bytes, or None for any key.

    Raises ``SettingsError`` for an invalid ``key``.
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
        """Return True if the key of the peer that answered is acceptable."""
        return self.key is None or key == self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The security of a node whose channels are sealed.

    Raises ``SettingsError`` for a ``psk`` of another length, and for an ``allow`` that is not a
    set.
    """

    identity: Identity | None = None
    """The node's key pair, by which peers identify it; a new one by default."""
    allow: AbstractSet[bytes] | None = None
    """The public keys of the peers with which the node opens channels; None for any key.

    The set is kept, not copied: a change takes effect from the next handshake on.
    """
    psk: bytes | None = field(default=None, repr=False)
    """A secret of 32 bytes that both sides need. A peer without it gets only a cookie and a
    refusal.
    """
    limits: HandshakeLimits = field(default_factory=HandshakeLimits)
    """Limits of the work that strangers can cause."""
    roster: RosterAuthenticator | None = None
    """The members of the node's cluster; they replace ``allow``."""

    def __post_init__(self) -> None:
        if self.psk is not None and len(self.psk) != KEY_SIZE:
            raise SettingsError(f"psk has {len(self.psk)} bytes; allowed is {KEY_SIZE}")
        if self.allow is not None and not isinstance(self.allow, AbstractSet):
            raise SettingsError("allow is no set; allowed is a set of public keys, or None")

    @property
    def authenticator(self) -> PeerAuthenticator:
        """The authenticator: the members of the cluster if there is one, else ``allow``."""
        return self.roster or AllowKeys(self.allow)


SEALED: Final = Security()
"""The default security of a node: sealed, with a new identity, open to every peer."""
