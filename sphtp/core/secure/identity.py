"""The identity of a node: an X25519 key pair (RFC 7748), and the text form of its keys."""

from base64 import b64decode, b64encode
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sphtp.core.entropy import Secrets
from sphtp.errors import LocalError, SettingsError

KEY_SIZE: Final = 32
"""Bytes of a key, private or public."""


class Identity:
    """A key pair; ``public`` is the public key, 32 bytes, by which others identify the node.

    Raises ``SettingsError`` if ``secret``, the private key, has not 32 bytes.
    """

    __slots__ = ("_private", "_secret", "public")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_SIZE:
            raise SettingsError(f"a private key of {len(secret)} bytes; allowed is {KEY_SIZE}")
        self._secret = secret
        self._private = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._private.public_key().public_bytes_raw()

    @classmethod
    def draw(cls, secrets: Secrets) -> Self:
        """Draw a new identity; the private key is as secret as ``secrets`` is unpredictable."""
        return cls(secrets.getrandbits(8 * KEY_SIZE).to_bytes(KEY_SIZE, "little"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of ``export``; raise ``SettingsError`` if it is invalid."""
        return cls(parse_key(text))

    def export(self) -> str:
        """Return the private key for ``parse``: 44 characters, which must stay secret."""
        return format_key(self._secret)

    def exchange(self, public: bytes) -> bytes:
        """Return the secret that this key pair shares with the owner of ``public``; 32 bytes.

        Raises ``LocalError`` for an invalid public key, such as one for which everybody can compute
        the secret.
        """
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:
            raise LocalError("no secret can be shared with this public key") from error

    def derive(self, purpose: bytes, size: int = KEY_SIZE) -> bytes:
        """Derive a secret for one purpose (HKDF, RFC 5869) that reveals nothing of the key."""
        return HKDF(SHA256(), size, salt=None, info=purpose).derive(self._secret)

    def __repr__(self) -> str:
        return f"Identity({format_key(self.public)})"


def format_key(key: bytes) -> str:
    """Return a key as text: base64, 44 characters."""
    return b64encode(key).decode()


def parse_key(text: str) -> bytes:
    """Parse the text of ``format_key``; raise ``SettingsError`` if it is invalid."""
    try:
        key = b64decode(text.strip(), validate=True)
    except ValueError as error:
        raise SettingsError("a key is 44 characters of base64") from error
    if len(key) != KEY_SIZE:
        raise SettingsError(f"a key of {len(key)} bytes; allowed is {KEY_SIZE}")
    return key
