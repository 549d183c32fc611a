"""The datagrams of the sealed handshake, byte by byte.

front                                                                  every datagram
GREET    opener's id u32, token u64, pattern u8, cookie 16, noise      padded within the noise
COOKIE   token u64, cookie 16
WELCOME  token u64, noise
CONFIRM  opener's id u32, token u64, noise
RESET    proof 16
SEALED   counter u64, ciphertext, tag 16

The first 17 bytes of a GREET, and a REFUSE that is not sealed, are the same in every version but
for its number, so that any version can refuse any: it does so under the number of the other one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from hmac import new as hmac
from typing import Final, NamedTuple

from sphtp.core.channel.handshake import Refuse
from sphtp.core.channel.protection import SecureSession, SessionTable
from sphtp.core.channel.security import HandshakeCounters, PeerAuthenticator
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.entropy import Secrets
from sphtp.core.front import FRONT, VERSION, Kind, encode_front
from sphtp.core.secure.identity import Identity
from sphtp.core.secure.noise.patterns import IK, XX, XXPSK0, Pattern
from sphtp.core.wire import Reader, Writer
from sphtp.errors import RemoteError, untrusted

COOKIE_SIZE: Final = 16
PROOF_SIZE: Final = 16
NO_COOKIE: Final = bytes(COOKIE_SIZE)

OPENER_SIZE: Final = 4 + 8
"""Bytes that name an opener and its attempt."""

SMALLEST_GREET: Final = 192
"""Larger than whatever answers it, so that a forged source address gains nothing by it."""

SEAL_OVERHEAD: Final = FRONT.size + 8 + 16
"""Bytes that sealing adds to a datagram: front, counter and tag."""

GREET_OVERHEAD: Final = (
    FRONT.size + OPENER_SIZE + 1 + COOKIE_SIZE + 32 + (32 + 16) + PROOF_SIZE + 16
)
"""Bytes that a GREET adds to the CONNECT in it, at most: by IK there are two keys and two tags."""

RESET_SIZE: Final = FRONT.size + PROOF_SIZE
"""Bytes of a RESET."""


class Greet(NamedTuple):
    """The first message of an opener; ``pattern`` says by which handshake."""

    opener: int
    token: int
    pattern: int
    cookie: bytes
    noise: bytes


class Confirm(NamedTuple):
    """The third message, of handshakes that have one."""

    opener: int
    token: int
    noise: bytes


class Answer(NamedTuple):
    """A WELCOME or, with the cookie in place of the noise, a COOKIE."""

    token: int
    content: bytes


def encode_greet(greet: Greet) -> bytes:
    """Encode a GREET; it is addressed to connection id 0, for the other's is not yet known."""
    writer = Writer().raw(encode_front(Kind.GREET, 0)).u32(greet.opener).u64(greet.token)
    return writer.u8(greet.pattern).raw(greet.cookie).raw(greet.noise).finish()


@untrusted
def decode_greet_untrusted(datagram: bytes) -> Greet:
    """Decode a GREET; a short one is refused, for its answer could be the longer."""
    if len(datagram) < SMALLEST_GREET:
        raise RemoteError(f"a GREET of {len(datagram)} bytes is not padded")
    reader = _body(datagram)
    opener, token, pattern = reader.u32(), reader.u64(), reader.u8()
    if not opener:
        raise RemoteError("a GREET of nobody")
    return Greet(opener, token, pattern, reader.take(COOKIE_SIZE), reader.rest())


@untrusted
def decode_stranger_untrusted(datagram: bytes) -> tuple[int, int] | None:
    """Of a GREET in another version, the opener's id and its token; None of anything else."""
    if len(datagram) < SMALLEST_GREET or datagram[0] & 0x0F != Kind.GREET:
        return None
    if datagram[0] >> 4 == VERSION:
        return None
    reader = _body(datagram)
    return reader.u32(), reader.u64()


def encode_confirm(confirm: Confirm) -> bytes:
    """Encode a CONFIRM; it is addressed as a GREET is."""
    writer = Writer().raw(encode_front(Kind.CONFIRM, 0)).u32(confirm.opener).u64(confirm.token)
    return writer.raw(confirm.noise).finish()


@untrusted
def decode_confirm_untrusted(datagram: bytes) -> Confirm:
    """Decode a CONFIRM."""
    reader = _body(datagram)
    return Confirm(reader.u32(), reader.u64(), reader.rest())


def encode_answer(kind: Kind, to: int, answer: Answer) -> bytes:
    """Encode a COOKIE or a WELCOME to the opener's connection id."""
    return Writer().raw(encode_front(kind, to)).u64(answer.token).raw(answer.content).finish()


@untrusted
def decode_answer_untrusted(datagram: bytes) -> Answer:
    """Decode a COOKIE or a WELCOME."""
    reader = _body(datagram)
    return Answer(reader.u64(), reader.rest())


def encode_reset(forgotten: int, proof: bytes) -> bytes:
    """Encode a RESET: nothing is known here of this connection id, which was this side's."""
    return encode_front(Kind.RESET, forgotten) + proof


@untrusted
def decode_reset_untrusted(datagram: bytes) -> bytes:
    """Decode the proof in a RESET."""
    reader = _body(datagram)
    proof = reader.take(PROOF_SIZE)
    reader.finish()
    return proof


def encode_path(kind: Kind, to: int, nonce: int) -> bytes:
    """Encode a CHALLENGE or a RESPONSE, which travel sealed."""
    return Writer().raw(encode_front(kind, to)).u64(nonce).finish()


@untrusted
def decode_path_untrusted(datagram: bytes) -> int:
    """Decode the nonce of a CHALLENGE or a RESPONSE."""
    reader = _body(datagram)
    nonce = reader.u64()
    reader.finish()
    return nonce


def _body(datagram: bytes) -> Reader:
    return Reader(memoryview(datagram)[FRONT.size :])


PATTERNS: Final[dict[int, Pattern]] = {1: IK, 2: XX, 3: XXPSK0}
NUMBERS: Final = {pattern.name: number for number, pattern in PATTERNS.items()}

# What a message without content is filled up with, so that no answer is longer.
PADDING: Final = bytes(SMALLEST_GREET)


def prologue(pattern: Pattern, opener: int, token: int) -> bytes:
    """What both sides have seen in the clear, and the handshake then proves to be the same."""
    return Writer().raw(b"SphTP 1").u8(NUMBERS[pattern.name]).u32(opener).u64(token).finish()


RESET_PURPOSE: Final = b"SphTP reset"


def reset_purpose(port: int) -> bytes:
    """What the key of a node's resets is derived for.

    Two nodes of one identity must not tell proofs for each other's channels; where they share a
    machine, their ports differ.
    """
    return RESET_PURPOSE + (port.to_bytes(2, "little") if port else b"")


@dataclass(frozen=True, slots=True)
class SecurityContext:
    """Who this node is, whom it trusts, its bonds, and the ways out.

    ``say`` sends a datagram; ``pass_on`` hands the endpoint one that is authentic, and ``present``
    one of whoever has proven to have a key. It is told whose key a connection's peer has by
    ``introduce_peer``, and by ``object`` who answers in its place, and by ``progress`` which
    connection's handshake goes on.
    """

    identity: Identity
    secrets: Secrets
    trust: PeerAuthenticator
    psk: bytes | None = field(repr=False)
    counters: HandshakeCounters
    bonds: SessionTable
    say: Callable[[Datagrams], None]
    pass_on: Callable[[float, Address, bytes], None]
    present: Callable[[float, Address, bytes, bytes], None]
    introduce_peer: Callable[[int, bytes], None]
    object: Callable[[float, Address, int, Refuse], None]
    progress: Callable[[float, int], None]
    reset_key: bytes = field(repr=False)

    def proof(self, connection_id: int) -> bytes:
        """What a RESET for one of our connections will show.

        It follows from identity and port alone: a node that restarted with them can still make it,
        and nobody else but the one who was told.
        """
        name = connection_id.to_bytes(4, "little")
        return hmac(self.reset_key, name, sha256).digest()[:PROOF_SIZE]

    def settle(self, bond: SecureSession, own: int, peer: int) -> None:
        """Let a bond serve a connection."""
        self.bonds.add(bond, own, peer)
        self.introduce_peer(own, bond.key)

    def introduce(self, connection_id: int, datagram: bytes) -> bytes:
        """Put a datagram of the endpoint behind what its receiver has to know besides."""
        return self.proof(connection_id) + datagram


def read_introduction_untrusted(introduction: bytes) -> tuple[bytes, bytes]:
    """Take apart what ``SecurityContext.introduce`` put together: the proof, and the datagram."""
    if len(introduction) <= PROOF_SIZE:
        raise RemoteError(f"an introduction of {len(introduction)} bytes says nothing")
    return introduction[:PROOF_SIZE], introduction[PROOF_SIZE:]


def is_proven(proof: bytes, wanted: bytes) -> bool:
    """Whether a RESET shows what it must; takes as long wherever they differ."""
    return bool(wanted) and compare_digest(proof, wanted)
