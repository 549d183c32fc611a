"""What a channel wants of whatever turns messages into bytes; and the plain one."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from sphtp.core.messages.compression import Compression
from sphtp.core.packing import pack, unpack, unpack_many
from sphtp.core.schema import Schema
from sphtp.errors import RemoteError, WireError, untrusted

# A byte that msgpack never uses.
_DEFLATED = b"\xc1"


class MessageCodec(Protocol):
    """Turns messages into bytes and back; ``MessageFactory`` and ``PlainMessages`` do."""

    @property
    def schema_hash(self) -> int:
        """64 bits that stand for ``describe``; 0 when that says nothing."""

    def describe(self) -> list[str]:
        """Say, sorted and in one line each, what both peers must have alike."""

    @property
    def compression(self) -> Compression | None:
        """Whether messages may be deflated, and how far they inflate."""

    def encode(self, value: Any, *, compress: bool | None = None) -> bytes:
        """Return the message's bytes; raises ``WireError`` when it does not fit."""

    def encode_many(self, values: Iterable[Any], *, compress: bool | None = None) -> list[bytes]:
        """Return the bytes of each; raises ``WireError`` when one does not fit."""

    def decode_untrusted(self, data: bytes) -> Any:
        """Return the message; raises ``RemoteError`` when these bytes are none."""

    def decode_many_untrusted(self, payloads: Sequence[bytes]) -> list[Any]:
        """Return the messages, without those that are none."""


class PlainMessages:
    """Messages that are whatever msgpack carries: None, booleans, numbers, text, bytes, and
    lists and dicts of them.
    """

    def __init__(self, *, compression: Compression | None = None) -> None:
        self.compression = compression
        self.schema_hash = Schema(self.describe()).schema_hash

    def describe(self) -> list[str]:
        """Say what both peers must have alike: compression, if any."""
        return [self.compression.describe()] if self.compression else []

    def encode(self, value: Any, *, compress: bool | None = None) -> bytes:
        """Return the message's bytes.

        Raises:
            WireError: msgpack cannot carry the value.
        """
        return deflate(self.compression, to_msgpack(value), _DEFLATED, compress)

    def encode_many(self, values: Iterable[Any], *, compress: bool | None = None) -> list[bytes]:
        """Return the bytes of each; raises as ``encode``."""
        return [self.encode(value, compress=compress) for value in values]

    @untrusted
    def decode_untrusted(self, data: bytes) -> Any:
        """Return the message.

        Raises:
            RemoteError: these bytes are not msgpack, or inflate to too many.
        """
        return from_msgpack(inflate(self.compression, data, _DEFLATED))

    def decode_many_untrusted(self, payloads: Sequence[bytes]) -> list[Any]:
        """Return the messages, without those that are none."""
        # One that is deflated is no msgpack.
        values = unpack_many(payloads)
        return decode_each_untrusted(self, payloads) if values is None else values


def decode_each_untrusted(codec: MessageCodec, payloads: Iterable[bytes]) -> list[Any]:
    """Decode one by one, and leave out what is no message."""
    values = []
    for payload in payloads:
        try:
            values.append(codec.decode_untrusted(payload))
        except RemoteError:
            continue
    return values


def deflate(
    compression: Compression | None, data: bytes, mark: bytes, compress: bool | None
) -> bytes:
    """Return a message's bytes, deflated behind a mark where that makes them smaller.

    Raises:
        WireError: it shall be, and there is no compression.
    """
    if compression is None:
        if compress:
            raise WireError("these messages have no compression")
        return data
    deflated = compression.deflate(data, compress)
    return data if deflated is None else mark + deflated


def inflate(compression: Compression | None, data: bytes, mark: bytes) -> bytes:
    """Undo ``deflate``; raises ``RemoteError``."""
    if compression is not None and data[:1] == mark:
        return compression.inflate_untrusted(data[1:])
    return data


def to_msgpack(value: Any) -> bytes:
    """Return a value as msgpack.

    Raises:
        WireError: msgpack cannot carry it.
    """
    try:
        data: bytes = pack(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"msgpack cannot carry it: {error}") from error
    return data


def from_msgpack(data: bytes) -> Any:
    """Return the value that msgpack bytes stand for.

    Raises:
        WireError: they are not msgpack.
    """
    try:
        return unpack(data)
    except Exception as error:
        # msgpack has many ways to fail: a key that cannot be hashed is a TypeError.
        raise WireError(f"not msgpack: {type(error).__name__}: {error}") from error
