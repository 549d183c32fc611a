"""The encoding of a channel's messages before they leave, and their decoding on arrival."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from sphtp.core.packing import NO_LIMIT, PLAIN, Parts
from sphtp.errors import LocalError

if TYPE_CHECKING:
    # Programs without types of messages do not load this module.
    from sphtp.core.messages import MessageCodec


WORTH_A_VIEW: Final = 16 * 1024
"""The bytes of a message from which a copy costs more than to watch when a view of it is gone."""


class Encoding(Protocol):
    """The interface of encodings, which turn messages into payloads and back."""

    @property
    def most_at_once(self) -> int:
        """The most payloads to decode at a time, to bound the memory of their messages."""

    def encode(self, value: Any, compress: bool | None) -> bytes:
        """Return the payload of a message.

        Raises ``TypeError`` or ``OverflowError`` (a value that msgpack cannot encode),
        ``WireError`` (with a codec) or ``MessageTooLargeError`` if it cannot be encoded. If
        ``compress`` is true and there is no compression, raises ``StateError`` without a codec, and
        ``WireError`` with one. Encodings of bytes ignore ``compress``.
        """

    def encode_many(self, values: Iterable[Any], compress: bool | None) -> list[bytes]:
        """Return the payloads of messages; raises as ``encode``."""

    def encode_parts(self, value: Any, compress: bool | None) -> Parts:
        """Return the payload of a message in parts, which the caller copies once.

        Raises as ``encode``.
        """

    def decode_many_untrusted(self, payloads: Sequence[bytes]) -> list[Any]:
        """Return the messages, without those that are malformed."""

    def decode_shared_untrusted(self, payload: memoryview, *, is_copied: bool) -> list[Any]:
        """Return a list with the message, or an empty one if it is malformed.

        The sender may change the memory of ``payload`` meanwhile. Unless ``is_copied``, a message
        that is an array is a view of this memory.
        """


class Typed:
    """The encoding of messages by a codec.

    Encoding raises ``WireError`` for a message that the codec cannot encode, and
    ``MessageTooLargeError`` for one with too many values.
    """

    def __init__(self, codec: "MessageCodec") -> None:
        self._codec = codec
        compression = codec.compression
        self.most_at_once = compression.most_at_once if compression else NO_LIMIT
        self.decode_many_untrusted = codec.decode_many_untrusted

    def encode(self, value: Any, compress: bool | None) -> bytes:
        """Return the payload of a message."""
        return self._codec.encode(value, compress=compress)

    def encode_many(self, values: Iterable[Any], compress: bool | None) -> list[bytes]:
        """Return the payloads of messages."""
        return self._codec.encode_many(values, compress=compress)

    def encode_parts(self, value: Any, compress: bool | None) -> Parts:
        """Return the payload of a message as a single part."""
        return Parts(self._codec.encode(value, compress=compress))

    def decode_shared_untrusted(self, payload: memoryview, *, is_copied: bool) -> list[Any]:
        """Decode a copy of the payload, since the codec reads a payload more than once."""
        del is_copied
        return self.decode_many_untrusted((bytes(payload),))


class RawEncoding:
    """The encoding of a service whose messages are bytes."""

    most_at_once = NO_LIMIT

    def encode(self, value: Any, compress: bool | None) -> bytes:
        """Return the bytes as they are."""
        payload: bytes = value
        return payload

    def encode_many(self, values: Iterable[Any], compress: bool | None) -> list[bytes]:
        """Return the bytes as they are."""
        return list(values)

    def decode_many_untrusted(self, payloads: Sequence[bytes]) -> list[Any]:
        """Return the bytes as they are."""
        return list(payloads)

    def encode_parts(self, value: Any, compress: bool | None) -> Parts:
        """Return the bytes as they are."""
        return Parts(value)

    def decode_shared_untrusted(self, payload: memoryview, *, is_copied: bool) -> list[Any]:
        """Return a copy of the bytes, because a reader reads them more than once."""
        del is_copied
        return [bytes(payload)]


class HeldEncoding(RawEncoding):
    """The encoding of a service whose messages are bytes or parts, and which never changes them.

    A large message that comes by shared memory is a view of it. The sender cannot reuse the memory
    while the view exists. With ``is_copied``, a message of less than ``WORTH_A_VIEW`` bytes is
    copied.
    """

    def encode(self, value: Any, compress: bool | None) -> bytes:
        """Return the bytes as they are, and parts as bytes."""
        payload: bytes = value.join() if type(value) is Parts else value
        return payload

    def encode_parts(self, value: Any, compress: bool | None) -> Parts:
        """Return the parts as they are, and bytes as one."""
        return value if type(value) is Parts else Parts(value)

    def decode_shared_untrusted(self, payload: memoryview, *, is_copied: bool) -> list[Any]:
        """Return a list with the memory itself, which the peer may still change, or a copy."""
        return [bytes(payload) if is_copied and len(payload) < WORTH_A_VIEW else payload]


RAW = RawEncoding()
HELD = HeldEncoding()


def check_limit(limit: int) -> None:
    """Raise ``LocalError`` for a limit at which a reader would never get a message."""
    if limit < 1:
        raise LocalError(f"limit is {limit}; allowed is 1 or more")


def encoding_for(messages: "MessageCodec | None") -> Encoding:
    """Return the encoding for messages of these types, or of any value for None."""
    return PLAIN if messages is None else Typed(messages)
