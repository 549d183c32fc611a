"""The messages of requests, and their codec. Each is one message of a channel.

REQUEST    kind u8, number u32, milliseconds u32, name (length u8, text), value
CANCEL     kind u8, number u32
REPLY      kind u8, number u32, value
ERROR      kind u8, number u32, reason u8, type (length u8, text), text (length u16, text), data
GOODBYE    kind u8

Each REQUEST gets exactly one REPLY or ERROR, also after a CANCEL, unless the channel ends. Each
side numbers its own requests. ``milliseconds`` is the time left for the answer when the request
leaves, rounded up; 0 stands for no limit. A value fills the rest of its message; it is encoded as
any other message of the program. Empty data means that the error has no data.

A message of more than ``SMALL`` bytes is sent in the second lane, so that small ones do not wait
for it. A CANCEL takes the lane of its REQUEST, so that it arrives behind it.
"""

from collections.abc import Callable
from enum import IntEnum
from math import ceil
from typing import Final, NamedTuple

from sphtp.core.printable import printable
from sphtp.core.wire import Reader, Writer, decode_by_kind_untrusted, decode_text, encode_by_kind
from sphtp.errors import RemoteError

SERVICE_LINE: Final = "sphtp.Requests: version 1"
"""The line of the schema that distinguishes channels for requests from others."""

SMALL: Final = 16_384
"""The size of a message, in bytes, above which it takes the second lane."""

LONGEST_TYPE: Final = 255
LONGEST_TEXT: Final = 1000
"""The most bytes of the type and of the text of an error; longer ones are cut."""

_LONGEST_TIME: Final = 2**32 - 1


class RequestKind(IntEnum):
    """The first byte of a message."""

    REQUEST = 1
    CANCEL = 2
    REPLY = 3
    ERROR = 4
    GOODBYE = 5


class ErrorReason(IntEnum):
    """The reason for an ERROR in place of a reply."""

    APPLICATION = 1
    """The handler raised a ``RequestError``; type, text and data are those of this error."""
    UNKNOWN = 2
    """The peer serves no such name. The request was not handled."""
    BUSY = 3
    """The peer handles as many requests as it may. The request was not handled."""
    CANCELLED = 4
    """The handler was cancelled, or the time left was over."""
    CRASHED = 5
    """The handler raised another error, whose text is not sent; or its result, or the data of its
    ``RequestError``, cannot be sent."""
    MALFORMED = 6
    """The value is not a valid message of the program. The request was not handled."""
    ENDED = 7
    """The peer stopped serving this name while the request was handled."""


class RequestMessage(NamedTuple):
    """REQUEST: a request of the sender."""

    number: int
    name: str
    value: bytes
    time_left: float | None = None
    """Seconds until the sender no longer needs the answer; None for no limit."""


class CancelMessage(NamedTuple):
    """CANCEL: the sender no longer needs the answer to its request."""

    number: int


class ReplyMessage(NamedTuple):
    """REPLY: the answer to a request."""

    number: int
    value: bytes


class ErrorMessage(NamedTuple):
    """ERROR: the answer to a request without a reply, with the reason."""

    number: int
    reason: ErrorReason
    type: str = ""
    text: str = ""
    data: bytes = b""


class GoodbyeMessage(NamedTuple):
    """GOODBYE: the sender sends no more requests on this channel."""


Message = RequestMessage | CancelMessage | ReplyMessage | ErrorMessage | GoodbyeMessage


def lane_for(size: int) -> int:
    """Return the lane of a message of ``size`` bytes."""
    return int(size > SMALL)


def encode_message(message: Message) -> bytes:
    """Encode a message. Raises ``WireError`` if a name is too long."""
    return encode_by_kind(message, _ENCODERS)


def decode_message_untrusted(data: bytes) -> Message:
    """Decode a message. Raises ``RemoteError`` if it is malformed."""
    return decode_by_kind_untrusted(data, _DECODERS, "requests")


def _encode_request(writer: Writer, message: RequestMessage) -> None:
    left = message.time_left
    # A deadline that has passed becomes 1, since 0 means no limit. A time that does not fit becomes
    # 0.
    milliseconds = 0 if left is None else max(1, ceil(min(left, _LONGEST_TIME) * 1000))
    writer.u32(message.number).u32(milliseconds if milliseconds <= _LONGEST_TIME else 0)
    writer.prefixed(message.name.encode(), Writer.u8).raw(message.value)


def _decode_request(reader: Reader) -> RequestMessage:
    number, milliseconds = reader.u32(), reader.u32()
    name = decode_text(reader.take(reader.u8()))
    left = milliseconds / 1000 if milliseconds else None
    return RequestMessage(number, name, reader.rest(), left)


def _encode_cancel(writer: Writer, message: CancelMessage) -> None:
    writer.u32(message.number)


def _decode_cancel(reader: Reader) -> CancelMessage:
    return CancelMessage(reader.u32())


def _encode_reply(writer: Writer, message: ReplyMessage) -> None:
    writer.u32(message.number).raw(message.value)


def _decode_reply(reader: Reader) -> ReplyMessage:
    return ReplyMessage(reader.u32(), reader.rest())


def _encode_error(writer: Writer, message: ErrorMessage) -> None:
    writer.u32(message.number).u8(message.reason)
    writer.prefixed(_cut(message.type, LONGEST_TYPE), Writer.u8)
    writer.prefixed(_cut(message.text, LONGEST_TEXT), Writer.u16).raw(message.data)


def _decode_error(reader: Reader) -> ErrorMessage:
    number, reason = reader.u32(), reader.u8()
    if reason not in _REASONS:
        raise RemoteError(f"{reason} is no reason of an error")
    kind, text = reader.take(reader.u8()), reader.take(reader.u16())
    return ErrorMessage(number, ErrorReason(reason), _text(kind), _text(text), reader.rest())


def _encode_goodbye(_writer: Writer, _message: GoodbyeMessage) -> None:
    """GOODBYE has no fields."""


def _decode_goodbye(_reader: Reader) -> GoodbyeMessage:
    return GoodbyeMessage()


def _cut(text: str, most: int) -> bytes:
    """Return the first bytes of a text, without half a character at the end."""
    return text.encode(errors="replace")[:most].decode(errors="ignore").encode()


def _text(data: bytes) -> str:
    return printable(data.decode(errors="replace"))


_REASONS: Final = frozenset(ErrorReason)

_ENCODERS: Final[dict[type, tuple[RequestKind, Callable[..., None]]]] = {
    RequestMessage: (RequestKind.REQUEST, _encode_request),
    CancelMessage: (RequestKind.CANCEL, _encode_cancel),
    ReplyMessage: (RequestKind.REPLY, _encode_reply),
    ErrorMessage: (RequestKind.ERROR, _encode_error),
    GoodbyeMessage: (RequestKind.GOODBYE, _encode_goodbye),
}

_DECODERS: Final[dict[int, Callable[[Reader], Message]]] = {
    RequestKind.REQUEST: _decode_request,
    RequestKind.CANCEL: _decode_cancel,
    RequestKind.REPLY: _decode_reply,
    RequestKind.ERROR: _decode_error,
    RequestKind.GOODBYE: _decode_goodbye,
}
