"""Stateless resets (RFC 9000, section 10.3): telling peers that a channel is not known here.

A node that restarted with its identity knows none of its channels. It answers what comes for them
with a RESET, so that the peer need not wait for the timeout. The proof in it follows from identity,
port and connection id alone, and was told to the peer under the handshake's keys: the node can make
it again without having kept anything, and nobody else can.

Whoever is shown a proof can end that channel with it, so nobody is shown the proof of a channel
that lives; and nobody may collect proofs for as long as one fits, so resets are limited in rate.
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
    """The purpose for which the key of a node's resets is derived.

    Two nodes of one identity must not tell proofs for each other's channels; where they share a
    machine, their ports differ.
    """
    return RESET_PURPOSE + (port.to_bytes(2, "little") if port else b"")


def reset_proof(key: bytes, connection_id: int) -> bytes:
    """The proof in a RESET for a connection, made with the key of the node that it was at."""
    return hmac(key, connection_id.to_bytes(4, "little"), sha256).digest()[:PROOF_SIZE]


def is_proven(proof: bytes, wanted: bytes) -> bool:
    """True if a RESET shows what it must; takes as long wherever they differ."""
    return bool(wanted) and compare_digest(proof, wanted)


def encode_reset(forgotten: int, proof: bytes) -> bytes:
    """Encode a RESET: nothing is known here of this connection id, which was this side's."""
    return encode_front(Kind.RESET, forgotten) + proof


@untrusted
def decode_reset_untrusted(datagram: bytes) -> bytes:
    """Decode the proof in a RESET."""
    reader = Reader(memoryview(datagram)[FRONT.size :])
    proof = reader.take(PROOF_SIZE)
    reader.finish()
    return proof


class StatelessReset:
    """Answers what comes for unknown connections: ``rate`` times a second at most.

    One address has a quarter of it, and one host half: what is made up for ids that never were must
    not keep those from being told whose channel was there before a restart. Source addresses can
    be forged, though, and who forges those of many hosts takes all of it; peers then wait for
    their timeout.
    """

    def __init__(self, key: bytes, rate: float, counters: HandshakeCounters) -> None:
        self._key = key
        self._counters = counters
        self._rate = TokenBucket(rate)
        self._by_host = TokenBuckets[str](rate / 2)
        self._by_address = TokenBuckets[Address](rate / 4)

    def answer(self, now: float, address: Address, unknown: int, size: int) -> Datagrams | None:
        """The answer to a datagram of ``size`` bytes for an unknown id, and shorter than that."""
        if size <= RESET_SIZE:
            return None
        if not self._may_answer(now, address):
            self._counters.resets_over_rate += 1
            return None
        self._counters.resets_sent += 1
        return Datagrams.of(address, encode_reset(unknown, reset_proof(self._key, unknown)))

    def _may_answer(self, now: float, address: Address) -> bool:
        # The narrowest first: what it holds back costs the others nothing.
        return (
            self._by_address.take(now, address)
            and self._by_host.take(now, address[0])
            and self._rate.take(now)
        )
