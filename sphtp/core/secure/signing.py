"""Signatures of servers, which distinguish a server from other processes with the secret.

A MAC with a shared secret proves that some member sent a message. All members can make it, so it
does not prove that a server sent the message. So a server can sign its messages with a key of its
own (Ed25519, RFC 8032). A receiver has that key, or the key of the cluster, which certifies
the keys of servers. The cluster's key has no other use, and need not be on any running machine.

The mark is a parameter at the end of a message, before that of the secret. It has the key, the
certificate, the number that the server drew when it started (``boot``), the number of the message
since then, and the signature of all bytes before the signature. So a receiver can check each
message by itself, even if others were lost. A signature takes 0.1 ms to make and 0.2 ms to check. A
server signs its batches and heartbeats, a few per second; the far more numerous messages of clients
need no signature.
"""

from base64 import b64decode, b64encode
from collections.abc import Collection
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sphtp.core.entropy import Secrets
from sphtp.core.secure.identity import KEY_SIZE, format_key
from sphtp.core.secure.vouch import MARK_SIZE, MAX_MESSAGE, SPEAKERS_KEPT
from sphtp.core.timers import ExpiringDict
from sphtp.errors import MessageTooLargeError, SettingsError

SIGNATURE: Final = 0x18
"""The data id of the parameter that carries the mark."""

SIGNATURE_SIZE: Final = 64

CERTIFIED: Final = b"SphTP key of a server\0"
TO_CLIENTS: Final = b"SphTP server to clients\0"
TO_SERVERS: Final = b"SphTP server to servers\0"
"""Prefixes of the signed bytes, so that a signature is valid for one purpose only."""

KEYS_KEPT: Final = 1024
"""The number of server keys that are remembered, so that their certificates are checked once."""

MAX_FAILURES: Final = 16
"""Wrong signatures of one connection after which its further ones count as wrong, unchecked."""
CONNECTIONS_KEPT: Final = 4096
"""The number of connections whose wrong signatures are counted."""

_MARK: Final = Struct(f"<HH{KEY_SIZE}s{KEY_SIZE}s{SIGNATURE_SIZE}sQQ")
SEAL_SIZE: Final = _MARK.size + SIGNATURE_SIZE
"""Bytes that signing adds to a message."""

_HEAD: Final = Struct("<HH").pack(SIGNATURE, SEAL_SIZE - 4)
_HEADER_SIZE: Final = 10


class Certificate(NamedTuple):
    """A cluster's certificate for the key of a server."""

    cluster: bytes
    """The cluster's public key."""
    signature: bytes

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of ``export``; raise ``SettingsError`` if it is invalid."""
        try:
            data = b64decode(text.strip(), validate=True)
        except ValueError as error:
            raise SettingsError("a certificate is 128 characters of base64") from error
        if len(data) != KEY_SIZE + SIGNATURE_SIZE:
            raise SettingsError(
                f"a certificate of {len(data)} bytes; allowed is {KEY_SIZE + SIGNATURE_SIZE}"
            )
        return cls(data[:KEY_SIZE], data[KEY_SIZE:])

    def export(self) -> str:
        """Return the certificate as text: 128 characters, not secret."""
        return b64encode(self.cluster + self.signature).decode()


NOBODY: Final = Certificate(bytes(KEY_SIZE), bytes(SIGNATURE_SIZE))
"""The certificate on the wire for a key without one: zeros."""


class _SigningKey:
    """An Ed25519 key pair; ``public`` is the public key, 32 bytes."""

    __slots__ = ("_private", "_secret", "public")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_SIZE:
            raise SettingsError(f"a private key of {len(secret)} bytes; allowed is {KEY_SIZE}")
        self._secret = secret
        self._private = Ed25519PrivateKey.from_private_bytes(secret)
        self.public = self._private.public_key().public_bytes_raw()

    @classmethod
    def draw(cls, secrets: Secrets) -> Self:
        """Draw a new key pair."""
        return cls(secrets.getrandbits(8 * KEY_SIZE).to_bytes(KEY_SIZE, "little"))

    def export(self) -> str:
        """Return the private key as text: 44 characters, which must stay secret."""
        return format_key(self._secret)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({format_key(self.public)})"


class ClusterKey(_SigningKey):
    """The key that certifies the keys of a cluster's servers.

    Raises ``SettingsError`` if ``secret``, the private key, has not 32 bytes.
    """

    __slots__ = ()

    def certify(self, server: bytes) -> Certificate:
        """Return a certificate for a server's public key. It cannot be revoked."""
        return Certificate(self.public, self._private.sign(CERTIFIED + server))


class ServerKey(_SigningKey):
    """The key with which a server signs its messages, with the key's certificate if it has one.

    Raises ``SettingsError`` if ``secret``, the private key, has not 32 bytes, or if the certificate
    is of another key.
    """

    __slots__ = ("certificate",)

    def __init__(self, secret: bytes, certificate: Certificate | None = None) -> None:
        super().__init__(secret)
        self.certificate = certificate
        if certificate is not None and not _is_certified(self.public, certificate):
            raise SettingsError("the certificate is of another server's key")

    def certified(self, cluster: ClusterKey) -> "ServerKey":
        """Return the same key with a certificate of a cluster."""
        return ServerKey(self._secret, cluster.certify(self.public))

    def sign(self, data: bytes) -> bytes:
        """Return the signature of ``data``, 64 bytes."""
        return self._private.sign(data)


class Signer:
    """The signer of one server's messages to one audience.

    ``boot`` is 64 random bits, drawn when the process starts. ``purpose`` is TO_CLIENTS or
    TO_SERVERS.
    """

    __slots__ = ("_boot", "_count", "_key", "_purpose")

    def __init__(self, key: ServerKey, boot: int, purpose: bytes) -> None:
        self._key = key
        self._boot = boot
        self._purpose = purpose
        self._count = 0

    def sign(self, message: bytes) -> bytes:
        """Return the message with the next mark.

        Raises ``MessageTooLargeError`` if the message, this mark and that of the secret are larger
        than ``MAX_MESSAGE``.
        """
        # A server may have a secret, too; the bound is the same with and without.
        if len(message) + SEAL_SIZE + MARK_SIZE > MAX_MESSAGE:
            raise MessageTooLargeError(
                f"a message of {len(message)} bytes; with a key that signs, at most "
                f"{MAX_MESSAGE - SEAL_SIZE - MARK_SIZE} fit"
            )
        self._count += 1
        key = self._key
        cluster, certificate = key.certificate or NOBODY
        mark = _MARK.pack(
            SIGNATURE, SEAL_SIZE - 4, key.public, cluster, certificate, self._boot, self._count
        )
        return message + mark + key.sign(self._purpose + message + mark)


class SignatureStatus(Enum):
    """The result of checking a signature."""

    GENUINE = "the signature is valid, and the message is new"
    UNSIGNED = "there is no signature, it is wrong, or its connection sent too many wrong ones"
    UNKNOWN = "the signing key is neither trusted nor certified by a trusted key"
    REPLAYED = "the signed message or a later one arrived before"


class SignatureVerdict(NamedTuple):
    """The result of checking a signature.

    ``key`` and ``boot`` identify the signer. ``cluster`` is the key in the certificate, zeros for
    none. All three are empty or 0 if there is no signature.
    """

    verdict: SignatureStatus
    key: bytes = b""
    boot: int = 0
    cluster: bytes = b""


class Verifier:
    """A verifier of servers' signatures for one audience, ``purpose``: TO_CLIENTS or TO_SERVERS.

    ``trusted`` are public keys of servers, or of clusters that certify servers. Raises
    ``SettingsError`` for a key that has not 32 bytes.
    """

    __slots__ = ("_counts", "_failures", "_purpose", "_servers", "_trusted")

    def __init__(self, trusted: Collection[bytes], purpose: bytes) -> None:
        if wrong := [key for key in trusted if len(key) != KEY_SIZE]:
            raise SettingsError(f"a public key of {len(wrong[0])} bytes; allowed is {KEY_SIZE}")
        self._trusted = frozenset(trusted)
        self._purpose = purpose
        self._servers = ExpiringDict[bytes, Ed25519PublicKey](KEYS_KEPT)
        self._counts = ExpiringDict[tuple[bytes, int], int](SPEAKERS_KEPT)
        self._failures = ExpiringDict[int, int](CONNECTIONS_KEPT)

    def judge(self, message: bytes, pipe: int) -> SignatureVerdict:
        """Check the signature of a message. The same message a second time is REPLAYED, and so is
        one that arrives after a later one of its server.

        ``pipe`` is the number of the connection through which it came.
        """
        if not is_signed(message):
            return SignatureVerdict(SignatureStatus.UNSIGNED)
        signed, signature = message[:-SIGNATURE_SIZE], message[-SIGNATURE_SIZE:]
        _, _, key, cluster, certificate, boot, count = _MARK.unpack(signed[-_MARK.size :])
        if (self._failures.get(pipe) or 0) >= MAX_FAILURES:
            return SignatureVerdict(SignatureStatus.UNSIGNED, key, boot, cluster)
        server = self._server(key, Certificate(cluster, certificate), pipe)
        if server is None:
            return SignatureVerdict(SignatureStatus.UNKNOWN, key, boot, cluster)
        # All messages of a server to one receiver take one connection: none is overtaken.
        if count <= (self._counts.get((key, boot)) or 0):
            return SignatureVerdict(SignatureStatus.REPLAYED, key, boot, cluster)
        if not _is_signature(server, signature, self._purpose + signed):
            self._fail(pipe)
            return SignatureVerdict(SignatureStatus.UNSIGNED, key, boot, cluster)
        self._counts.put((key, boot), count)
        return SignatureVerdict(SignatureStatus.GENUINE, key, boot, cluster)

    def _server(self, key: bytes, certificate: Certificate, pipe: int) -> Ed25519PublicKey | None:
        known = self._servers.get(key)
        if known is not None:
            return known
        if key not in self._trusted:
            if certificate.cluster not in self._trusted:
                return None
            if not _is_certified(key, certificate):
                self._fail(pipe)
                return None
        server = _public_key(key)
        if server is not None:
            self._servers.put(key, server)
        return server

    def _fail(self, pipe: int) -> None:
        self._failures.put(pipe, (self._failures.get(pipe) or 0) + 1)


def is_signed(message: bytes) -> bool:
    """Return True if a message carries a signature, valid or not."""
    has_room = len(message) >= _HEADER_SIZE + SEAL_SIZE
    return has_room and message.startswith(_HEAD, len(message) - SEAL_SIZE)


def strip_signature(message: bytes) -> bytes:
    """Return a signed message without its signature."""
    return message[:-SEAL_SIZE]


def _is_certified(server: bytes, certificate: Certificate) -> bool:
    cluster = _public_key(certificate.cluster)
    return cluster is not None and _is_signature(cluster, certificate.signature, CERTIFIED + server)


def _is_signature(key: Ed25519PublicKey, signature: bytes, data: bytes) -> bool:
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True


def _public_key(key: bytes) -> Ed25519PublicKey | None:
    try:
        return Ed25519PublicKey.from_public_bytes(key)
    except ValueError:
        return None
