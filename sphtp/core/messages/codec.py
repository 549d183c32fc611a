"""What a channel wants of whatever turns messages into bytes; and the plain one."""

from typing import Any, Protocol

import msgpack

from sphtp.core.messages.compression import Compression
from sphtp.core.schema import Schema
from sphtp.errors import WireError, untrusted

# A byte that msgpack never uses.
_DEFLATED = b"\xc1"


class MessageCodec(Protocol):
    """Turns messages into bytes and back; ``MessageFactory`` and ``PlainMessages`` do."""

    @property
    def schema_hash(self) -> int:
        """64 bits that stand for ``describe``; 0 when that says nothing."""

    def describe(self) -> list[str]:
        """Say, sorted and in one line each, what both peers must have alike."""

    def encode(self, value: Any, *, compress: bool | None = None) -> bytes:
        """Return the message's bytes; raises ``WireError`` when it does not fit."""

    def decode_untrusted(self, data: bytes) -> Any:
        """Return the message; raises ``RemoteError`` when these bytes are none."""


class PlainMessages:
    """Messages that are whatever msgpack carries: None, booleans, numbers, text, bytes, and
    lists and dicts of them.
    """

    def __init__(self, *, compression: Compression | None = None) -> None:
        self._compression = compression
        self.schema_hash = Schema(self.describe()).schema_hash

    def describe(self) -> list[str]:
        """Say what both peers must have alike: compression, if any."""
        return [self._compression.describe()] if self._compression else []

    def encode(self, value: Any, *, compress: bool | None = None) -> bytes:
        """Return the message's bytes.

        Raises:
            WireError: msgpack cannot carry the value.
        """
        data = to_msgpack(value)
        if self._compression is not None:
            deflated = self._compression.deflate(data, compress)
            return data if deflated is None else _DEFLATED + deflated
        return data

    @untrusted
    def decode_untrusted(self, data: bytes) -> Any:
        """Return the message.

        Raises:
            RemoteError: these bytes are not msgpack, or inflate to too many.
        """
        if self._compression is not None and data[:1] == _DEFLATED:
            data = self._compression.inflate_untrusted(data[1:])
        return from_msgpack(data)


def to_msgpack(value: Any) -> bytes:
    """Return a value as msgpack.

    Raises:
        WireError: msgpack cannot carry it.
    """
    try:
        data: bytes = msgpack.packb(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"msgpack cannot carry it: {error}") from error
    return data


def from_msgpack(data: bytes) -> Any:
    """Return the value that msgpack bytes stand for.

    Raises:
        WireError: they are not msgpack.
    """
    try:
        return msgpack.unpackb(data, strict_map_key=False)
    except Exception as error:
        # msgpack has many ways to fail: a key that cannot be hashed is a TypeError.
        raise WireError(f"not msgpack: {type(error).__name__}: {error}") from error
