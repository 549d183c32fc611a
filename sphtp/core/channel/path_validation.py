"""Path validation (RFC 9000, section 8.2): follow a peer whose address has changed.

Only the peer of a sealed channel can change its address, in these steps:

1. A datagram that the keys of the connection open, with the highest counter so far, comes from
   another address than the connection's (``Endpoint._handle_sealed_untrusted``). Or NAT traversal
   has found another address of the peer (``Connection.handle_candidate``).
2. This side sends a CHALLENGE with a nonce there, and repeats it at most once every ``RETRY``
   seconds (``Connection.challenge``, with ``PathValidation.challenge``). The connection still sends
   its packets to the old address.
3. The peer returns the nonce in a RESPONSE to the address from which the CHALLENGE came
   (``Connection.handle_challenge``).
4. A RESPONSE with this nonce from the challenged address proves that the peer is there
   (``PathValidation.take_response``). Two connections cannot have one address and peer id, so
   ``Endpoint._handle_response`` first checks that no peer with another key has them (``is_free``).
5. ``ConnectionTable.move`` changes the address, and ``Path.path_changed`` resets path MTU,
   congestion control and round trip.

This file has the state of steps 2 and 4, and the encoding of both datagrams.

A datagram that an attacker copied and sent from elsewhere proves nothing: only the owner of the
keys can decrypt the nonce, and it receives the nonce only at the address to which that was sent. So
an attacker cannot direct data at a third party.
"""

from typing import Final

from sphtp.core.datagrams import FRONT, Address, Kind, encode_front
from sphtp.core.entropy import Secrets
from sphtp.core.wire import Reader, Writer
from sphtp.errors import untrusted

RETRY: Final = 0.2
"""The least number of seconds between two challenges of one connection, unless the first one was
answered."""


def encode_path(kind: Kind, to: int, nonce: int) -> bytes:
    """Encode a CHALLENGE or a RESPONSE, which travel sealed."""
    return Writer().raw(encode_front(kind, to)).u64(nonce).finish()


@untrusted
def decode_path_untrusted(datagram: bytes) -> int:
    """Decode the nonce of a CHALLENGE or a RESPONSE; raise ``RemoteError`` if it is malformed."""
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

    def take_response(self, address: Address, nonce: int) -> bool:
        """Use up the last challenge, and return True, if a RESPONSE matches it."""
        if (address, nonce) != (self._address, self._nonce):
            return False
        self._address, self._sent_at = None, float("-inf")
        return True
