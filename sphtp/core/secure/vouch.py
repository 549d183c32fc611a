"""Message authentication codes of control messages: members of a cluster prove its secret.

The *mark* is the last parameter of a message, so that the whole stays a normal message. It has the
number that its sender drew when it started (``boot``), the number of the message since then, and a
code over the whole message (HMAC, RFC 2104, cut to 16 bytes).
"""

import hmac
import struct
from enum import Enum
from typing import Final

from sphtp.core.timers import ExpiringDict
from sphtp.errors import MessageTooLargeError, SettingsError

SECRET_SIZE: Final = 32
"""Bytes of a cluster's secret."""

VOUCHER: Final = 0x15
"""The data id of the parameter that carries the mark."""

SPEAKERS_KEPT: Final = 32768
"""The number of senders, by id and boot, whose last message number is remembered."""

MAX_MESSAGE: Final = 65536

_MARK: Final = struct.Struct("<HHQQ")
_CODE_SIZE: Final = 16
_HEAD: Final = struct.pack("<HH", VOUCHER, _MARK.size - 4 + _CODE_SIZE)
_SENDER: Final = slice(4, 8)
_HEADER_SIZE: Final = 10
_PURPOSE: Final = b"SphTP control messages"

MARK_SIZE: Final = _MARK.size + _CODE_SIZE
"""Bytes that the mark adds to a message."""


class Authenticity(Enum):
    """The result of checking a mark."""

    GENUINE = "the mark is valid, and the message is new"
    UNVOUCHED = "there is no mark, or it is wrong"
    REPLAYED = "the message or a later one arrived before, or this side sent it"


def require_secret(secret: bytes) -> None:
    """Raise ``SettingsError`` for a secret of another size."""
    if len(secret) != SECRET_SIZE:
        raise SettingsError(f"a cluster's secret of {len(secret)} bytes; allowed: {SECRET_SIZE}")


class Voucher:
    """The MACs of one process: they mark its messages, and check the marks of others.

    ``boot`` is 64 random bits, drawn when the process starts. Raises ``SettingsError`` for a secret
    of another size.
    """

    __slots__ = ("_boot", "_count", "_counts", "_key")

    def __init__(self, secret: bytes, boot: int) -> None:
        require_secret(secret)
        self._key = hmac.digest(secret, _PURPOSE, "sha256")
        self._boot = boot
        self._count = 0
        self._counts = ExpiringDict[bytes, int](SPEAKERS_KEPT)

    def vouch(self, message: bytes) -> bytes:
        """Return the message with the next mark.

        Raises ``MessageTooLargeError`` if both together are larger than ``MAX_MESSAGE``.
        """
        if len(message) + MARK_SIZE > MAX_MESSAGE:
            raise MessageTooLargeError(
                f"a message of {len(message)} bytes; with a secret, at most "
                f"{MAX_MESSAGE - MARK_SIZE} fit"
            )
        self._count += 1
        marked = message + _HEAD + struct.pack("<QQ", self._boot, self._count)
        return marked + self._code(marked)

    def judge(self, message: bytes) -> Authenticity:
        """Check the mark of a message. The same message a second time is REPLAYED, and so is one
        that arrives after a later one of its sender.
        """
        if not is_marked(message):
            return Authenticity.UNVOUCHED
        body, code = message[:-_CODE_SIZE], message[-_CODE_SIZE:]
        if not hmac.compare_digest(self._code(body), code):
            return Authenticity.UNVOUCHED
        _, _, boot, count = _MARK.unpack(body[-_MARK.size :])
        if boot == self._boot:
            # An attacker without the secret may send this side's own messages back to it.
            return Authenticity.REPLAYED
        speaker = message[_SENDER] + boot.to_bytes(8, "little")
        # All messages of a sender take the same connection, so that none is overtaken.
        if count <= (self._counts.get(speaker) or 0):
            return Authenticity.REPLAYED
        self._counts.put(speaker, count)
        return Authenticity.GENUINE

    def _code(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")[:_CODE_SIZE]


def is_marked(message: bytes) -> bool:
    """Return True if a message carries a mark, valid or not."""
    has_room = len(message) >= _HEADER_SIZE + MARK_SIZE
    return has_room and message.startswith(_HEAD, len(message) - MARK_SIZE)


def strip(message: bytes) -> bytes:
    """Return a marked message without its mark."""
    return message[:-MARK_SIZE]
