"""The security of a node: its identity, the peers that it accepts, and limits of handshakes."""

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
    """Limits of the work that unauthenticated peers can cause in a node; times in seconds.

    An opener counts as a stranger unless its GREET uses this node's key or pre-shared key. It also
    counts as one for a while after an invalid GREET from its host.

    Raises ``SettingsError``, which names the setting, if a value is out of range.
    """

    handshakes_per_second: float = 500.0
    """Noise messages of peers that the node processes per second; each takes some 0.3 ms.

    The node ignores the others, and their senders repeat them. Strangers share one budget of this
    size, and all other openers share another one.
    """
    half_open: int = 256
    """Most handshakes of peers that are in progress at a time.

    If all places are taken, an opener that is no stranger displaces a stranger that has not proven
    its identity.
    """
    handshake_timeout: float = 5.0
    """Seconds of silence after which the node ends a handshake of a peer.

    A handshake lasts at most four times as long.
    """
    resets_per_second: float = 100.0
    """Stateless resets sent per second: at most a quarter of them to one address, and half of them
    to one host."""
    cookie_lifetime: float = 30.0
    """Seconds for which a cookie is valid at least; it is valid at most twice as long.

    A valid cookie proves that an opener receives datagrams at its address.
    """

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
    """Counts of the datagrams and handshakes of a node whose channels are sealed.

    **Dropped datagrams.** ``in_the_clear`` counts datagrams in the clear of kinds that have to come
    sealed, such as DATA and CONNECT. ``forged`` counts those that were altered, or made with
    another key. ``replayed`` counts those that had arrived before or are too old to decide that,
    and GREETs that were first received from another opener.

    **Handshakes.** ``cookies_sent`` counts cookies, and ``handshakes`` GREETs with a valid cookie
    that this node processed. ``handshakes_over_rate`` counts messages that were ignored because of
    ``handshakes_per_second``. ``handshakes_over_limit`` counts the times that ``half_open`` made
    the node ignore a GREET, or end the handshake of another opener to make room. ``strangers``
    counts handshakes of peers with an id that the servers have not introduced yet. ``denied``
    counts handshakes in which this node rejected the peer, as the opener or as the answering side,
    and other GREETs of an opener that has proven its identity.

    **Resets and paths.** ``resets_sent`` and ``resets_over_rate`` count stateless resets that this
    node sent, and those that ``resets_per_second`` suppressed. ``resets_taken`` counts valid resets
    that arrived, and ``resets_forged`` invalid ones. ``paths_tried`` counts challenges of
    addresses from which a sealed datagram newly came, and not those that NAT traversal found.
    ``paths_changed`` counts changes of a connection to a new address of either kind.
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
    """A log of the keys of channels. With it, tools can decrypt captured datagrams."""

    def write(self, connection_id: int, key: bytes) -> None:
        """Record the first key of the datagrams that carry this connection id."""
        ...


class Verdict(Enum):
    """The decision about a peer that has proven a key and claims an id in the cluster."""

    ACCEPT = "the peer is the one that it claims to be"
    REJECT = "the peer is another one, or is not allowed"
    RETRY = "the servers have not introduced the peer yet; it will repeat its request"


class AllowKeys:
    """An authenticator without a cluster: it accepts every key, or only the keys in a set.

    The set is not copied: a program may add keys and remove keys at any time.
    """

    def __init__(self, keys: AbstractSet[bytes] | None = None) -> None:
        self._keys = keys

    def key_of(self, peer_id: int) -> bytes | None:
        """Return None, because no server introduces peers without a cluster."""
        return None

    def judge(self, key: bytes, peer_id: int) -> Verdict:
        """Accept a key of the set, or any without a set. Ids have no meaning without a cluster."""
        is_wanted = self._keys is None or key in self._keys
        return Verdict.ACCEPT if is_wanted else Verdict.REJECT


class IntroducedPeer(Protocol):
    """A peer that the servers have introduced, with its public key."""

    @property
    def key(self) -> bytes:
        """The public key, 32 bytes; empty if the servers have sent none."""
        ...


class RosterAuthenticator:
    """An authenticator that accepts the peers that servers have introduced, by id and key.

    ``peers`` maps the ids of the present peers to these. The mapping is not copied, so that its
    changes take effect.
    """

    def __init__(self, peers: Mapping[int, IntroducedPeer]) -> None:
        self._peers = peers

    def key_of(self, peer_id: int) -> bytes | None:
        """Return the public key of the peer with this id; None if the servers have sent none."""
        peer = self._peers.get(peer_id)
        return peer.key or None if peer is not None else None

    def judge(self, key: bytes, peer_id: int) -> Verdict:
        """Accept a peer whose key matches its id; reject one with another key, or without an id.

        The verdict on an id that the servers have not introduced is ``RETRY``.
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
        """Return True if a peer with this public key is acceptable."""
        return self.key is None or key == self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The security of a node whose channels are sealed.

    Raises ``SettingsError`` for a ``psk`` that has not 32 bytes, and for an ``allow`` that is not a
    set.
    """

    identity: Identity | None = None
    """The node's key pair, by which peers identify it; a new one by default."""
    allow: AbstractSet[bytes] | None = None
    """The public keys of the peers with which the node opens channels; None for all peers.

    The set is not copied: a change takes effect with the next handshake.
    """
    psk: bytes | None = field(default=None, repr=False)
    """A pre-shared key of 32 bytes that both sides need; the node refuses openers without it."""
    limits: HandshakeLimits = field(default_factory=HandshakeLimits)
    """Limits of the work that unauthenticated peers can cause."""
    roster: RosterAuthenticator | None = None
    """The authenticator of the members of the node's cluster; it replaces ``allow``."""

    def __post_init__(self) -> None:
        if self.psk is not None and len(self.psk) != KEY_SIZE:
            raise SettingsError(f"psk has {len(self.psk)} bytes; allowed is {KEY_SIZE}")
        if self.allow is not None and not isinstance(self.allow, AbstractSet):
            raise SettingsError("allow is no set; allowed is a set of public keys, or None")

    @property
    def authenticator(self) -> PeerAuthenticator:
        """The authenticator of peers: ``roster`` if there is one, else one for ``allow``."""
        return self.roster or AllowKeys(self.allow)


SEALED: Final = Security()
"""The default security of a node: sealed, with a new identity, open to every peer."""
