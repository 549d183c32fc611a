"""What a handshake has come to: chaining key, hash and cipher (Noise specification, section 5).

The specification's CipherState is ``_key`` and ``_nonce`` here, for in a handshake it is used by
nobody else.
"""

from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sphtp.errors import RemoteError

HASH_SIZE: Final = 32
TAG_SIZE: Final = 16
"""Bytes that sealing adds."""


class SymmetricState:
    """Both sides' are equal as long as both have seen the same."""

    __slots__ = ("_chaining_key", "_cipher", "_nonce", "hash")

    def __init__(self, protocol_name: bytes) -> None:
        fits = len(protocol_name) <= HASH_SIZE
        self.hash = protocol_name.ljust(HASH_SIZE, b"\0") if fits else _sha256(protocol_name)
        self._chaining_key = self.hash
        self._cipher: AESGCM | None = None
        self._nonce = 0

    def copy(self) -> Self:
        """Another one that has come as far."""
        twin = object.__new__(type(self))
        twin.hash, twin._chaining_key = self.hash, self._chaining_key
        twin._cipher, twin._nonce = self._cipher, self._nonce
        return twin

    @property
    def overhead(self) -> int:
        """How many bytes longer a sealed text is now: none before there is a key."""
        return TAG_SIZE if self._cipher else 0

    def mix_hash(self, data: bytes) -> None:
        """Note what was said."""
        self.hash = _sha256(self.hash, data)

    def mix_key(self, secret: bytes) -> None:
        """Take a secret, and a new cipher from it."""
        self._chaining_key, key = self._derive(secret, 2)
        self._take_key(key)

    def mix_key_and_hash(self, secret: bytes) -> None:
        """Take a secret that was shared beforehand, and a new cipher from it."""
        self._chaining_key, noted, key = self._derive(secret, 3)
        self.mix_hash(noted)
        self._take_key(key)

    def encrypt_and_hash(self, plaintext: bytes) -> bytes:
        """Seal a text; in the clear as long as there is no key."""
        ciphertext = plaintext
        if self._cipher is not None:
            ciphertext = self._cipher.encrypt(self._next_nonce(), plaintext, self.hash)
        self.mix_hash(ciphertext)
        return ciphertext

    def decrypt_and_hash(self, ciphertext: bytes) -> bytes:
        """Open a text; raises ``RemoteError`` when it, or anything before it, was altered."""
        plaintext = ciphertext
        if self._cipher is not None:
            try:
                plaintext = self._cipher.decrypt(self._next_nonce(), ciphertext, self.hash)
            except InvalidTag as error:
                raise RemoteError("a handshake message that is not authentic") from error
        self.mix_hash(ciphertext)
        return plaintext

    def split(self) -> tuple[bytes, bytes]:
        """The keys for all that follows: from the initiator, and to it."""
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
