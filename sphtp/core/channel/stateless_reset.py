"""Stateless resets (RFC 9000, section 10.3): notify a peer that its channel no longer exists here.

A node that restarts with its identity has lost the state of its channels. It replies to their
datagrams with a RESET, so that the peer need not wait for its idle timeout. The proof in a RESET
depends only on the node's identity and port and on the connection id. The peer received the proof
in the handshake, encrypted. After a restart the node computes the same proof again, without any
stored state, and nobody else can compute it.

Anyone who has a proof can end the channel with it. So the node sends no RESET for a connection that
exists, and a rate limit keeps attackers from collecting proofs in advance.
"""

from hashlib import sha256
from hmac import compare_digest
from hmac import new as hmac
from typing import Final

from sphtp.core.channel.security import HandshakeCounters
from sphtp.core.datagrams import FRONT, Address, Datagrams, Kind, encode_front
from sphtp.core.token_bucket import TokenBucket, TokenBuckets
from sphtp.core.wire import Reader
from sphtp.errors import untrusted

PROOF_SIZE: Final = 16
RESET_SIZE: Final = FRONT.size + PROOF_SIZE
"""Bytes of a RESET."""
RESET_PURPOSE: Final = b"SphTP reset"


def reset_purpose(port: int) -> bytes:
    """Return the label with which a node derives its reset key from its identity.

    Two nodes with one identity must not send proofs for each other's channels. If they run on one
    machine, their ports differ, so the label contains the port.
    """
    return RESET_PURPOSE + (port.to_bytes(2, "little") if port else b"")


def reset_proof(key: bytes, connection_id: int) -> bytes:
    """Return the proof in a RESET for a connection: a MAC of its id with the node's reset key."""
    return hmac(key, connection_id.to_bytes(4, "little"), sha256).digest()[:PROOF_SIZE]


def is_proven(proof: bytes, wanted: bytes) -> bool:
    """Return True if the proof of a RESET is the ``wanted`` one, in constant time.

    An empty ``wanted`` matches no proof.
    """
    return bool(wanted) and compare_digest(proof, wanted)


def encode_reset(forgotten: int, proof: bytes) -> bytes:
    """Encode a RESET for a connection id of this side that belongs to no connection."""
    return encode_front(Kind.RESET, forgotten) + proof


@untrusted
def decode_reset_untrusted(datagram: bytes) -> bytes:
    """Decode a RESET; return its proof. Raises ``RemoteError`` if it is malformed."""
    reader = Reader(memoryview(datagram)[FRONT.size :])
    proof = reader.take(PROOF_SIZE)
    reader.finish()
    return proof


class StatelessReset:
    """The replies to datagrams for unknown connections, at most ``rate`` a second.

    One address may use a quarter of the rate, and one host half of it, so that datagrams of one
    host cannot suppress the resets for other peers. An attacker who forges the addresses of many
    hosts can use up the whole rate; peers then wait for their idle timeout.
    """

    def __init__(self, key: bytes, rate: float, counters: HandshakeCounters) -> None:
        self._key = key
        self._counters = counters
        self._rate = TokenBucket(rate)
        self._by_host = TokenBuckets[str](rate / 2)
        self._by_address = TokenBuckets[Address](rate / 4)

    def answer(self, now: float, address: Address, unknown: int, size: int) -> Datagrams | None:
        """Return the RESET that replies to a datagram of ``size`` bytes.

        Return None if the RESET would not be shorter than the datagram, or if the rate is used up.
        """
        if size <= RESET_SIZE:
            return None
        if not self._may_answer(now, address):
            self._counters.resets_over_rate += 1
            return None
        self._counters.resets_sent += 1
        return Datagrams.of(address, encode_reset(unknown, reset_proof(self._key, unknown)))

    def _may_answer(self, now: float, address: Address) -> bool:
        # The narrowest limit first, so that its refusals use up no token of the others.
        return (
            self._by_address.take(now, address)
            and self._by_host.take(now, address[0])
            and self._rate.take(now)
        )
