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
    FrameKind,
    Header,
    Messages,
)
from sphtp.core.channel.framing import encode_frames
from sphtp.core.channel.pieces import Piece
from sphtp.core.channel.runs import FragmentRun
from sphtp.core.serial import MASK


def encode_lone(connection_id: int, header: Header, frame: Messages) -> bytes:
    """Put a packet together that holds one message, in one packing."""
    sequence, ack, bits = header
    (payload,) = frame.payloads
    return MESSAGES_FRONT.pack(
        DATA_FIRST, connection_id, sequence, ack, bits,
        RUN, frame.lane, frame.first_id, 1, len(payload),
    ) + payload  # fmt: skip


def encode_run(connection_id: int, header: Header, run: FragmentRun) -> bytes:
    """Put the packets together that carry a run; ``header`` is the first one's.

    They stand one behind the other, all of the same size, each of them as if it were alone.
    """
    sequence, ack, bits = header
    kind, lane, message_id = int(FrameKind.FRAGMENT), run.lane_byte, run.short_id
    view, length, total = run.view, run.length, run.total
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


def encode_loads(
    connection_id: int, header: Header, loads: Sequence[Sequence[Piece]]
) -> list[bytes]:
    """Put packets together that have consecutive sequences; ``header`` is the first one's."""
    sequence, ack, bits = header
    return [
        encode_frames(
            [piece.frame for piece in load],
            DATA.pack(DATA_FIRST, connection_id, at & MASK, ack, bits),
        )
        for at, load in enumerate(loads, sequence)
    ]
