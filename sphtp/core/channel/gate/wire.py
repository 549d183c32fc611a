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

from typing import Final, NamedTuple

from sphtp.core.front import FRONT, VERSION, Kind, encode_front
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
