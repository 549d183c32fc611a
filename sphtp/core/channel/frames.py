"""Packets and their codec: Fiedler's header, then frames.

version and kind u8, receiver's connection id u32, sequence u16, ack u16, ack_bits u32, then frames,
each a kind byte and its fields. Integers are little-endian.

In bulk traffic, packet after packet carries the next fragment of one message, or the next messages
of one length, and the packets in the other direction carry acks only. The operating system delivers
many such packets at a time, all of one size. Together they mean the same as one large packet.
Decoded as one, each takes a fraction of the time of a packet by itself: an iterator of a ``struct``
unpacks their fronts (header and first frame's fields), and a comparison shows whether a packet
continues the one before it. ``decode_packet_untrusted`` decodes one packet or many.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from sphtp.core.datagrams import VERSION, Kind
from sphtp.core.serial import MASK
from sphtp.core.wire import MOST_LAID_OUT, encode_lengths, take_equal, take_varied
from sphtp.errors import RemoteError

MAX_MESSAGES_PER_FRAME = 65_535
MAX_CLOSE_TEXT = 120


# The payload of a fragment may be a view of a message or a datagram, to save a copy.
Buffer = bytes | memoryview


class FrameKind(IntEnum):
    """The kind of a frame, which is its first byte."""

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


# kind u8, lane u8, first id u16, count u16; a RUN adds the length u16 of each of its messages.
MESSAGES_LAYOUT = struct.Struct("<BBHH")
RUN_LAYOUT = struct.Struct("<BBHHH")
# kind u8, lane u8, id u16, offset u32, total u32, length u16
FRAGMENT_LAYOUT = struct.Struct("<BBHIIH")
# kind u8, lane u8, first id u16, count u16
UNRELIABLE_LAYOUT = struct.Struct("<BBHH")
# kind u8, delay u16 in units of 100 microseconds
ACK_DELAY_LAYOUT = struct.Struct("<BH")
# kind u8, reason u8, length of text u8
CLOSE_LAYOUT = struct.Struct("<BBB")

# kind u8, lane u8, id u16, size u32
SKIP_LAYOUT = struct.Struct("<BBHI")
# kind u8, messages u32, bytes u64
CREDIT_LAYOUT = struct.Struct("<BIQ")

# The bytes of each frame without its payloads and, if they differ, without their lengths.
MESSAGES_OVERHEAD = MESSAGES_LAYOUT.size
RUN_OVERHEAD = RUN_LAYOUT.size
FRAGMENT_OVERHEAD = FRAGMENT_LAYOUT.size
UNRELIABLE_OVERHEAD = UNRELIABLE_LAYOUT.size
CREDIT_OVERHEAD = CREDIT_LAYOUT.size
SKIP_OVERHEAD = SKIP_LAYOUT.size
ACK_DELAY_OVERHEAD = ACK_DELAY_LAYOUT.size

# The high bit of a frame's lane byte. Reliable messages with it are delivered in the order of
# arrival; unreliable ones with it are dropped if a later one arrived first.
FLAG = 0x80

# A header acks 32 packets: bit n of its ack bits is the packet ``ack - n``.
ACK_BITS = 32
ALL_BITS = (1 << ACK_BITS) - 1
# The receiver records this many packets, to detect duplicates. No ack reaches further back.
BUFFER = 1024

DATA = struct.Struct("<BIHHI")
DATA_FIRST = VERSION << 4 | Kind.DATA
SEALED_FIRST = bytes([VERSION << 4 | Kind.SEALED])

# Bytes reserved in each packet: for the header, and for the frame with the delay of its ack.
OVERHEAD = DATA.size + ACK_DELAY_OVERHEAD

# Delays are encoded in steps of this many seconds, up to the longest that fits.
DELAY_STEP = 1e-4
LONGEST_DELAY = 65_535 * DELAY_STEP


class Header(NamedTuple):
    """Fiedler's header. Bit n of ``ack_bits`` acks packet ``ack - n``; bit 0 is ``ack`` itself.

    ``sequence`` and ``ack`` are cut to 16 bits.
    """

    sequence: int
    ack: int
    ack_bits: int


def encode_data(connection_id: int, header: Header) -> bytes:
    """Return the header of a DATA datagram; its frames follow."""
    return DATA.pack(DATA_FIRST, connection_id, *header)


def decode_data_untrusted(datagram: bytes) -> Header:
    """Return the header of a DATA datagram; its frames start at ``DATA.size``.

    Raises ``RemoteError`` if the datagram is too short.
    """
    if len(datagram) < DATA.size:
        raise RemoteError(f"a DATA datagram of {len(datagram)} bytes has no header")
    return Header(*DATA.unpack_from(datagram)[2:])


# ``Messages`` and ``Fragment`` are not frozen like the others: most packets consist of them, and
# the creation of a frozen one takes more than twice as long.
@dataclass(slots=True)
class Messages:
    """Whole reliable messages of a lane with consecutive ids.

    ``lane`` is a lane's number, with ``FLAG`` set if the lane is unordered.
    """

    lane: int
    first_id: int
    payloads: Sequence[bytes]


@dataclass(slots=True)
class Fragment:
    """A part of one reliable message of ``total`` bytes: ``payload``, from ``offset`` on."""

    lane: int
    message_id: int
    offset: int
    total: int
    payload: Buffer


@dataclass(frozen=True, slots=True)
class Skip:
    """The notice that the sender sends no more of the message with this id, of ``size`` bytes."""

    lane: int
    message_id: int
    size: int


@dataclass(frozen=True, slots=True)
class Unreliable:
    """Unreliable messages of a lane with consecutive ids. The receiver does not use the ids.

    ``lane`` is a lane's number, with ``FLAG`` set if the receiver drops overtaken messages.
    """

    lane: int
    first_id: int
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Ping:
    """A frame without content that requests an ack at once."""


@dataclass(frozen=True, slots=True)
class Padding:
    """A frame that fills the rest of a packet, to probe the path MTU; it requests an ack.

    ``size`` counts its bytes with the kind byte.
    """

    size: int


@dataclass(frozen=True, slots=True)
class Credit:
    """The total of reliable messages, and of bytes in them, that the other side may send.

    Both count from the opening of the channel. ``messages`` is cut to 32 bits.
    """

    messages: int
    size: int


@dataclass(frozen=True, slots=True)
class AckDelay:
    """The seconds for which the sender held back the ack in the header. It requests no ack."""

    delay: float


@dataclass(frozen=True, slots=True)
class Close:
    """The end of the channel, with the reason as a number and as text; 120 bytes of it are sent."""

    reason: int
    text: str


Content = Messages | Fragment | Skip | Unreliable
"""The frames of lanes: messages, parts of messages, and the notices that replace them."""

Frame = Content | Ping | Padding | Credit | AckDelay | Close


class Packet(NamedTuple):
    """One packet, or ``number`` consecutive packets joined into one.

    ``sequence`` is the sequence of the first packet. It has 16 bits, as ``ack`` has. ``ack_bits``
    joins the acks of all packets, and may have more than 32 bits. ``ack_delay`` is the time, in
    seconds, for which the peer held back the ack of packet ``ack``. ``content`` has the frames of
    lanes, ``control`` all others except ``AckDelay``. ``size`` is the bytes of all datagrams.
    """

    sequence: int
    ack: int
    ack_bits: int
    ack_delay: float
    content: Sequence[Content]
    control: Sequence[Ping | Padding | Credit | Close]
    size: int
    number: int = 1

    @property
    def frames(self) -> Sequence[Ping | Padding | Credit | Close | Content]:
        """All frames except ``AckDelay``; a packet with any of them is ack-eliciting."""
        return [*self.control, *self.content]


# Decoding packets

FRAGMENT_FRONT: Final = Struct(DATA.format + FRAGMENT_LAYOUT.format.lstrip("<"))
MESSAGES_FRONT: Final = Struct(DATA.format + RUN_LAYOUT.format.lstrip("<"))
"""Header and frame fields of a packet with a single frame."""

LARGEST: Final = 65_535
"""The most bytes of a datagram."""

MOST_TOGETHER: Final = 1024
"""The most packets decoded as one, and the most packets between the first and the last ack of a row
of pure acks. The ack bits of such a row become one number, whose length this limits."""

ACK_STEP: Final = 64
"""The largest step from the ack of one packet to that of the next if both are decoded as one. A
larger one is rare: an honest peer takes it after the loss of some fifty packets in a row."""

# Plain integers, because each use of an enum's member is a lookup in its class.
RUN: Final = int(FrameKind.RUN)
FRAGMENT: Final = int(FrameKind.FRAGMENT)

Front = tuple[int, ...]


def decode_packet_untrusted(
    data: bytes, start: int = 0, size: int = LARGEST, most: int = MOST_TOGETHER
) -> Packet:
    """Decode the DATA datagram at offset ``start``, together with those that continue it.

    ``data`` holds datagrams of ``size`` bytes each; the last one may be shorter. At most ``most``
    datagrams are decoded as one. Raises ``RemoteError`` if the first is malformed.
    """
    end = min(start + size, len(data))
    if end - start == DATA.size:
        return _decode_acks(data, start, most)
    kind = data[start + DATA.size] if end - start > DATA.size else None
    packet = None
    if kind == RUN and end - start > MESSAGES_FRONT.size:
        packet = _decode_runs(data, start, end, most)
    elif kind == FRAGMENT and end - start > FRAGMENT_FRONT.size:
        packet = _decode_fragments(data, start, end, most)
    return packet or _decode_one(data if end - start == len(data) else data[start:end])


def decode_fragments_untrusted(datagrams: Sequence[bytes], at: int, most: int) -> Packet:
    """Decode datagram number ``at``, together with those that continue it, at most ``most``.

    This is for large DATA datagrams, which the operating system delivers one by one. Consecutive
    fragments of one message become one packet, with a frame for each. Raises as
    ``decode_packet_untrusted``.
    """
    frames: list[Fragment] = []
    size = place = 0
    for number in range(min(most, len(datagrams) - at)):
        datagram = datagrams[at + number]
        length = len(datagram) - FRAGMENT_FRONT.size
        if length <= 0 or datagram[DATA.size] != FRAGMENT:
            break
        front = FRAGMENT_FRONT.unpack_from(datagram)
        if not number:
            first, to, sequence, ack, bits, kind, lane, message_id, place, total, _ = front
        expected = (first, to, (sequence + number) & MASK, ack, bits,
                    kind, lane, message_id, place, total, length)  # fmt: skip
        if front != expected or place + length > total:
            break
        payload = _part(datagram, FRAGMENT_FRONT.size, len(datagram))
        frames.append(Fragment(lane, message_id, place, total, payload))
        place += length
        size += len(datagram)
    if len(frames) > 1:
        return Packet(sequence, ack, bits, 0.0, frames, (), size, len(frames))
    return decode_packet_untrusted(datagrams[at])


def _decode_one(datagram: bytes) -> Packet:
    """Decode a packet with any frames."""
    sequence, ack, bits = decode_data_untrusted(datagram)
    content: list[Content] = []
    control: list[Ping | Padding | Credit | Close] = []
    delay = 0.0
    for frame in decode_frames_untrusted(datagram, DATA.size):
        if isinstance(frame, CONTENT):
            content.append(frame)
        elif isinstance(frame, AckDelay):
            delay = frame.delay
        else:
            control.append(frame)
    return Packet(sequence, ack, bits, delay, content, control, len(datagram))


def _decode_acks(data: bytes, start: int, most: int) -> Packet:
    """Decode consecutive packets that consist of a header only, and join their ack bits."""
    first, to, sequence, ack, bits = DATA.unpack_from(data, start)
    newest, number = ack, 1
    for following in _fronts(data, start, DATA, DATA.size, most):
        step = (following[3] - newest) & MASK
        is_next = following[:3] == (first, to, (sequence + number) & MASK)
        if not is_next or step > ACK_STEP or (following[3] - ack) & MASK > MOST_TOGETHER:
            break
        newest, bits = following[3], bits << step | following[4]
        number += 1
    return Packet(sequence, newest, bits, 0.0, (), (), number * DATA.size, number)


def _decode_runs(data: bytes, start: int, end: int, most: int) -> Packet | None:
    """Decode packets that each hold one run of messages.

    Return None if the first does not, or if its messages are empty or more than ``MOST_LAID_OUT``.
    """
    front = MESSAGES_FRONT.unpack_from(data, start)
    first, to, sequence, ack, bits, kind, lane, first_id, count, length = front
    size, begin = end - start, start + MESSAGES_FRONT.size
    if not count or not length or count * length != end - begin:
        return None
    if count == 1:
        payloads = [data[begin:end]]
    elif count <= MOST_LAID_OUT:
        payloads = list(_payloads(0, count, length).unpack_from(data, begin))
    else:
        return None
    number = 1
    for following in _fronts(data, start, MESSAGES_FRONT, size, most) if end < len(data) else ():
        at, message_id = (sequence + number) & MASK, (first_id + number * count) & MASK
        if following != (first, to, at, ack, bits, kind, lane, message_id, count, length):
            break
        number += 1
    if number > 1:
        rest = memoryview(data)[end : start + number * size]
        layout = _payloads(MESSAGES_FRONT.size, count, length)
        payloads.extend(chain.from_iterable(layout.iter_unpack(rest)))
    content = (Messages(lane, first_id, payloads),)
    return Packet(sequence, ack, bits, 0.0, content, (), number * size, number)


def _decode_fragments(data: bytes, start: int, end: int, most: int) -> Packet | None:
    """Decode packets that each hold one fragment of a message; None if the first does not."""
    front = FRAGMENT_FRONT.unpack_from(data, start)
    first, to, sequence, ack, bits, kind, lane, message_id, offset, total, length = front
    size, begin = end - start, start + FRAGMENT_FRONT.size
    if length != end - begin or offset + length > total:
        return None
    number = 1
    most = min(most, (total - offset) // length)
    for following in _fronts(data, start, FRAGMENT_FRONT, size, most) if end < len(data) else ():
        at, place = (sequence + number) & MASK, offset + number * length
        if following != (first, to, at, ack, bits, kind, lane, message_id, place, total, length):
            break
        number += 1
    if number > 1:
        view, starts = memoryview(data), range(begin, begin + number * size, size)
        payload: Buffer = b"".join([view[at : at + length] for at in starts])
    else:
        payload = _part(data, begin, end)
    frame = Fragment(lane, message_id, offset, total, payload)
    return Packet(sequence, ack, bits, 0.0, (frame,), (), number * size, number)


def _fronts(data: bytes, start: int, front: Struct, size: int, most: int) -> Iterator[Front]:
    """Yield the fronts of the datagrams that follow the first one and have its size.

    With the first one there are at most ``most``.
    """
    number = min((len(data) - start) // size, most)
    behind = memoryview(data)[start + size : start + number * size]
    return _front_layout(front.format, size).iter_unpack(behind)


@lru_cache(maxsize=64)
def _front_layout(front: str, size: int) -> Struct:
    """Return a struct of the front of a packet of ``size`` bytes, which skips the rest."""
    return Struct(f"{front}{size - Struct(front).size}x")


@lru_cache(maxsize=64)
def _payloads(front: int, count: int, length: int) -> Struct:
    """Return a struct of the payloads of a packet, which skips the front.

    The cache is bounded, and so is ``count``, by ``MOST_LAID_OUT``: a peer that varies the layout
    must not fill the memory.
    """
    return Struct(f"{front}x" + f"{length}s" * count)


def _part(data: bytes, start: int, end: int) -> Buffer:
    """Return a part of a message.

    A view keeps all of ``data`` in memory, so a part is copied unless it is over 7/8 of ``data``.
    """
    return memoryview(data)[start:end] if 8 * (end - start) > 7 * len(data) else data[start:end]


# Decoding frames


def decode_frames_untrusted(data: bytes, start: int = 0) -> list[Frame]:
    """Decode a packet's frames from offset ``start`` on.

    Raises ``RemoteError`` if any of them is malformed.
    """
    frames: list[Frame] = []
    end, messages = len(data), 0
    try:
        while start < end:
            frame, start = DECODERS[data[start]](data, start)
            frames.append(frame)
            if type(frame) is Messages:
                # Empty messages take no bytes in a run, so an attacker could claim any number.
                messages += len(frame.payloads)
                _check_number(messages, end)
    except KeyError as error:
        raise RemoteError(f"no frame is of kind {error}") from error
    except struct.error as error:
        raise RemoteError(f"a frame ends before its fields: {error}") from error
    if start > end:
        raise RemoteError(f"a frame ends {start - end} bytes after its packet")
    return frames


def _decode_run(data: bytes, start: int) -> tuple[Messages, int]:
    _, lane, first_id, count, length = RUN_LAYOUT.unpack_from(data, start)
    payloads, end = take_equal(data, start + RUN_OVERHEAD, count, length)
    return Messages(lane, first_id, payloads), end


def _decode_messages(data: bytes, start: int) -> tuple[Messages, int]:
    _, lane, first_id, count = MESSAGES_LAYOUT.unpack_from(data, start)
    payloads, end = take_varied(data, start + MESSAGES_OVERHEAD, count)
    return Messages(lane, first_id, payloads), end


def _decode_fragment(data: bytes, start: int) -> tuple[Fragment, int]:
    _, lane, message_id, offset, total, length = FRAGMENT_LAYOUT.unpack_from(data, start)
    start += FRAGMENT_OVERHEAD
    end = start + length
    if not length or offset + length > total or end > len(data):
        raise RemoteError(f"a fragment of {length} bytes at {offset} of {total}")
    return Fragment(lane, message_id, offset, total, _part(data, start, end)), end


def _decode_skip(data: bytes, start: int) -> tuple[Skip, int]:
    _, lane, message_id, size = SKIP_LAYOUT.unpack_from(data, start)
    return Skip(lane, message_id, size), start + SKIP_OVERHEAD


def _decode_unreliable(data: bytes, start: int) -> tuple[Unreliable, int]:
    _, lane, first_id, count = UNRELIABLE_LAYOUT.unpack_from(data, start)
    payloads, end = take_varied(data, start + UNRELIABLE_OVERHEAD, count)
    return Unreliable(lane, first_id, payloads), end


def _decode_ping(_: bytes, start: int) -> tuple[Ping, int]:
    return Ping(), start + 1


def _decode_padding(data: bytes, start: int) -> tuple[Padding, int]:
    return Padding(len(data) - start), len(data)


def _decode_credit(data: bytes, start: int) -> tuple[Credit, int]:
    _, messages, size = CREDIT_LAYOUT.unpack_from(data, start)
    return Credit(messages, size), start + CREDIT_OVERHEAD


def _decode_ack_delay(data: bytes, start: int) -> tuple[AckDelay, int]:
    _, steps = ACK_DELAY_LAYOUT.unpack_from(data, start)
    return AckDelay(steps * DELAY_STEP), start + ACK_DELAY_OVERHEAD


def _decode_close(data: bytes, start: int) -> tuple[Close, int]:
    _, reason, length = CLOSE_LAYOUT.unpack_from(data, start)
    start += CLOSE_LAYOUT.size
    return Close(reason, data[start : start + length].decode(errors="replace")), start + length


def _check_number(messages: int, size: int) -> None:
    if messages > size:
        raise RemoteError(f"{messages} messages in a packet of {size} bytes")


DECODERS: Final[Mapping[int, Callable[[bytes, int], tuple[Frame, int]]]] = {
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

CONTENT: Final = (Messages, Fragment, Skip, Unreliable)
"""The types in ``Content``, as a tuple: ``isinstance`` is faster with it than with a union."""


# Encoding frames.
#
# Whole messages with consecutive ids share a frame. Their lengths are together in front of them; in
# a RUN there is one length for all. So a few calls encode or decode a frame, however many messages
# it has.


def encode_frames(frames: Iterable[Frame], front: bytes = b"") -> bytes:
    """Encode frames one after the other, behind ``front``.

    All parts are joined in one step, so that each payload is copied only once.
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
