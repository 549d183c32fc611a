"""Packet protection: the last step of every packet of a connection before it leaves.

There are two kinds. ``Plain`` changes nothing. ``AesGcm`` seals packets with the keys of a Noise
handshake; ``sphtp.core.secure.seal`` has the cipher, the key update, and the counter that is the
nonce. Either takes one packet or several of one size, and returns as many.
"""

from typing import Final

from sphtp.core.channel.frames import DATA_FIRST
from sphtp.core.channel.handshake import Origin
from sphtp.core.channel.security import HandshakeCounters, KeyLog
from sphtp.core.datagrams import FRONT, Address, Datagrams, Kind, encode_front
from sphtp.core.secure.seal import Sealer, Unsealer

SEAL_OVERHEAD: Final = FRONT.size + 8 + 16
"""Bytes that sealing adds to a datagram: front, counter and tag."""


class _Unsealed:
    """The sealer of a channel in the clear, which changes nothing."""

    __slots__ = ()

    def seal(self, data: bytes, size: int) -> tuple[bytes, int]:
        """Return datagrams of ``size`` bytes as they are."""
        return data, size


class Plain:
    """The packet protection of nodes without security: packets stay in the clear."""

    __slots__ = ("sealer",)

    def __init__(self) -> None:
        self.sealer = _Unsealed()

    def seal(self, address: Address, data: bytes, size: int) -> Datagrams:
        """Return datagrams of ``size`` bytes to an address, unchanged."""
        return Datagrams(address, data, size)


PLAIN: Final = Plain()


class AesGcm:
    """The keys of one connection, in both directions.

    ``key`` is the public key of the peer. ``keys`` are the first keys for sending and for
    receiving. ``own`` and ``peer`` are the connection ids of this side and of the peer, 0 while
    unknown. ``proof`` is the proof that a RESET from the peer must carry. ``is_used`` becomes true
    when the first sealed datagram of the peer arrives; until then the peer may repeat its
    handshake. ``key_log`` records the first key of either direction.
    """

    __slots__ = ("_key_log", "_keys", "_logged", "data_front", "is_used", "key", "own", "peer",
                 "proof", "sealer", "unsealer")  # fmt: skip

    def __init__(
        self,
        key: bytes,
        keys: tuple[bytes, bytes],
        counters: HandshakeCounters,
        proof: bytes = b"",
        *,
        key_log: KeyLog | None = None,
    ) -> None:
        sending, receiving = keys
        self.key = key
        self.own = self.peer = 0
        self.proof = proof
        self.is_used = False
        # The first bytes of every unsealed DATA packet to this connection.
        self.data_front = b""
        self.unsealer = Unsealer(receiving, FRONT.size, counters)
        self._keys = sending
        self._key_log = key_log
        # The first receiving key; only a key log needs it later on.
        self._logged = receiving if key_log is not None else b""
        self.sealer: Sealer | None = None

    def name(self, own: int, peer: int) -> None:
        """Set the connection ids of both sides; ``peer`` is 0 while the peer's is unknown.

        The first call with a peer's id makes the sealer.
        """
        self.own, self.data_front = own, FRONT.pack(DATA_FIRST, own)
        # Only one sealer is made, because a second one would count from zero with the same key.
        if peer and self.sealer is None:
            self.peer = peer
            if self._key_log is not None:
                if own:
                    self._key_log.write(own, self._logged)
                self._key_log.write(peer, self._keys)
                self._logged = b""
            self.sealer = Sealer(self._keys, encode_front(Kind.SEALED, peer))
            # Only the sealer has the key from now on, and it discards it at the first key update.
            self._keys = b""

    def seal(self, address: Address, data: bytes, size: int) -> Datagrams:
        """Seal datagrams of ``size`` bytes for the peer at an address."""
        assert self.sealer is not None
        return Datagrams(address, *self.sealer.seal(data, size))


PacketProtection = Plain | AesGcm

Peers = dict[Origin, AesGcm]
"""The keys of connections, by the address and the connection id of the peer."""


def is_free(peers: Peers, key: bytes, origin: Origin) -> bool:
    """Return True if no peer with another key has this address and connection id.

    A peer chooses its connection id. Since these ids are not secret, it could choose the id of
    another peer.
    """
    there = peers.get(origin)
    return there is None or there.key == key
