"""Encoding and decoding frames.

Whole messages with consecutive ids share a frame. Their lengths stand together in front of them, or
once for all where they are equal, so that a frame is put together and taken apart by a few calls
that do not grow with the number of messages in Python code.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Final

from sphtp.core.channel.frames import (
    ACK_DELAY_LAYOUT,
    ACK_DELAY_OVERHEAD,
    CLOSE_LAYOUT,
    CREDIT_LAYOUT,
    CREDIT_OVERHEAD,
    DELAY_STEP,
    FRAGMENT_LAYOUT,
    FRAGMENT_OVERHEAD,
    LONGEST_DELAY,
    MAX_CLOSE_TEXT,
    MESSAGES_LAYOUT,
    MESSAGES_OVERHEAD,
    RUN_LAYOUT,
    RUN_OVERHEAD,
    SKIP_LAYOUT,
    SKIP_OVERHEAD,
    UNRELIABLE_LAYOUT,
    UNRELIABLE_OVERHEAD,
    AckDelay,
    Buffer,
    Close,
    Credit,
    Fragment,
    Frame,
    FrameKind,
    Messages,
    Padding,
    Ping,
    Skip,
    Unreliable,
)
from sphtp.core.payloads import encode_lengths, take_equal, take_varied
from sphtp.errors import RemoteError

# An enum's member is looked up by its class each time.
RUN: Final = int(FrameKind.RUN)


def encode_frames(frames: Iterable[Frame], front: bytes = b"") -> bytes:
    """Encode frames one after the other, behind what a packet starts with.

    Everything is joined once: large payloads are copied here and nowhere else.
    """
    parts: list[Buffer] = [front]
    for frame in frames:
        parts.extend(ENCODERS[type(frame)](frame))
    return b"".join(parts)


def decode_frames_untrusted(data: bytes, start: int = 0) -> list[Frame]:
    """Decode a packet's frames from ``start`` on.

    Raises ``RemoteError`` when any of them is not well formed.
    """
    frames: list[Frame] = []
    end, messages = len(data), 0
    try:
        while start < end:
            frame, start = DECODERS[data[start]](data, start)
            frames.append(frame)
            if type(frame) is Messages:
                # Empty ones cost nothing in a run, and could be as many as it pleases a liar.
                messages += len(frame.payloads)
                _check_number(messages, end)
    except KeyError as error:
        raise RemoteError(f"no frame is of kind {error}") from error
    except struct.error as error:
        raise RemoteError(f"a frame ends before its fields: {error}") from error
    if start > end:
        raise RemoteError(f"a frame ends {start - end} bytes after its packet")
    return frames


def _encode_messages(frame: Messages) -> list[Buffer]:
    lengths = list(map(len, frame.payloads))
    count, length = len(lengths), lengths[0]
    if lengths.count(length) == count:
        front = RUN_LAYOUT.pack(RUN, frame.lane, frame.first_id, count, length)
    else:
        front = MESSAGES_LAYOUT.pack(FrameKind.MESSAGES, frame.lane, frame.first_id, count)
        front += encode_lengths(lengths)
    return [front, *frame.payloads]


def _decode_run(data: bytes, start: int) -> tuple[Messages, int]:
    _, lane, first_id, count, length = RUN_LAYOUT.unpack_from(data, start)
    payloads, end = take_equal(data, start + RUN_OVERHEAD, count, length)
    return Messages(lane, first_id, payloads), end


def _decode_messages(data: bytes, start: int) -> tuple[Messages, int]:
    _, lane, first_id, count = MESSAGES_LAYOUT.unpack_from(data, start)
    payloads, end = take_varied(data, start + MESSAGES_OVERHEAD, count)
    return Messages(lane, first_id, payloads), end


def _encode_fragment(frame: Fragment) -> list[Buffer]:
    lane, message_id, offset, total = frame.lane, frame.message_id, frame.offset, frame.total
    length = len(frame.payload)
    front = FRAGMENT_LAYOUT.pack(FrameKind.FRAGMENT, lane, message_id, offset, total, length)
    return [front, frame.payload]


def _decode_fragment(data: bytes, start: int) -> tuple[Fragment, int]:
    _, lane, message_id, offset, total, length = FRAGMENT_LAYOUT.unpack_from(data, start)
    start += FRAGMENT_OVERHEAD
    end = start + length
    if not length or offset + length > total or end > len(data):
        raise RemoteError(f"a fragment of {length} bytes at {offset} of {total}")
    # A view keeps its packet alive, which must not be much more than what is accounted for.
    part = memoryview(data)[start:end] if 8 * length > 7 * len(data) else data[start:end]
    return Fragment(lane, message_id, offset, total, part), end


def _encode_skip(frame: Skip) -> list[Buffer]:
    return [SKIP_LAYOUT.pack(FrameKind.SKIP, frame.lane, frame.message_id, frame.size)]


def _decode_skip(data: bytes, start: int) -> tuple[Skip, int]:
    _, lane, message_id, size = SKIP_LAYOUT.unpack_from(data, start)
    return Skip(lane, message_id, size), start + SKIP_OVERHEAD


def _encode_unreliable(frame: Unreliable) -> list[Buffer]:
    count = len(frame.payloads)
    lengths = encode_lengths(list(map(len, frame.payloads)))
    front = UNRELIABLE_LAYOUT.pack(FrameKind.UNRELIABLE, frame.lane, frame.first_id, count)
    return [front, lengths, *frame.payloads]


def _decode_unreliable(data: bytes, start: int) -> tuple[Unreliable, int]:
    _, lane, first_id, count = UNRELIABLE_LAYOUT.unpack_from(data, start)
    payloads, end = take_varied(data, start + UNRELIABLE_OVERHEAD, count)
    return Unreliable(lane, first_id, payloads), end


def _encode_ping(_: Ping) -> list[Buffer]:
    return [bytes([FrameKind.PING])]


def _decode_ping(_: bytes, start: int) -> tuple[Ping, int]:
    return Ping(), start + 1


def _encode_padding(frame: Padding) -> list[Buffer]:
    return [bytes([FrameKind.PADDING]).ljust(frame.size, b"\0")]


def _decode_padding(data: bytes, start: int) -> tuple[Padding, int]:
    return Padding(len(data) - start), len(data)


def _encode_credit(frame: Credit) -> list[Buffer]:
    return [CREDIT_LAYOUT.pack(FrameKind.CREDIT, frame.messages, frame.size)]


def _decode_credit(data: bytes, start: int) -> tuple[Credit, int]:
    _, messages, size = CREDIT_LAYOUT.unpack_from(data, start)
    return Credit(messages, size), start + CREDIT_OVERHEAD


def _encode_ack_delay(frame: AckDelay) -> list[Buffer]:
    steps = round(min(frame.delay, LONGEST_DELAY) / DELAY_STEP)
    return [ACK_DELAY_LAYOUT.pack(FrameKind.ACK_DELAY, steps)]


def _decode_ack_delay(data: bytes, start: int) -> tuple[AckDelay, int]:
    _, steps = ACK_DELAY_LAYOUT.unpack_from(data, start)
    return AckDelay(steps * DELAY_STEP), start + ACK_DELAY_OVERHEAD


def _encode_close(frame: Close) -> list[Buffer]:
    text = frame.text.encode(errors="replace")[:MAX_CLOSE_TEXT].decode(errors="ignore").encode()
    return [CLOSE_LAYOUT.pack(FrameKind.CLOSE, frame.reason, len(text)), text]


def _decode_close(data: bytes, start: int) -> tuple[Close, int]:
    _, reason, length = CLOSE_LAYOUT.unpack_from(data, start)
    start += CLOSE_LAYOUT.size
    return Close(reason, data[start : start + length].decode(errors="replace")), start + length


def _check_number(messages: int, size: int) -> None:
    if messages > size:
        raise RemoteError(f"{messages} messages in a packet of {size} bytes")


ENCODERS: dict[type, Callable[..., list[Buffer]]] = {
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
