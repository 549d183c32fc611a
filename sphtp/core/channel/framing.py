"""Encoding frames.

Whole messages with consecutive ids share a frame. Their lengths stand together in front of them, or
once for all where they are equal, so that a frame is put together and taken apart by a few calls
that do not grow with the number of messages in Python code. ``frames`` decodes them.
"""

from collections.abc import Callable, Iterable

from sphtp.core.channel.frames import (
    ACK_DELAY_LAYOUT,
    CLOSE_LAYOUT,
    CREDIT_LAYOUT,
    DELAY_STEP,
    FRAGMENT_LAYOUT,
    LONGEST_DELAY,
    MAX_CLOSE_TEXT,
    MESSAGES_LAYOUT,
    RUN,
    RUN_LAYOUT,
    SKIP_LAYOUT,
    UNRELIABLE_LAYOUT,
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
from sphtp.core.payloads import encode_lengths


def encode_frames(frames: Iterable[Frame], front: bytes = b"") -> bytes:
    """Encode frames one after the other, behind what a packet starts with.

    Everything is joined once: large payloads are copied here and nowhere else.
    """
    parts: list[Buffer] = [front]
    for frame in frames:
        parts.extend(ENCODERS[type(frame)](frame))
    return b"".join(parts)


def _encode_messages(frame: Messages) -> list[Buffer]:
    lengths = list(map(len, frame.payloads))
    count, length = len(lengths), lengths[0]
    if lengths.count(length) == count:
        front = RUN_LAYOUT.pack(RUN, frame.lane, frame.first_id, count, length)
    else:
        front = MESSAGES_LAYOUT.pack(FrameKind.MESSAGES, frame.lane, frame.first_id, count)
        front += encode_lengths(lengths)
    return [front, *frame.payloads]


def _encode_fragment(frame: Fragment) -> list[Buffer]:
    lane, message_id, offset, total = frame.lane, frame.message_id, frame.offset, frame.total
    length = len(frame.payload)
    front = FRAGMENT_LAYOUT.pack(FrameKind.FRAGMENT, lane, message_id, offset, total, length)
    return [front, frame.payload]


def _encode_skip(frame: Skip) -> list[Buffer]:
    return [SKIP_LAYOUT.pack(FrameKind.SKIP, frame.lane, frame.message_id, frame.size)]


def _encode_unreliable(frame: Unreliable) -> list[Buffer]:
    count = len(frame.payloads)
    lengths = encode_lengths(list(map(len, frame.payloads)))
    front = UNRELIABLE_LAYOUT.pack(FrameKind.UNRELIABLE, frame.lane, frame.first_id, count)
    return [front, lengths, *frame.payloads]


def _encode_ping(_: Ping) -> list[Buffer]:
    return [bytes([FrameKind.PING])]


def _encode_padding(frame: Padding) -> list[Buffer]:
    return [bytes([FrameKind.PADDING]).ljust(frame.size, b"\0")]


def _encode_credit(frame: Credit) -> list[Buffer]:
    return [CREDIT_LAYOUT.pack(FrameKind.CREDIT, frame.messages, frame.size)]


def _encode_ack_delay(frame: AckDelay) -> list[Buffer]:
    steps = round(min(frame.delay, LONGEST_DELAY) / DELAY_STEP)
    return [ACK_DELAY_LAYOUT.pack(FrameKind.ACK_DELAY, steps)]


def _encode_close(frame: Close) -> list[Buffer]:
    text = frame.text.encode(errors="replace")[:MAX_CLOSE_TEXT].decode(errors="ignore").encode()
    return [CLOSE_LAYOUT.pack(FrameKind.CLOSE, frame.reason, len(text)), text]


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
