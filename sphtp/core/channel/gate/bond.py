"""Two nodes that share keys: one channel's seal in both directions, and where the other one is."""

from sphtp.core.channel.frames import DATA_FIRST
from sphtp.core.channel.gate.counters import GateCounters
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.front import FRONT, Kind, encode_front
from sphtp.core.secure.seal import Opener, Sealer


class Bond:
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
        self, key: bytes, keys: tuple[bytes, bytes], address: Address, counters: GateCounters
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
