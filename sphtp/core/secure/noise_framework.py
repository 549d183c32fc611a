"""The Noise Protocol Framework (revision 34): three handshakes over X25519, AES-GCM and SHA-256.

This module reads and writes handshake messages without I/O, and draws keys from a source of secrets
that its caller passes. The first classes are those of the specification. A ``Pattern`` (section 7)
lists the tokens of each message. ``SymmetricState`` (5.2) is the hash and key of all messages so
far; it includes CipherState, which nothing else uses in a handshake. ``HandshakeState`` (5.3) has
one side's keys and processes the tokens. ``NoiseHandshake`` adds the turns of the two sides. It
works on a copy of the state, so that a message that is not authentic changes nothing.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sphtp.core.entropy import Secrets
from sphtp.core.secure.identity import KEY_SIZE, Identity
from sphtp.core.wire import Reader
from sphtp.errors import (
    LocalError,
    MessageTooLargeError,
    RemoteError,
    SettingsError,
    StateError,
    untrusted,
)

PRIME: Final = 2**255 - 19
# The u-coordinates of the points of order 2, 4 and 8 on the curve and on its twist, and their other
# encodings in 255 bits.
SMALL_ORDER: Final = frozenset(
    {
        0,
        1,
        PRIME - 1,
        PRIME,
        PRIME + 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    }
)


def require_useful(public: bytes) -> None:
    """Raise ``LocalError`` for a public key with which everybody can compute the shared secret."""
    # X25519 ignores the highest bit.
    if int.from_bytes(public, "little") % 2**255 in SMALL_ORDER:
        raise LocalError("a public key of small order")


class Token(Enum):
    """One token of a message pattern."""

    E = "e"
    S = "s"
    EE = "ee"
    ES = "es"
    SE = "se"
    SS = "ss"
    PSK = "psk"


E, S, EE, ES, SE, SS, PSK = Token
CARRIED: Final = frozenset({E, S})
"""The tokens that add a public key to a message; the others mix secrets into the state."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A handshake pattern; the initiator sends the first of ``messages``, then both alternate.

    ``responder_known`` is the pre-message: true if the initiator knows the responder's static key
    beforehand.
    """

    name: str
    messages: tuple[tuple[Token, ...], ...]
    responder_known: bool = False

    @property
    def has_psk(self) -> bool:
        """True if both sides need a pre-shared secret."""
        return any(PSK in tokens for tokens in self.messages)

    @property
    def protocol_name(self) -> bytes:
        """The full name of the protocol, with which both transcripts start."""
        return f"Noise_{self.name}_25519_AESGCM_SHA256".encode()


IK: Final = Pattern("IK", ((E, ES, S, SS), (E, EE, SE)), responder_known=True)
"""The pattern if the initiator has the responder's key: one round trip.

Anybody can replay the first message: do not act on it before the initiator has used the new keys.
"""

XX: Final = Pattern("XX", ((E,), (E, EE, S, ES), (S, SE)))
"""The pattern in which both sides send their keys: one and a half round trips. The caller has to
check the key of the other side."""

XXPSK0: Final = Pattern("XXpsk0", ((PSK, E), (E, EE, S, ES), (S, SE)))
"""The pattern of XX for peers with a shared secret, which keeps their keys from all others."""


HASH_SIZE: Final = 32
TAG_SIZE: Final = 16
"""Bytes that encryption adds to a text."""


class SymmetricState:
    """Hash and key of the transcript; equal on both sides if both saw the same messages."""

    __slots__ = ("_chaining_key", "_cipher", "_nonce", "hash")

    def __init__(self, protocol_name: bytes) -> None:
        fits = len(protocol_name) <= HASH_SIZE
        self.hash = protocol_name.ljust(HASH_SIZE, b"\0") if fits else _sha256(protocol_name)
        self._chaining_key = self.hash
        self._cipher: AESGCM | None = None
        self._nonce = 0

    def copy(self) -> "SymmetricState":
        """Return a copy with the same state."""
        twin: SymmetricState = SymmetricState(b"")
        twin.hash, twin._chaining_key = self.hash, self._chaining_key
        twin._cipher, twin._nonce = self._cipher, self._nonce
        return twin

    @property
    def overhead(self) -> int:
        """The bytes that encryption adds to a text: 0 before there is a key."""
        return TAG_SIZE if self._cipher else 0

    def mix_hash(self, data: bytes) -> None:
        """Add data to the hash of the transcript."""
        self.hash = _sha256(self.hash, data)

    def mix_key(self, secret: bytes) -> None:
        """Mix in a secret, and derive a new cipher key."""
        self._chaining_key, key = self._derive(secret, 2)
        self._take_key(key)

    def mix_key_and_hash(self, secret: bytes) -> None:
        """Mix in a pre-shared secret, and derive a new cipher key."""
        self._chaining_key, noted, key = self._derive(secret, 3)
        self.mix_hash(noted)
        self._take_key(key)

    def encrypt_and_hash(self, plaintext: bytes) -> bytes:
        """Encrypt a text, and add the ciphertext to the hash; without a key, encrypt nothing."""
        ciphertext = plaintext
        if self._cipher is not None:
            ciphertext = self._cipher.encrypt(self._next_nonce(), plaintext, self.hash)
        self.mix_hash(ciphertext)
        return ciphertext

    def decrypt_and_hash(self, ciphertext: bytes) -> bytes:
        """Decrypt a text, and add the ciphertext to the hash; without a key, decrypt nothing.

        With a key, raises ``RemoteError`` if the text, or any earlier part of the transcript, was
        altered.
        """
        plaintext = ciphertext
        if self._cipher is not None:
            try:
                plaintext = self._cipher.decrypt(self._next_nonce(), ciphertext, self.hash)
            except InvalidTag as error:
                raise RemoteError("a handshake message that is not authentic") from error
        self.mix_hash(ciphertext)
        return plaintext

    def split(self) -> tuple[bytes, bytes]:
        """Return the session keys: for messages of the initiator, and of the responder."""
        to_responder, to_initiator = self._derive(b"", 2)
        return to_responder, to_initiator

    def _derive(self, secret: bytes, count: int) -> list[bytes]:
        # The specification's HKDF is that of RFC 5869 without info.
        hkdf = HKDF(SHA256(), count * HASH_SIZE, salt=self._chaining_key, info=None)
        derived = hkdf.derive(secret)
        return [derived[at : at + HASH_SIZE] for at in range(0, len(derived), HASH_SIZE)]

    def _take_key(self, key: bytes) -> None:
        self._cipher, self._nonce = AESGCM(key), 0

    def _next_nonce(self) -> bytes:
        nonce = self._nonce.to_bytes(12, "big")
        self._nonce += 1
        return nonce


def _sha256(*parts: bytes) -> bytes:
    digest = Hash(SHA256())
    for part in parts:
        digest.update(part)
    return digest.finalize()


class HandshakeState:
    """The keys that one side has or has received, and the transcript.

    ``write`` and ``read`` leave an invalid state if they raise an error: call them on a copy.
    """

    __slots__ = ("_initiator", "_own", "_pattern", "_psk", "_secrets", "_theirs", "symmetric")

    def __init__(
        self,
        pattern: Pattern,
        initiator: bool,
        static: Identity,
        secrets: Secrets,
        prologue: bytes,
        remote: bytes | None,
        psk: bytes | None,
    ) -> None:
        self._pattern = pattern
        self._initiator = initiator
        self._secrets = secrets
        self._psk = psk or b""
        self._own = {"s": static}
        self._theirs = {"s": remote} if remote is not None else {}
        self.symmetric = SymmetricState(pattern.protocol_name)
        self.symmetric.mix_hash(prologue)
        if pattern.responder_known:
            known = self._theirs["s"] if initiator else static.public
            self.symmetric.mix_hash(known)

    def copy(self) -> "HandshakeState":
        """Return a copy with the same state."""
        static, remote = self._own["s"], self._theirs.get("s")
        twin: HandshakeState = HandshakeState(
            self._pattern, self._initiator, static, self._secrets, b"", remote, self._psk
        )
        twin._own, twin._theirs = self._own.copy(), self._theirs.copy()
        twin.symmetric = self.symmetric.copy()
        return twin

    @property
    def remote(self) -> bytes | None:
        """The other side's static public key; None before it has arrived."""
        return self._theirs.get("s")

    def write(self, tokens: tuple[Token, ...], payload: bytes) -> bytes:
        """Return a message with these tokens and a payload."""
        parts = []
        for token in tokens:
            if token in CARRIED:
                parts.append(self._write_key(token))
            else:
                self._mix(token)
        parts.append(self.symmetric.encrypt_and_hash(payload))
        return b"".join(parts)

    def read(self, tokens: tuple[Token, ...], message: bytes) -> bytes:
        """Read a message with these tokens; return its payload."""
        reader = Reader(message)
        for token in tokens:
            if token in CARRIED:
                self._read_key(token, reader)
            else:
                self._mix(token)
        return self.symmetric.decrypt_and_hash(reader.rest())

    def _write_key(self, token: Token) -> bytes:
        if token is Token.S:
            return self.symmetric.encrypt_and_hash(self._own["s"].public)
        ephemeral = self._own["e"] = Identity.draw(self._secrets)
        self._note_ephemeral(ephemeral.public)
        return ephemeral.public

    def _read_key(self, token: Token, reader: Reader) -> None:
        if token is Token.S:
            sealed = reader.take(KEY_SIZE + self.symmetric.overhead)
            key = self.symmetric.decrypt_and_hash(sealed)
        else:
            key = reader.take(KEY_SIZE)
            self._note_ephemeral(key)
        require_useful(key)
        self._theirs[token.value] = key

    def _note_ephemeral(self, public: bytes) -> None:
        self.symmetric.mix_hash(public)
        # Section 9.2: otherwise a key from the shared secret alone would be the same each time.
        if self._pattern.has_psk:
            self.symmetric.mix_key(public)

    def _mix(self, token: Token) -> None:
        if token is Token.PSK:
            self.symmetric.mix_key_and_hash(self._psk)
        else:
            mine, its = token.value if self._initiator else reversed(token.value)
            self.symmetric.mix_key(self._own[mine].exchange(self._theirs[its]))


MOST_BYTES: Final = 65_535
"""The longest message, in bytes, according to the specification."""
LIMIT: Final = f"allowed are {MOST_BYTES}"


class NoiseHandshake:
    """One side of a handshake.

    ``identity`` is that of this side, and ``remote`` the other side's public key, if the pattern
    needs it beforehand. ``psk`` is a secret of 32 bytes that both sides share. ``prologue`` is data
    that both sides must have, and that is not sent. The keys are as secret as ``secrets`` is
    unpredictable.

    Raises ``SettingsError`` for a ``remote`` or ``psk`` that is missing, unexpected or invalid.
    """

    __slots__ = ("_at", "_initiator", "_messages", "_state")

    def __init__(
        self,
        pattern: Pattern,
        *,
        initiator: bool,
        identity: Identity,
        secrets: Secrets,
        prologue: bytes = b"",
        remote: bytes | None = None,
        psk: bytes | None = None,
    ) -> None:
        _require_key("remote", remote, pattern, wanted=initiator and pattern.responder_known)
        _require_key("psk", psk, pattern, wanted=pattern.has_psk)
        if remote is not None:
            _require_useful(remote)
        self._initiator = initiator
        self._messages = pattern.messages
        self._at = 0
        self._state = HandshakeState(pattern, initiator, identity, secrets, prologue, remote, psk)

    @property
    def is_finished(self) -> bool:
        """True if all messages have passed, so that ``split`` returns the keys."""
        return self._at == len(self._messages)

    @property
    def is_my_turn(self) -> bool:
        """True if this side writes the next message."""
        return not self.is_finished and self._initiator == (self._at % 2 == 0)

    @property
    def remote(self) -> bytes | None:
        """The other side's static public key, 32 bytes; None before it has arrived."""
        return self._state.remote

    @property
    def handshake_hash(self) -> bytes:
        """The hash of the transcript so far, 32 bytes; at the end it is equal on both sides."""
        return self._state.symmetric.hash

    def write(self, payload: bytes) -> bytes:
        """Return the next message with ``payload``, protected as far as the pattern provides.

        Raises ``StateError`` if it is not this side's turn, and ``MessageTooLargeError`` for a
        message of more than ``MOST_BYTES``.
        """
        if not self.is_my_turn:
            raise StateError("it is not this side's turn to write a handshake message")
        state = self._state.copy()
        message = state.write(self._tokens, payload)
        if len(message) > MOST_BYTES:
            raise MessageTooLargeError(f"a handshake message of {len(message)} bytes; {LIMIT}")
        self._advance(state)
        return message

    @untrusted
    def read_untrusted(self, message: bytes) -> bytes:
        """Read the next message; return its payload.

        Raises ``RemoteError`` for a message that is not authentic, malformed, too long, or out of
        turn. Then nothing has changed, and the authentic message can still be read. The first
        message of XX is in the clear, and does not prove its sender.
        """
        if self.is_finished or self.is_my_turn:
            raise RemoteError("a handshake message out of turn")
        if len(message) > MOST_BYTES:
            raise RemoteError(f"a handshake message of {len(message)} bytes; {LIMIT}")
        state = self._state.copy()
        payload = state.read(self._tokens, message)
        self._advance(state)
        return payload

    def split(self) -> tuple[bytes, bytes]:
        """Return the session keys, 32 bytes each: for sending, and for receiving.

        Raises ``StateError`` before the handshake is finished.
        """
        if not self.is_finished:
            raise StateError("a handshake has keys when it is finished")
        to_responder, to_initiator = self._state.symmetric.split()
        return (to_responder, to_initiator) if self._initiator else (to_initiator, to_responder)

    @property
    def _tokens(self) -> tuple[Token, ...]:
        return self._messages[self._at]

    def _advance(self, state: HandshakeState) -> None:
        self._state = state
        self._at += 1


def _require_key(name: str, key: bytes | None, pattern: Pattern, *, wanted: bool) -> None:
    if (key is not None) != wanted:
        problem = "is missing" if wanted else "has no place"
        raise SettingsError(f"{name} {problem} in this side of {pattern.name}")
    if key is not None and len(key) != KEY_SIZE:
        raise SettingsError(f"{name} has {len(key)} bytes; allowed is {KEY_SIZE}")


def _require_useful(remote: bytes) -> None:
    try:
        require_useful(remote)
    except LocalError as error:
        raise SettingsError(f"remote is {error}") from error
