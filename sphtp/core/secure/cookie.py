"""Cookies, by which a caller proves that it receives at its address, without any stored state.

A cookie is a keyed MAC over the address and attempt; this side computes it again when it returns.
"""

from typing import Final

from cryptography.hazmat.primitives.constant_time import bytes_eq
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from sphtp.core.entropy import Secrets
from sphtp.errors import SettingsError

COOKIE_SIZE: Final = 16
"""Bytes of a cookie."""
SECRET_SIZE: Final = 32
# One secret for the present lifetime, and one for the last.
SECRETS: Final = 2


class CookieJar:
    """A maker of cookies that also checks them, with two secrets for any number of callers.

    A cookie is valid for at least ``lifetime`` seconds, and for at most twice as long. Raises
    ``SettingsError`` unless that is positive.
    """

    __slots__ = ("_lifetime", "_number", "_secrets", "_source")

    def __init__(self, secrets: Secrets, lifetime: float = 60.0) -> None:
        if not lifetime > 0:
            raise SettingsError(f"a cookie's lifetime of {lifetime} s; it must be positive")
        self._source = secrets
        self._lifetime = lifetime
        self._number = 0
        self._secrets = [self._draw() for _ in range(SECRETS)]

    def make(self, now: float, *what: bytes) -> bytes:
        """Return the cookie for ``what``, 16 bytes."""
        self._rotate(now)
        return _mac(self._secrets[0], what)

    def is_good(self, now: float, cookie: bytes, *what: bytes) -> bool:
        """Return True if ``make`` made the cookie for ``what`` in this or the last lifetime."""
        self._rotate(now)
        matches = [bytes_eq(_mac(secret, what), cookie) for secret in self._secrets]
        return any(matches)

    def _rotate(self, now: float) -> None:
        number = int(now // self._lifetime)
        for _ in range(min(number - self._number, SECRETS)):
            self._secrets = [self._draw(), *self._secrets[:-1]]
        self._number = max(number, self._number)

    def _draw(self) -> bytes:
        return self._source.getrandbits(8 * SECRET_SIZE).to_bytes(SECRET_SIZE, "little")


def _mac(secret: bytes, what: tuple[bytes, ...]) -> bytes:
    mac = HMAC(secret, SHA256())
    for part in what:
        # Each part has its length, so that no two sequences of parts give the same bytes.
        mac.update(len(part).to_bytes(4, "little") + part)
    return mac.finalize()[:COOKIE_SIZE]
