"""Message codecs: the interface that channels use, the codec of plain msgpack, and compression.

Each message is compressed by itself. The size of an inflated message is limited.
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
"""The most bytes of inflated messages in one batch, unless a single message is larger."""


@dataclass(frozen=True, slots=True)
class Compression:
    """The settings of compression: messages from some size on are deflated (RFC 1951).

    Both peers need compression with the same ``max_size``, or none; the schemas that they compare
    contain this. Raises ``SettingsError`` for a setting that is out of range.
    """

    threshold: int = 512
    """Messages of fewer bytes are not deflated, unless the caller passes ``compress=True``."""

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
        """The most messages of one batch, so that they inflate to at most ``ROOM`` bytes."""
        return max(1, ROOM // self.max_size)

    def deflate(self, data: bytes, compress: bool | None) -> bytes | None:
        """Return the deflated bytes; None if the message has to be sent as it is.

        Args:
            data: the message.
            compress: True to try from the first byte on, False never to try; None to try from
                ``threshold`` on. Messages of more than ``max_size`` bytes are never deflated.
        """
        wanted = len(data) >= self.threshold if compress is None else compress
        if not wanted or len(data) > self.max_size:
            return None
        deflating = zlib.compressobj(self.level, zlib.DEFLATED, _RAW)
        deflated = deflating.compress(data) + deflating.flush()
        return deflated if len(deflated) + 1 < len(data) else None

    @untrusted
    def inflate_untrusted(self, data: bytes) -> bytes:
        """Return the inflated bytes; never inflate more than ``max_size`` bytes and one.

        Raises:
            RemoteError: the bytes are not deflated, end too early or too late, or inflate to too
                many bytes.
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
        """A hash of the lines of ``describe``, 64 bits; 0 if there are none."""

    def describe(self) -> list[str]:
        """Return sorted lines that must be equal on both sides."""

    @property
    def compression(self) -> Compression | None:
        """The settings of compression; None if messages are not deflated."""

    def encode(self, value: Any, *, compress: bool | None = None) -> bytes:
        """Return the bytes of a message.

        Raises ``WireError`` if it cannot be encoded, and ``MessageTooLargeError`` if it has too
        many values or is nested too deep.
        """

    def encode_many(self, values: Iterable[Any], *, compress: bool | None = None) -> list[bytes]:
        """Return the bytes of each message; raises as ``encode``."""

    def decode_untrusted(self, data: bytes) -> Any:
        """Return the message; raise ``RemoteError`` if the bytes are invalid."""

    def decode_many_untrusted(self, payloads: Sequence[bytes]) -> list[Any]:
        """Return the messages of the payloads, and drop invalid payloads."""


class PlainMessages:
    """The codec of messages without types: any value that msgpack can encode.

    These are None, booleans, numbers, text, bytes, NumPy arrays, ``Timestamp`` and ``ExtType`` of
    msgpack, except the code 78 of arrays, and lists and dicts of them. A tuple arrives as a list,
    and so cannot be the key of a dict. Integers have at most 64 bits.

    Args:
        compression: the settings of compression; None for no compression.
        max_elements: the most values of a message; a list and each of its members count as one
            each, as do a dict and each of its keys and values.
        max_depth: the deepest nesting of lists and dicts; at most 128.

    Raises:
        SettingsError: a limit is out of range.
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
        """Return sorted lines that must be equal on both sides: changed limits and compression."""
        lines = self._packing.describe()
        return [*lines, self.compression.describe()] if self.compression else lines

    def encode(self, value: Any, *, compress: bool | None = None) -> bytes:
        """Return the bytes of a message.

        Raises:
            WireError: msgpack cannot encode the value, or ``compress`` is True without compression.
            MessageTooLargeError: the message has more values, or is nested deeper, than the peer
                accepts.
        """
        data = to_msgpack(self._packing, value)
        return deflate(self.compression, data, _DEFLATED, compress)

    def encode_many(self, values: Iterable[Any], *, compress: bool | None = None) -> list[bytes]:
        """Return the bytes of each message; raises as ``encode``."""
        return [self.encode(value, compress=compress) for value in values]

    @untrusted
    def decode_untrusted(self, data: bytes) -> Any:
        """Return the message.

        Raises:
            RemoteError: the bytes are not msgpack, inflate to too many bytes, or encode a value
                beyond the limits.
        """
        return from_msgpack(self._packing, inflate(self.compression, data, _DEFLATED))

    def decode_many_untrusted(self, payloads: Sequence[bytes]) -> list[Any]:
        """Return the messages of the payloads, and drop invalid payloads."""
        # A deflated message is not msgpack. If there is one, the payloads are decoded one by one.
        values = self._packing.unpack_many(payloads)
        return decode_each_untrusted(self, payloads) if values is None else values


def decode_each_untrusted(codec: MessageCodec, payloads: Iterable[bytes]) -> list[Any]:
    """Decode payloads one by one, and drop invalid ones."""
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
    """Return the bytes of a message; deflated behind ``mark`` if they are then fewer.

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
    """Return the bytes that ``deflate`` got; raise ``RemoteError`` if they cannot be inflated."""
    if compression is not None and data[:1] == mark:
        return compression.inflate_untrusted(data[1:])
    return data


def to_msgpack(packing: Packing, value: Any, prefix: bytes = b"") -> bytes:
    """Return a value as msgpack, behind ``prefix``.

    Raises:
        WireError: msgpack cannot encode the value.
        MessageTooLargeError: the value has too many values in it, or is nested too deep.
    """
    try:
        return packing.pack(value, prefix)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"msgpack cannot carry it: {error}") from error


def from_msgpack(packing: Packing, data: bytes, start: int = 0) -> Any:
    """Return the value that msgpack bytes from ``start`` on encode.

    Raises:
        WireError: the bytes are not msgpack, or the value is beyond the limits.
    """
    try:
        return packing.unpack(data, start)
    except Exception as error:
        # msgpack raises many types of error: a key that cannot be hashed is a TypeError.
        raise WireError(f"not msgpack: {type(error).__name__}: {error}") from error
