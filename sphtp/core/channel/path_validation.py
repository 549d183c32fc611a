"""Path validation (RFC 9000, section 8.2): a peer that moves is followed when it answers there.

Only a peer with keys can move. When something newer than all before comes from another address, a
CHALLENGE with a nonce goes there; the RESPONSE that echoes it, from there, proves that the peer is
there. A datagram that somebody copied and sent from elsewhere proves nothing: only who has the keys
can echo a nonce, and only who is there can have read it. So nobody is sent what it never asked for.
"""

from typing import Final

from sphtp.core.datagrams import FRONT, Address, Kind, encode_front
from sphtp.core.entropy import Secrets
from sphtp.core.wire import Reader, Writer
from sphtp.errors import untrusted

RETRY: Final = 0.2
"""Seconds between two challenges of one connection, wherever its datagrams come from."""


def encode_path(kind: Kind, to: int, nonce: int) -> bytes:
    """Encode a CHALLENGE or a RESPONSE, which travel sealed."""
    return Writer().raw(encode_front(kind, to)).u64(nonce).finish()


@untrusted
def decode_path_untrusted(datagram: bytes) -> int:
    """Decode the nonce of a CHALLENGE or a RESPONSE."""
    reader = Reader(memoryview(datagram)[FRONT.size :])
    nonce = reader.u64()
    reader.finish()
    return nonce


class PathValidation:
    """The one address of a connection that is being tried."""

    __slots__ = ("_address", "_nonce", "_sent_at")

    def __init__(self) -> None:
        self._address: Address | None = None
        self._nonce = 0
        self._sent_at = float("-inf")

    def challenge(self, now: float, secrets: Secrets, address: Address, peer: int) -> bytes | None:
        """The CHALLENGE for a new address, to the peer's connection id; None if it is too early."""
        if now < self._sent_at + RETRY:
            return None
        self._address, self._nonce, self._sent_at = address, secrets.getrandbits(64), now
        return encode_path(Kind.CHALLENGE, peer, self._nonce)

    def is_proven(self, address: Address, nonce: int) -> bool:
        """True if a RESPONSE proves that the peer is there; each challenge serves once."""
        if (address, nonce) != (self._address, self._nonce):
            return False
        self._address, self._sent_at = None, float("-inf")
        return True
