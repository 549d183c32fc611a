"""Message codecs: the interface that channels use, the codec of plain msgpack, and compression.

Single messages are compressed. The inflated size of a message has a bound.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sphtp.core.packing import MAX_DEPTH, MAX_ELEMENTS, Packing
from sphtp.core.schema import Schema
from sphtp.errors import RemoteError, SettingsError, WireError, untrusted

# Raw deflate, without a checksum: datagrams have their own.
_RAW = -zlib.MAX_WBITS

ROOM = 4 << 20
"""Bytes to which a batch may inflate in all, unless a single message is larger."""


@dataclass(frozen=True, slots=True)
class Compression:
    """The sizes at which messages are deflated, and the limit of inflated ones.

    Peers must agree that there is compression, and on ``max_size``; it is part of the description
    that they compare.
    """

    threshold: int = 512
    """Messages of fewer bytes are not deflated, unless the caller asks for it."""

    max_size: int = 1 << 20
    """The most bytes of an inflated message; a larger one is sent as it is."""

    level: int = 1
    """The level of zlib: 1 (fast) to 9 (small)."""

    def __post_init__(self) -> None:
        if self.threshold < 0:
            raise SettingsError(f"threshold is {self.threshold}, and must be at least 0")
        if self.max_size < 1:
            raise SettingsError(f"max_size is {self.max_size}, and must be at least 1")
        if not 1 <= self.level <= 9:
            raise SettingsError(f"level is {self.level}, and must be 1 to 9")

    @property
    def most_at_once(self) -> int:
        """The most messages to inflate before they are delivered."""
        return max(1, ROOM // self.max_size)

    def deflate(self, data: bytes, compress: bool | None) -> bytes | None:
        """Return the bytes deflated; None if they are to be sent as they are.

        Args:
            data: the message.
            compress: True tries whatever the size, False never; None tries from ``threshold`` on.
        """
        wanted = len(data) >= self.threshold if compress is None else compress
        if not wanted or len(data) > self.max_size:
            return None
        deflating = zlib.compressobj(self.level, zlib.DEFLATED, _RAW)
        deflated = deflating.compress(data) + deflating.flush()
        return deflated if len(deflated) + 1 < len(data) else None

    @untrusted
    def inflate_untrusted(self, data: bytes) -> bytes:
        """Undo ``deflate``, without ever inflating more than ``max_size`` bytes and one.

        Raises:
            RemoteError: the bytes are not deflated, or inflate to too many bytes.
        """
        inflating = zlib.decompressobj(_RAW)
        try:
            inflated = inflating.decompress(data, self.max_size + 1)
        except zlib.error as error:
            raise WireError(f"not deflated: {error}") from error
        if len(inflated) > self.max_size:
            raise WireError(f"inflates to more than {self.max_size} bytes")
        if not inflating.eof or inflating.unused_data or inflating.unconsumed_tail:
            raise WireError("deflated data that ends too early, or too late")
        return inflated

    def describe(self) -> str:
        """Return a line with the settings that must be equal on both sides."""
        return f"(compression): deflate, at most {self.max_size} bytes"


# A byte that msgpack never uses.
_DEFLATED = b"\xc1"


class MessageCodec(Protocol):
    """The interface of ``MessageFactory`` and ``PlainMessages``: messages to bytes and back."""

    @property
    def schema_hash(self) -> int:
        """A hash of ``describe``, 64 bits; 0 if that is empty."""

    def describe(self) -> list[str]:
        """Return sorted lines that must be equal on both sides."""

    @property
    def compression(self) -> Compression | None:
        """The sizes at which messages are deflated and inflated; None if they are not."""

    def encode(self, value: Any, *, compress: bool | None = None) -> bytes:
        """Return the message's bytes; raise ``WireError`` if it does not fit."""

    def encode_many(self, values: Iterable[Any], *, compress: bool | None = None) -> list[bytes]:
        """Return the bytes of each message; raise ``WireError`` if one does not fit."""

    def decode_untrusted(self, data: bytes) -> Any:
        """Return the message; raise ``RemoteError`` if the bytes are invalid."""

    def decode_many_untrusted(self, payloads: Sequence[bytes]) -> list[Any]:
        """Return the messages, without the invalid ones."""


class PlainMessages:
    """Messages without types: any value that msgpack carries.

    These are None, booleans, numbers, text, bytes, NumPy arrays, and lists and dicts of them.

    Args:
        compression: whether single messages may be deflated.
        max_elements: values of a message; a list counts as one, and so does each of its members.
        max_depth: lists and dicts that are nested; at most 128.

    Raises:
        SettingsError: a bound is out of range.
    """

    def __init__(
        self,
        *,
        compression: Compression | None = None,
        max_elements: int = MAX_ELEMENTS,
        max_depth: int = MAX_DEPTH,
    ) -> None:
        self.compression = compression
        self._packing = Packing(max_elements, max_depth)
        self.schema_hash = Schema(self.describe()).schema_hash

    def describe(self) -> list[str]:
        """Return lines that must be equal on both sides: changed limits, and compression."""
        lines = self._packing.describe()
        return [*lines, self.compression.describe()] if self.compression else lines

    def encode(self, value: Any, *, compress: bool | None = None) -> bytes:
        """Return the message's bytes.

        Raises:
            WireError: msgpack cannot carry the value.
            MessageTooLargeError: it has more values, or is nested deeper, than the peer accepts.
        """
        data = to_msgpack(self._packing, value)
        return deflate(self.compression, data, _DEFLATED, compress)

    def encode_many(self, values: Iterable[Any], *, compress: bool | None = None) -> list[bytes]:
        """Return the bytes of each; raises as ``encode``."""
        return [self.encode(value, compress=compress) for value in values]

    @untrusted
    def decode_untrusted(self, data: bytes) -> Any:
        """Return the message.

        Raises:
            RemoteError: the bytes are not msgpack, inflate to too many bytes, or encode a value
                out of bounds.
        """
        return from_msgpack(self._packing, inflate(self.compression, data, _DEFLATED))

    def decode_many_untrusted(self, payloads: Sequence[bytes]) -> list[Any]:
        """Return the messages, without the invalid ones."""
        # A deflated message is not msgpack, so that it is decoded singly.
        values = self._packing.unpack_many(payloads)
        return decode_each_untrusted(self, payloads) if values is None else values


def decode_each_untrusted(codec: MessageCodec, payloads: Iterable[bytes]) -> list[Any]:
    """Decode payloads one by one, and leave out the invalid ones."""
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
    """Return a message's bytes, deflated behind a mark if that makes them smaller.

    Raises:
        WireError: ``compress`` is True, and there is no compression.
    """
    if compression is None:
        if compress:
            raise WireError("these messages have no compression")
        return data
    deflated = compression.deflate(data, compress)
    return data if deflated is None else mark + deflated


def inflate(compression: Compression | None, data: bytes, mark: bytes) -> bytes:
    """Undo ``deflate``; raise ``RemoteError`` if that fails."""
    if compression is not None and data[:1] == mark:
        return compression.inflate_untrusted(data[1:])
    return data


def to_msgpack(packing: Packing, value: Any, prefix: bytes = b"") -> bytes:
    """Return a value as msgpack, behind ``prefix``.

    Raises:
        WireError: msgpack cannot carry it.
        MessageTooLargeError: the value has too many members, or is nested too deep.
    """
    try:
        return packing.pack(value, prefix)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"msgpack cannot carry it: {error}") from error


def from_msgpack(packing: Packing, data: bytes, start: int = 0) -> Any:
    """Return the value of msgpack bytes from ``start`` on.

    Raises:
        WireError: the bytes are not msgpack, or the value is out of bounds.
    """
    try:
        return packing.unpack(data, start)
    except Exception as error:
        # msgpack has many ways to fail: a key that cannot be hashed is a TypeError.
        raise WireError(f"not msgpack: {type(error).__name__}: {error}") from error
