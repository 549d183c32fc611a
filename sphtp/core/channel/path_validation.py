"""Path validation (RFC 9000, section 8.2): follow a peer whose address has changed.

Only the peer of a sealed channel can move. If a datagram with the highest counter so far comes from
a new address, this side sends a CHALLENGE with a nonce to that address. A RESPONSE from there with
the same nonce proves that the peer receives datagrams at the address. A datagram that an attacker
has copied and sent from elsewhere proves nothing, because only the owner of the keys can read the
nonce. So an attacker cannot direct data at a third party.
"""

from typing import Final

from sphtp.core.datagrams import FRONT, Address, Kind, encode_front
from sphtp.core.entropy import Secrets
from sphtp.core.wire import Reader, Writer
from sphtp.errors import untrusted

RETRY: Final = 0.2
"""The least number of seconds between two challenges of one connection."""


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
    """The validation of a peer's new address; a connection validates one address at a time."""

    __slots__ = ("_address", "_nonce", "_sent_at")

    def __init__(self) -> None:
        self._address: Address | None = None
        self._nonce = 0
        self._sent_at = float("-inf")

    def challenge(self, now: float, secrets: Secrets, address: Address, peer: int) -> bytes | None:
        """Return a CHALLENGE to send to a new address; None if the last one was too recent.

        ``peer`` is the peer's connection id. A repeated CHALLENGE to the same address has the same
        nonce, because the RESPONSE to the first one may be in flight if a round trip takes longer
        than ``RETRY``.
        """
        if now < self._sent_at + RETRY:
            return None
        if address != self._address:
            self._address, self._nonce = address, secrets.getrandbits(64)
        self._sent_at = now
        return encode_path(Kind.CHALLENGE, peer, self._nonce)

    def is_proven(self, address: Address, nonce: int) -> bool:
        """Return True if a RESPONSE matches the last challenge, and end the validation then."""
        if (address, nonce) != (self._address, self._nonce):
            return False
        self._address, self._sent_at = None, float("-inf")
        return True
