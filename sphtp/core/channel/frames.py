"""What a packet carries behind its header: a row of frames, each a kind byte and its fields."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from sphtp.core.wire import Reader, Writer
from sphtp.errors import RemoteError, untrusted

MAX_MESSAGES_PER_FRAME = 255
MAX_FRAGMENTS = 65_535
MAX_CLOSE_TEXT = 120

# What a frame costs beside its payloads.
MESSAGES_OVERHEAD = 4
UNRELIABLE_OVERHEAD = 2
LENGTH_OVERHEAD = 2
FRAGMENT_OVERHEAD = 9


class FrameKind(IntEnum):
    """The first byte of a frame."""

    MESSAGES = 1
    FRAGMENT = 2
    UNRELIABLE = 3
    PING = 4
    CLOSE = 5


@dataclass(frozen=True, slots=True)
class Messages:
    """Whole reliable messages with consecutive ids; ``first_id`` is cut to 16 bits."""

    first_id: int
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Fragment:
    """Part ``index`` of the ``count`` parts of one reliable message."""

    message_id: int
    index: int
    count: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Unreliable:
    """Messages that are sent once."""

    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for an ack and says nothing."""


@dataclass(frozen=True, slots=True)
class Close:
    """The last frame of a side that leaves: why, in one byte and in a few words."""

    reason: int
    text: str


Frame = Messages | Fragment | Unreliable | Ping | Close


def encode_frames(frames: Iterable[Frame]) -> bytes:
    """Encode frames one after the other."""
    writer = Writer()
    for frame in frames:
        ENCODERS[type(frame)](writer, frame)
    return writer.finish()


@untrusted
def decode_frames_untrusted(data: bytes | memoryview) -> list[Frame]:
    """Decode a packet's frames; raises ``RemoteError`` when any of them is not well formed."""
    reader = Reader(data)
    frames: list[Frame] = []
    while reader.remaining:
        kind = reader.u8()
        decode = DECODERS.get(kind)
        if decode is None:
            raise RemoteError(f"no frame is of kind {kind}")
        frames.append(decode(reader))
    return frames


def _write_messages(writer: Writer, frame: Messages) -> None:
    writer.u8(FrameKind.MESSAGES).u16(frame.first_id).u8(len(frame.payloads))
    _write_payloads(writer, frame.payloads)


def _read_messages(reader: Reader) -> Messages:
    first_id, count = reader.u16(), reader.u8()
    return Messages(first_id, _read_payloads(reader, count))


def _write_fragment(writer: Writer, frame: Fragment) -> None:
    writer.u8(FrameKind.FRAGMENT).u16(frame.message_id).u16(frame.index).u16(frame.count)
    writer.prefixed(frame.payload, Writer.u16)


def _read_fragment(reader: Reader) -> Fragment:
    message_id, index, count = reader.u16(), reader.u16(), reader.u16()
    payload = reader.take(reader.u16())
    if index >= count or not payload:
        raise RemoteError(f"fragment {index} of {count} with {len(payload)} bytes")
    return Fragment(message_id, index, count, payload)


def _write_unreliable(writer: Writer, frame: Unreliable) -> None:
    writer.u8(FrameKind.UNRELIABLE).u8(len(frame.payloads))
    _write_payloads(writer, frame.payloads)


def _read_unreliable(reader: Reader) -> Unreliable:
    return Unreliable(_read_payloads(reader, reader.u8()))


def _write_ping(writer: Writer, _: Ping) -> None:
    writer.u8(FrameKind.PING)


def _read_ping(_: Reader) -> Ping:
    return Ping()


def _write_close(writer: Writer, frame: Close) -> None:
    # Cut between characters, not inside of one.
    text = frame.text.encode(errors="replace")[:MAX_CLOSE_TEXT].decode(errors="ignore").encode()
    writer.u8(FrameKind.CLOSE).u8(frame.reason).prefixed(text, Writer.u8)


def _read_close(reader: Reader) -> Close:
    reason = reader.u8()
    return Close(reason, reader.take(reader.u8()).decode(errors="replace"))


def _write_payloads(writer: Writer, payloads: Sequence[bytes]) -> None:
    for payload in payloads:
        writer.prefixed(payload, Writer.u16)


def _read_payloads(reader: Reader, count: int) -> Sequence[bytes]:
    if not count:
        raise RemoteError("a frame of no messages")
    return [reader.take(reader.u16()) for _ in range(count)]


ENCODERS: dict[type, Callable[..., None]] = {
    Messages: _write_messages,
    Fragment: _write_fragment,
    Unreliable: _write_unreliable,
    Ping: _write_ping,
    Close: _write_close,
}

DECODERS: dict[int, Callable[[Reader], Frame]] = {
    FrameKind.MESSAGES: _read_messages,
    FrameKind.FRAGMENT: _read_fragment,
    FrameKind.UNRELIABLE: _read_unreliable,
    FrameKind.PING: _read_ping,
    FrameKind.CLOSE: _read_close,
}
