"""DATA packets put together: alone, or many that differ only by their place.

``frames`` has their layout, and takes them apart.
"""

from collections.abc import Sequence

from sphtp.core.channel.frames import (
    DATA,
    DATA_FIRST,
    FRAGMENT_FRONT,
    MESSAGES_FRONT,
    RUN,
    Buffer,
    Frame,
    FrameKind,
    Header,
    Messages,
    encode_frames,
)
from sphtp.core.channel.sent_packets import Contents, FragmentRun, SentFrame
from sphtp.core.serial import MASK


def encode_packets(
    connection_id: int, header: Header, contents: Contents, extra: Sequence[Frame] = ()
) -> tuple[bytes, int]:
    """Put packets together that have consecutive sequences; return them, and the size of each.

    ``header`` is the first one's. They stand one behind the other, each as if it were alone;
    ``extra`` frames go before the contents of one packet. More than one are alike, each with one
    frame: fragments of one message, or as many messages of one size.
    """
    if isinstance(contents, FragmentRun):
        data = _encode_fragments(connection_id, header, contents)
    elif len(contents) > 1:
        data = _encode_message_runs(connection_id, header, contents)
    else:
        data = _encode_one(connection_id, header, contents[0], extra)
    return data, len(data) // len(contents)


def _encode_one(
    connection_id: int, header: Header, content: Sequence[SentFrame], extra: Sequence[Frame]
) -> bytes:
    sequence, ack, bits = header
    if len(content) == 1 and not extra:
        frame = content[0].frame
        if type(frame) is Messages and len(frame.payloads) == 1:
            # One message, which somebody may wait for: all in one packing.
            payload = frame.payloads[0]
            return MESSAGES_FRONT.pack(
                DATA_FIRST, connection_id, sequence & MASK, ack, bits,
                RUN, frame.lane, frame.first_id, 1, len(payload),
            ) + payload  # fmt: skip
    frames = [*extra, *[sent.frame for sent in content]]
    return encode_frames(frames, DATA.pack(DATA_FIRST, connection_id, sequence & MASK, ack, bits))


def _encode_message_runs(
    connection_id: int, header: Header, contents: Sequence[Sequence[SentFrame]]
) -> bytes:
    sequence, ack, bits = header
    parts: list[Buffer] = []
    for at, (sent,) in enumerate(contents, sequence):
        frame = sent.frame
        assert isinstance(frame, Messages)
        payloads = frame.payloads
        parts.append(
            MESSAGES_FRONT.pack(
                DATA_FIRST, connection_id, at & MASK, ack, bits,
                RUN, frame.lane, frame.first_id, len(payloads), len(payloads[0]),
            )
        )  # fmt: skip
        parts += payloads
    return b"".join(parts)


def _encode_fragments(connection_id: int, header: Header, run: FragmentRun) -> bytes:
    sequence, ack, bits = header
    kind, lane, message_id = int(FrameKind.FRAGMENT), run.lane_byte, run.first_id & MASK
    view, length, total = memoryview(run.payload), run.length, len(run.payload)
    parts: list[Buffer] = []
    for start in range(run.index, run.end, length):
        parts += (
            FRAGMENT_FRONT.pack(
                DATA_FIRST, connection_id, sequence & MASK, ack, bits,
                kind, lane, message_id, start, total, length,
            ),
            view[start : start + length],
        )  # fmt: skip
        sequence += 1
    return b"".join(parts)
