"""What a packet carries behind its header: a row of frames, each a kind byte and its fields.

Whole messages with consecutive ids share a frame. Their lengths stand together in front of them, or
once for all where they are equal, so that a frame is put together and taken apart by a few calls
that do not grow with the number of messages in Python code.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise

from sphtp.errors import RemoteError

MAX_MESSAGES_PER_FRAME = 65_535
MAX_CLOSE_TEXT = 120


class FrameKind(IntEnum):
    """The first byte of a frame."""

    MESSAGES = 1
    FRAGMENT = 2
    UNRELIABLE = 3
    PING = 4
    CLOSE = 5
    RUN = 6
    CREDIT = 7
    SKIP = 8
    PADDING = 9
    ACK_DELAY = 10


# kind u8, lane u8, first id u16, count u16; a RUN adds the length u16 that all its messages have.
_MESSAGES = struct.Struct("<BBHH")
_RUN = struct.Struct("<BBHHH")
# kind u8, lane u8, id u16, offset u32, total u32, length u16
_FRAGMENT = struct.Struct("<BBHIIH")
# kind u8, lane u8, first id u16, count u16
_UNRELIABLE = struct.Struct("<BBHH")
# kind u8, delay u16 in units of 100 microseconds
_ACK_DELAY = struct.Struct("<BH")
# kind u8, reason u8, length of text u8
_CLOSE = struct.Struct("<BBB")

# kind u8, lane u8, id u16
_SKIP = struct.Struct("<BBH")
# kind u8, messages u32, bytes u64
_CREDIT = struct.Struct("<BIQ")

# What a frame costs beside its payloads, and each payload where lengths differ.
MESSAGES_OVERHEAD = _MESSAGES.size
RUN_OVERHEAD = _RUN.size
FRAGMENT_OVERHEAD = _FRAGMENT.size
UNRELIABLE_OVERHEAD = _UNRELIABLE.size
CREDIT_OVERHEAD = _CREDIT.size
SKIP_OVERHEAD = _SKIP.size
ACK_DELAY_OVERHEAD = _ACK_DELAY.size
LENGTH_OVERHEAD = 2

# Delays are told in steps of this many seconds, and a longer one than fits as the longest.
DELAY_STEP = 1e-4
LONGEST_DELAY = 65_535 * DELAY_STEP


@dataclass(frozen=True, slots=True)
class Messages:
    """Whole reliable messages of a lane with consecutive ids; ``first_id`` is cut to 16 bits.

    ``lane`` is a lane's number, with ``FLAG`` set where its messages need not be in order.
    """

    lane: int
    first_id: int
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Fragment:
    """The bytes from ``offset`` on of one reliable message of ``total`` bytes."""

    lane: int
    message_id: int
    offset: int
    total: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing comes under this id of a lane: the message was given up."""

    lane: int
    message_id: int


@dataclass(frozen=True, slots=True)
class Unreliable:
    """Messages of a lane that are sent once; their ids only tell which of two is the later one."""

    lane: int
    first_id: int
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for an ack and says nothing."""


@dataclass(frozen=True, slots=True)
class Padding:
    """Fills the rest of a packet: a probe of how large packets can be. Asks for an ack."""

    size: int


@dataclass(frozen=True, slots=True)
class Credit:
    """How many reliable messages, and bytes in them, the peer may have sent since the opening."""

    messages: int
    size: int


@dataclass(frozen=True, slots=True)
class AckDelay:
    """How long, in seconds, the packet that the header acks has been here. Asks for no ack."""

    delay: float


@dataclass(frozen=True, slots=True)
class Close:
    """The last frame of a side that leaves: why, in one byte and in a few words."""

    reason: int
    text: str


Frame = Messages | Fragment | Skip | Unreliable | Ping | Padding | Credit | AckDelay | Close


def asks_for_ack(frames: Sequence[Frame]) -> bool:
    """Whether a packet with these frames asks for an ack."""
    return len(frames) > 1 or (len(frames) == 1 and type(frames[0]) is not AckDelay)


def encode_frames(frames: Iterable[Frame]) -> bytes:
    """Encode frames one after the other."""
    return b"".join([ENCODERS[type(frame)](frame) for frame in frames])


def decode_frames_untrusted(data: bytes, start: int = 0) -> list[Frame]:
    """Decode a packet's frames from ``start`` on.

    Raises ``RemoteError`` when any of them is not well formed.
    """
    frames: list[Frame] = []
    end = len(data)
    try:
        while start < end:
            frame, start = DECODERS[data[start]](data, start)
            frames.append(frame)
    except KeyError as error:
        raise RemoteError(f"no frame is of kind {error}") from error
    except struct.error as error:
        raise RemoteError(f"a frame ends before its fields: {error}") from error
    if start > end:
        raise RemoteError(f"a frame ends {start - end} bytes after its packet")
    return frames


def _encode_messages(frame: Messages) -> bytes:
    lengths = list(map(len, frame.payloads))
    count, length = len(lengths), lengths[0]
    if lengths.count(length) == count:
        front = _RUN.pack(FrameKind.RUN, frame.lane, frame.first_id, count, length)
    else:
        front = _MESSAGES.pack(FrameKind.MESSAGES, frame.lane, frame.first_id, count)
        front += struct.pack(f"<{count}H", *lengths)
    return front + b"".join(frame.payloads)


def _decode_run(data: bytes, start: int) -> tuple[Messages, int]:
    _, lane, first_id, count, length = _RUN.unpack_from(data, start)
    start += RUN_OVERHEAD
    end = start + count * length
    _check_payloads(count, end, data)
    cuts = range(start, end, length) if length else [start] * count
    payloads = [data[cut : cut + length] for cut in cuts]
    return Messages(lane, first_id, payloads), end


def _decode_messages(data: bytes, start: int) -> tuple[Messages, int]:
    _, lane, first_id, count = _MESSAGES.unpack_from(data, start)
    payloads, end = _split(data, start + MESSAGES_OVERHEAD, count)
    return Messages(lane, first_id, payloads), end


def _encode_fragment(frame: Fragment) -> bytes:
    lane, message_id, offset, total = frame.lane, frame.message_id, frame.offset, frame.total
    length = len(frame.payload)
    front = _FRAGMENT.pack(FrameKind.FRAGMENT, lane, message_id, offset, total, length)
    return front + frame.payload


def _decode_fragment(data: bytes, start: int) -> tuple[Fragment, int]:
    _, lane, message_id, offset, total, length = _FRAGMENT.unpack_from(data, start)
    start += FRAGMENT_OVERHEAD
    end = start + length
    if not length or offset + length > total or end > len(data):
        raise RemoteError(f"a fragment of {length} bytes at {offset} of {total}")
    return Fragment(lane, message_id, offset, total, data[start:end]), end


def _encode_skip(frame: Skip) -> bytes:
    return _SKIP.pack(FrameKind.SKIP, frame.lane, frame.message_id)


def _decode_skip(data: bytes, start: int) -> tuple[Skip, int]:
    _, lane, message_id = _SKIP.unpack_from(data, start)
    return Skip(lane, message_id), start + SKIP_OVERHEAD


def _encode_unreliable(frame: Unreliable) -> bytes:
    count = len(frame.payloads)
    lengths = struct.pack(f"<{count}H", *map(len, frame.payloads))
    front = _UNRELIABLE.pack(FrameKind.UNRELIABLE, frame.lane, frame.first_id, count)
    return front + lengths + b"".join(frame.payloads)


def _decode_unreliable(data: bytes, start: int) -> tuple[Unreliable, int]:
    _, lane, first_id, count = _UNRELIABLE.unpack_from(data, start)
    payloads, end = _split(data, start + UNRELIABLE_OVERHEAD, count)
    return Unreliable(lane, first_id, payloads), end


def _encode_ping(_: Ping) -> bytes:
    return bytes([FrameKind.PING])


def _decode_ping(_: bytes, start: int) -> tuple[Ping, int]:
    return Ping(), start + 1


def _encode_padding(frame: Padding) -> bytes:
    return bytes([FrameKind.PADDING]).ljust(frame.size, b"\0")


def _decode_padding(data: bytes, start: int) -> tuple[Padding, int]:
    return Padding(len(data) - start), len(data)


def _encode_credit(frame: Credit) -> bytes:
    return _CREDIT.pack(FrameKind.CREDIT, frame.messages, frame.size)


def _decode_credit(data: bytes, start: int) -> tuple[Credit, int]:
    _, messages, size = _CREDIT.unpack_from(data, start)
    return Credit(messages, size), start + CREDIT_OVERHEAD


def _encode_ack_delay(frame: AckDelay) -> bytes:
    steps = round(min(frame.delay, LONGEST_DELAY) / DELAY_STEP)
    return _ACK_DELAY.pack(FrameKind.ACK_DELAY, steps)


def _decode_ack_delay(data: bytes, start: int) -> tuple[AckDelay, int]:
    _, steps = _ACK_DELAY.unpack_from(data, start)
    return AckDelay(steps * DELAY_STEP), start + ACK_DELAY_OVERHEAD


def _encode_close(frame: Close) -> bytes:
    text = frame.text.encode()[:MAX_CLOSE_TEXT]
    return _CLOSE.pack(FrameKind.CLOSE, frame.reason, len(text)) + text


def _decode_close(data: bytes, start: int) -> tuple[Close, int]:
    _, reason, length = _CLOSE.unpack_from(data, start)
    start += _CLOSE.size
    return Close(reason, data[start : start + length].decode(errors="replace")), start + length


def _split(data: bytes, start: int, count: int) -> tuple[list[bytes], int]:
    """Take ``count`` lengths, then as many payloads."""
    lengths = struct.unpack_from(f"<{count}H", data, start)
    ends = list(accumulate(lengths, initial=start + LENGTH_OVERHEAD * count))
    _check_payloads(count, ends[-1], data)
    return [data[a:b] for a, b in pairwise(ends)], ends[-1]


def _check_payloads(count: int, end: int, data: bytes) -> None:
    if not count:
        raise RemoteError("a frame of no messages")
    if end > len(data):
        raise RemoteError(f"messages end {end - len(data)} bytes after their packet")


ENCODERS: dict[type, Callable[..., bytes]] = {
    Messages: _encode_messages,
    Fragment: _encode_fragment,
    Skip: _encode_skip,
    Unreliable: _encode_unreliable,
    Ping: _encode_ping,
    Padding: _encode_padding,
    Credit: _encode_credit,
    AckDelay: _encode_ack_delay,
    Close: _encode_close,
}

DECODERS: dict[int, Callable[[bytes, int], tuple[Frame, int]]] = {
    FrameKind.MESSAGES: _decode_messages,
    FrameKind.RUN: _decode_run,
    FrameKind.FRAGMENT: _decode_fragment,
    FrameKind.SKIP: _decode_skip,
    FrameKind.UNRELIABLE: _decode_unreliable,
    FrameKind.PING: _decode_ping,
    FrameKind.PADDING: _decode_padding,
    FrameKind.CREDIT: _decode_credit,
    FrameKind.ACK_DELAY: _decode_ack_delay,
    FrameKind.CLOSE: _decode_close,
}
