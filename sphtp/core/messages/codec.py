"""Message codecs: the interface that channels use, and the codec of plain msgpack."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from sphtp.core.messages.compression import Compression
from sphtp.core.packing import MAX_DEPTH, MAX_ELEMENTS, Packing
from sphtp.core.schema import Schema
from sphtp.errors import RemoteError, WireError, untrusted

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
