"""The sealed handshake: Noise messages in datagrams, and the parts that both sides use.

The opener sends a GREET with the first Noise message to the addresses of the peer. The answering
side stores nothing before the opener's address is proven. It replies to a first GREET with a
COOKIE, and processes a Noise message only if its GREET has a valid cookie. RFC 9000, section 8.1,
has an amplification limit of three for unproven addresses. Here it is one, because a GREET is
padded to be longer than any reply. There are three patterns (section 7 of the Noise specification).
The round trips are those after the COOKIE, until the ACCEPT arrives:

IK      the opener has the peer's key: GREET carries its CONNECT, WELCOME the ACCEPT, 1 round trip
XX      the opener does not have it: WELCOME requests the opener's key, CONFIRM carries this key and
        the CONNECT, a sealed WELCOME the ACCEPT, 2 round trips
XXpsk0  as XX, between peers with a pre-shared key

CONNECT, ACCEPT and REFUSE travel as payloads of these messages, with the same content as in the
clear. Each follows 16 bytes, which before a CONNECT or an ACCEPT are the proof that a RESET from
its sender will carry. ``initiator`` and ``responder`` have the two sides, each with its table of
states. The layouts of the datagrams:

front                                                                  every datagram
GREET    opener's id u32, token u64, pattern u8, cookie 16, noise      padded within the noise
COOKIE   token u64, cookie 16
WELCOME  token u64, noise
CONFIRM  opener's id u32, token u64, noise

The first 17 bytes of a GREET, and a REFUSE that is not sealed, have the same layout in all versions
of the protocol. So a node can refuse an opener of another version. The REFUSE then has the version
number of the opener.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sphtp.core.channel.security import HandshakeCounters, KeyLog, PeerAuthenticator
from sphtp.core.channel.stateless_reset import PROOF_SIZE, reset_proof
from sphtp.core.datagrams import FRONT, VERSION, Kind, encode_front
from sphtp.core.entropy import Secrets
from sphtp.core.secure.identity import Identity
from sphtp.core.secure.noise_framework import IK, XX, XXPSK0, Pattern
from sphtp.core.wire import Reader, Writer
from sphtp.errors import RemoteError, untrusted

PATTERNS: Final[dict[int, Pattern]] = {1: IK, 2: XX, 3: XXPSK0}
NUMBERS: Final = {pattern.name: number for number, pattern in PATTERNS.items()}

COOKIE_SIZE: Final = 16
"""Bytes of a cookie."""

NO_COOKIE: Final = bytes(COOKIE_SIZE)

OPENER_SIZE: Final = 4 + 8
"""Bytes of the opener's connection id and token, which identify its attempt."""

SMALLEST_GREET: Final = 192
"""Bytes of the smallest GREET. It is longer than any reply to an unproven address, so that an
attacker gains nothing by a forged source address."""

GREET_OVERHEAD: Final = (
    FRONT.size + OPENER_SIZE + 1 + COOKIE_SIZE + 32 + (32 + 16) + PROOF_SIZE + 16
)
"""The bytes that a GREET of the pattern IK adds to the CONNECT in it, with two keys and two tags.
Other patterns have no CONNECT in the GREET."""


class Greet(NamedTuple):
    """The datagram with the first Noise message.

    ``opener`` is its connection id. ``pattern`` is the number of its handshake pattern in
    ``PATTERNS``.
    """

    opener: int
    token: int
    pattern: int
    cookie: bytes
    noise: bytes


class Confirm(NamedTuple):
    """The datagram with the third Noise message of the patterns XX and XXpsk0."""

    opener: int
    token: int
    noise: bytes


class Answer(NamedTuple):
    """A WELCOME or a COOKIE; ``content`` is the Noise message or the cookie."""

    token: int
    content: bytes


def encode_greet(greet: Greet) -> bytes:
    """Encode a GREET to connection id 0, because the peer's id is not known yet."""
    writer = Writer().raw(encode_front(Kind.GREET, 0)).u32(greet.opener).u64(greet.token)
    return writer.u8(greet.pattern).raw(greet.cookie).raw(greet.noise).finish()


@untrusted
def decode_greet_untrusted(datagram: bytes) -> Greet:
    """Decode a GREET.

    Raises ``RemoteError`` if it is malformed, or shorter than ``SMALLEST_GREET``.
    """
    if len(datagram) < SMALLEST_GREET:
        raise RemoteError(f"a GREET of {len(datagram)} bytes is not padded")
    reader = _body(datagram)
    opener, token, pattern = reader.u32(), reader.u64(), reader.u8()
    if not opener:
        raise RemoteError("a GREET with the connection id 0")
    return Greet(opener, token, pattern, reader.take(COOKIE_SIZE), reader.rest())


@untrusted
def decode_stranger_untrusted(datagram: bytes) -> tuple[int, int] | None:
    """Return the opener's connection id and token of a GREET of another protocol version.

    Return None for any other datagram.
    """
    if len(datagram) < SMALLEST_GREET or datagram[0] & 0x0F != Kind.GREET:
        return None
    if datagram[0] >> 4 == VERSION:
        return None
    reader = _body(datagram)
    return reader.u32(), reader.u64()


def encode_confirm(confirm: Confirm) -> bytes:
    """Encode a CONFIRM to connection id 0, because the peer's id is not known yet."""
    writer = Writer().raw(encode_front(Kind.CONFIRM, 0)).u32(confirm.opener).u64(confirm.token)
    return writer.raw(confirm.noise).finish()


@untrusted
def decode_confirm_untrusted(datagram: bytes) -> Confirm:
    """Decode a CONFIRM; raise ``RemoteError`` if it is malformed."""
    reader = _body(datagram)
    return Confirm(reader.u32(), reader.u64(), reader.rest())


def encode_answer(kind: Kind, to: int, answer: Answer) -> bytes:
    """Encode a COOKIE or a WELCOME to the opener's connection id."""
    return Writer().raw(encode_front(kind, to)).u64(answer.token).raw(answer.content).finish()


@untrusted
def decode_answer_untrusted(datagram: bytes) -> Answer:
    """Decode a COOKIE or a WELCOME; raise ``RemoteError`` if it is malformed."""
    reader = _body(datagram)
    return Answer(reader.u64(), reader.rest())


# The payload of a GREET that carries no CONNECT. It makes the GREET longer than any reply.
PADDING: Final = bytes(SMALLEST_GREET)


def prologue(pattern: Pattern, opener: int, token: int) -> bytes:
    """Return the prologue, by which Noise authenticates the clear fields except the cookie."""
    return Writer().raw(b"SphTP 1").u8(NUMBERS[pattern.name]).u32(opener).u64(token).finish()


@dataclass(frozen=True, slots=True)
class SecurityContext:
    """The parts of a node's security that its handshakes use.

    ``secrets`` is the source of random numbers. ``psk`` is the pre-shared key, None if there is
    none. ``reset_key`` is the key for the proofs of stateless resets.
    """

    identity: Identity
    secrets: Secrets
    authenticator: PeerAuthenticator
    psk: bytes | None = field(repr=False)
    reset_key: bytes = field(repr=False)
    counters: HandshakeCounters
    key_log: KeyLog | None = None

    def payload(self, connection_id: int, datagram: bytes) -> bytes:
        """Return the payload of a Noise message: the proof for RESETs, then a datagram.

        ``connection_id`` is that of this side, for which the proof is valid.
        """
        return reset_proof(self.reset_key, connection_id) + datagram


def read_payload_untrusted(payload: bytes) -> tuple[bytes, bytes]:
    """Split a payload made by ``SecurityContext.payload`` into the proof and the datagram.

    Raises ``RemoteError`` if it is too short to have a datagram.
    """
    if len(payload) <= PROOF_SIZE:
        raise RemoteError(f"a payload of {len(payload)} bytes contains no datagram")
    return payload[:PROOF_SIZE], payload[PROOF_SIZE:]


def _body(datagram: bytes) -> Reader:
    return Reader(memoryview(datagram)[FRONT.size :])
