"""DATA packets, put together and taken apart: alone, or many that differ only by their place.

Bulk traffic fills packet after packet with the next part of one message, or with the next messages
of one length, and is answered with ack after ack. Such packets mean together what one large packet
would, and taken as one they cost a fraction. Which ones do is found by one unpacking of all their
fronts, and a comparison for each.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from sphtp.core.channel.frames import (
    FRAGMENT_LAYOUT,
    RUN_LAYOUT,
    Buffer,
    Fragment,
    Frame,
    FrameKind,
    Messages,
)
from sphtp.core.channel.framing import RUN, decode_frames_untrusted, encode_frames
from sphtp.core.channel.header import DATA, DATA_FIRST, Header, decode_data_untrusted
from sphtp.core.channel.sent_packets import Contents, FragmentRun, SentFrame
from sphtp.core.datagrams import Datagrams
from sphtp.core.payloads import cut_payloads
from sphtp.core.serial import MASK
from sphtp.errors import RemoteError

FARTHEST: Final = 64
"""Packets between two acks that are still taken as one: no honest side lets as many pass."""

WIDEST: Final = 1024
"""Packets between the first and the last of such acks: their bits become one number."""

Front = tuple[int, ...]


class Packet(NamedTuple):
    """What came in one packet, or in ``number`` of them with consecutive sequences.

    ``header`` is the first one's; its acks are those of all, so that its bits may be more than 32.
    ``size`` counts the bytes of all.
    """

    header: Header
    frames: Sequence[Frame]
    size: int
    number: int = 1


def decode_packet_untrusted(datagram: bytes) -> Packet:
    """Take one DATA datagram apart; raises ``RemoteError`` when it is not well formed."""
    is_run = len(datagram) > MESSAGES_FRONT.size and datagram[DATA.size] == RUN
    if is_run and (packet := _decode_lone(datagram)) is not None:
        return packet
    header = decode_data_untrusted(datagram)
    return Packet(header, decode_frames_untrusted(datagram, DATA.size), len(datagram))


def _decode_lone(datagram: bytes) -> Packet | None:
    """A run that is one message, which somebody may wait for: all in one unpacking."""
    _, _, sequence, ack, bits, _, lane, first_id, count, length = MESSAGES_FRONT.unpack_from(
        datagram
    )
    if count != 1 or length != len(datagram) - MESSAGES_FRONT.size:
        return None
    frame = Messages(lane, first_id, [datagram[-length:]])
    return Packet(Header(sequence, ack, bits), (frame,), len(datagram))


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


def divide(row: Datagrams) -> Iterator[Datagrams]:
    """Divide a row into runs; ``decode_run_untrusted`` takes one of more than one datagram."""
    address, data, size = row
    start, end = 0, len(data)
    while end - start > size:
        number = _run_length(data, start, size)
        yield Datagrams(address, data[start : start + number * size], size)
        start += number * size
    if start < end or not data:
        yield Datagrams(address, data[start:], size)


def decode_run_untrusted(data: bytes, size: int) -> Packet:
    """Take a run apart that ``divide`` has found; raises ``RemoteError`` as for its packets."""
    pattern = _pattern(data, 0, size)
    assert pattern is not None
    fronts = list(_layout(pattern.front.format, size).iter_unpack(data))
    header, frames = pattern.joined(fronts, data)
    return Packet(header, frames, len(data), len(fronts))


class _Pattern(NamedTuple):
    """How packets of a run follow one another.

    ``front`` is what is compared: the header and the fields of the one frame. ``starts`` says
    whether a packet can be part of a run, given its front and the room behind that; ``follows``
    whether one front follows the other; ``joined`` gives what all of them mean.
    """

    front: Struct
    starts: Callable[[Front, int], bool]
    follows: Callable[[Front, Front], bool]
    joined: Callable[[Sequence[Front], bytes], tuple[Header, Sequence[Frame]]]


def _pattern(data: bytes, start: int, size: int) -> _Pattern | None:
    """The pattern that a packet may be part of."""
    if data[start] != DATA_FIRST:
        return None
    if size == DATA.size:
        return ACKS
    pattern = PATTERNS.get(data[start + DATA.size]) if size > DATA.size else None
    return pattern if pattern is not None and size > pattern.front.size else None


def _run_length(data: bytes, start: int, size: int) -> int:
    pattern = _pattern(data, start, size)
    if pattern is None:
        return 1
    whole = (len(data) - start) // size * size
    fronts = _layout(pattern.front.format, size).iter_unpack(
        memoryview(data)[start : start + whole]
    )
    front = next(fronts)
    if not pattern.starts(front, size - pattern.front.size):
        return 1
    number = 1
    for following in fronts:
        if not pattern.follows(front, following):
            break
        front = following
        number += 1
    return number


@lru_cache(maxsize=64)
def _layout(front: str, size: int) -> Struct:
    """The front of a packet of ``size`` bytes, and the rest of it skipped."""
    return Struct(f"{front}{size - Struct(front).size}x")


def _payloads(data: bytes, number: int, front: Struct) -> bytes:
    """What ``number`` packets carry behind their fronts."""
    view, size = memoryview(data), len(data) // number
    return b"".join([view[at + front.size : at + size] for at in range(0, len(data), size)])


def _fragment_starts(front: Front, room: int) -> bool:
    return front[-1] == room


def _fragment_follows(front: Front, following: Front) -> bool:
    first, to, sequence, ack, bits, kind, lane, message_id, offset, total, length = front
    sequence, offset = (sequence + 1) & MASK, offset + length
    return following == (
        first, to, sequence, ack, bits, kind, lane, message_id, offset, total, length
    )  # fmt: skip


def _joined_fragments(fronts: Sequence[Front], data: bytes) -> tuple[Header, Sequence[Frame]]:
    lane, message_id, offset, total = fronts[0][6:10]
    payload = _payloads(data, len(fronts), FRAGMENT_FRONT)
    if offset + len(payload) > total:
        raise RemoteError(f"fragments up to {offset + len(payload)} of {total} bytes")
    return Header(*fronts[0][2:5]), [Fragment(lane, message_id, offset, total, payload)]


def _messages_start(front: Front, room: int) -> bool:
    return front[-1] > 0 and front[-1] * front[-2] == room


def _messages_follow(front: Front, following: Front) -> bool:
    first, to, sequence, ack, bits, kind, lane, first_id, count, length = front
    sequence, first_id = (sequence + 1) & MASK, (first_id + count) & MASK
    return following == (first, to, sequence, ack, bits, kind, lane, first_id, count, length)


def _joined_messages(fronts: Sequence[Front], data: bytes) -> tuple[Header, Sequence[Frame]]:
    lane, first_id, _, length = fronts[0][6:]
    payload = _payloads(data, len(fronts), MESSAGES_FRONT)
    payloads = cut_payloads(payload, 0, len(payload), length)
    return Header(*fronts[0][2:5]), [Messages(lane, first_id, payloads)]


def _acks_start(_front: Front, _room: int) -> bool:
    return True


def _acks_follow(front: Front, following: Front) -> bool:
    """Whether it is the next packet to the same connection, and its ack is not far from this."""
    first, to, sequence, ack, _ = front
    is_next = following[:3] == (first, to, (sequence + 1) & MASK)
    return is_next and (following[3] - ack) & MASK <= FARTHEST


def _joined_acks(fronts: Sequence[Front], _data: bytes) -> tuple[Header, Sequence[Frame]]:
    *_, sequence, ack, bits = fronts[0]
    if (fronts[-1][3] - ack) & MASK > WIDEST or len(fronts) > WIDEST:
        raise RemoteError(f"{len(fronts)} acks in a row, of packets too far apart")
    for earlier, (*_, newest, more) in pairwise(fronts):
        bits = bits << ((newest - earlier[3]) & MASK) | more
        ack = newest
    return Header(sequence, ack, bits), ()


FRAGMENT_FRONT: Final = Struct(DATA.format + FRAGMENT_LAYOUT.format.lstrip("<"))
MESSAGES_FRONT: Final = Struct(DATA.format + RUN_LAYOUT.format.lstrip("<"))

ACKS: Final = _Pattern(DATA, _acks_start, _acks_follow, _joined_acks)
PATTERNS: Final[dict[int, _Pattern]] = {
    FrameKind.FRAGMENT: _Pattern(
        FRAGMENT_FRONT, _fragment_starts, _fragment_follows, _joined_fragments
    ),
    FrameKind.RUN: _Pattern(MESSAGES_FRONT, _messages_start, _messages_follow, _joined_messages),
}
