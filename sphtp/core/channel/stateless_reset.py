"""Stateless resets (RFC 9000, section 10.3), which end the peer's half of an unknown channel.

A node that restarted with its identity has lost all its channels. It replies to their datagrams
with a RESET, so that the peer need not wait for the idle timeout. The proof in a RESET is derived
from identity, port and connection id alone, and the peer received it under the handshake's keys. So
the node can compute the proof again without stored state, and nobody else can.

Anyone who has seen a proof can end that channel with it, so the proof of a live channel is never
sent. A rate limit keeps attackers from collecting proofs until one fits.
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
    """Return the purpose for which the key of a node's resets is derived.

    Two nodes of one identity must not send proofs for each other's channels; if they share a
    machine, their ports differ.
    """
    return RESET_PURPOSE + (port.to_bytes(2, "little") if port else b"")


def reset_proof(key: bytes, connection_id: int) -> bytes:
    """Return the proof in a RESET for a connection, made with the reset key of its node."""
    return hmac(key, connection_id.to_bytes(4, "little"), sha256).digest()[:PROOF_SIZE]


def is_proven(proof: bytes, wanted: bytes) -> bool:
    """Return True if a RESET has the right proof. The comparison takes constant time."""
    return bool(wanted) and compare_digest(proof, wanted)


def encode_reset(forgotten: int, proof: bytes) -> bytes:
    """Encode a RESET for a connection id that is not in use on this side."""
    return encode_front(Kind.RESET, forgotten) + proof


@untrusted
def decode_reset_untrusted(datagram: bytes) -> bytes:
    """Decode a RESET; return its proof. Raises ``RemoteError`` if it is malformed."""
    reader = Reader(memoryview(datagram)[FRONT.size :])
    proof = reader.take(PROOF_SIZE)
    reader.finish()
    return proof


class StatelessReset:
    """The resets for datagrams to unknown connections, at most ``rate`` a second.

    One address may use a quarter of the rate, and one host half. Otherwise datagrams to invented
    ids would use up the rate, and peers of a restarted node would get no reset. An attacker who
    forges the addresses of many hosts can use up the whole rate; peers then wait for their idle
    timeout.
    """

    def __init__(self, key: bytes, rate: float, counters: HandshakeCounters) -> None:
        self._key = key
        self._counters = counters
        self._rate = TokenBucket(rate)
        self._by_host = TokenBuckets[str](rate / 2)
        self._by_address = TokenBuckets[Address](rate / 4)

    def answer(self, now: float, address: Address, unknown: int, size: int) -> Datagrams | None:
        """Return the RESET for a datagram of ``size`` bytes.

        Return None if it would be longer than that, or if the rate is used up.
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
