"""Packet protection: the keys of a sealed channel, and where the other side is."""

from sphtp.core.channel.handshake import Origin
from sphtp.core.channel.header import DATA_FIRST
from sphtp.core.channel.security import HandshakeCounters
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.front import FRONT, Kind, encode_front
from sphtp.core.secure.seal import Opener, Sealer


class SecureSession:
    """The keys of one channel.

    ``key`` is the public key of the peer, ``address`` where it was last proven to be, ``peer`` its
    connection id, ``proof`` what a RESET from it must show. ``is_used`` once the peer has sealed
    anything.
    """

    __slots__ = (
        "_keys",
        "_sealer",
        "address",
        "data_front",
        "is_used",
        "key",
        "opener",
        "own",
        "peer",
        "proof",
        "trial",
    )  # fmt: skip

    def __init__(
        self, key: bytes, keys: tuple[bytes, bytes], address: Address, counters: HandshakeCounters
    ) -> None:
        sending, receiving = keys
        self.key = key
        self.address = address
        self.peer = 0
        self.own = 0
        self.proof = b""
        self.is_used = False
        # An address that the peer may have moved to, and what it must echo from there.
        self.trial: tuple[Address, int, float] | None = None
        self.data_front = b""
        self.opener = Opener(receiving, FRONT.size, counters)
        self._keys = sending
        self._sealer: Sealer | None = None

    def name(self, own: int, peer: int) -> None:
        """Take note of the connection ids of both sides; sealing needs the peer's."""
        self.own, self.data_front = own, FRONT.pack(DATA_FIRST, own)
        # There is one sealer for ever: a second one would count from zero with the same key.
        if peer and self._sealer is None:
            self.peer = peer
            self._sealer = Sealer(self._keys, encode_front(Kind.SEALED, peer))
            # It goes from key to key, and the first one is forgotten like those after it.
            self._keys = b""

    def seal(self, data: bytes, size: int, address: Address | None = None) -> Datagrams:
        """Seal datagrams to the peer, or to where it may be."""
        assert self._sealer is not None
        return Datagrams(address or self.address, *self._sealer.seal(data, size))


class SessionTable:
    """Bonds by our connection id, and by the peer's at its address."""

    def __init__(self) -> None:
        self._by_id: dict[int, SecureSession] = {}
        self._by_way: dict[Origin, SecureSession] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, own: int) -> SecureSession | None:
        """The bond under which the peer sends to one of our connections."""
        return self._by_id.get(own)

    def towards(self, address: Address, peer: int) -> SecureSession | None:
        """The bond under which something leaves."""
        return self._by_way.get((address, peer))

    def is_open_to(self, key: bytes, address: Address, peer: int) -> bool:
        """Whether nothing that leaves there is sealed for somebody else.

        Connection ids are not secret, and a peer chooses its own: it could take another's.
        """
        bond = self._by_way.get((address, peer))
        return bond is None or bond.key == key

    def add(self, bond: SecureSession, own: int, peer: int) -> None:
        """Let a bond serve a connection, instead of the one it had."""
        if self._by_id.get(own) is not bond:
            self.remove(own)
        bond.name(own, peer)
        self._by_id[own] = bond
        if peer:
            self._by_way[bond.address, peer] = bond

    def remove(self, own: int) -> None:
        """Forget the keys of a connection."""
        bond = self._by_id.pop(own, None)
        if bond is not None and self._by_way.get((bond.address, bond.peer)) is bond:
            del self._by_way[bond.address, bond.peer]

    def move(self, bond: SecureSession, address: Address) -> None:
        """Send to another address from now on."""
        if self._by_way.get((bond.address, bond.peer)) is bond:
            del self._by_way[bond.address, bond.peer]
        bond.address = address
        self._by_way[address, bond.peer] = bond
