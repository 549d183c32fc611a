"""The datagrams of a stream, byte by byte, in Ultra Messaging's terms.

STREAM goes from the source to all receivers or to one of them, FEEDBACK from a receiver to the
source:

STREAM     version and kind u8, session u32, key u8, body
FEEDBACK   version and kind u8, session u32, receiver u32, body

A sealed body has a counter u64 before it and a tag of 16 bytes behind it (``sphtp.core.secure``).
A body is one of these. Every body of the source contains the lead and the trail of the transmission
window, and ``sqn`` is the sequence number of a datagram:

DATA       type u8, flags u8, lead u32, trail u32, sqn u32, records
SESSION    type u8, flags u8, lead u32, trail u32, number u32, topics u16, (topic u16, next u64)*
NCF        type u8, flags u8, lead u32, trail u32, reason u8, retry-after u16 in ms, ranges
NAK        type u8, flags u8, ranges
STATUS     type u8, flags u8, lead u32, room u32

with ranges as count u16, (first u32, further u16)*, where ``further`` counts the numbers after the
first. An empty window has its trail one above its lead. A body contains the low 32 bits of a
sequence number; sources and receivers use whole numbers (``sphtp.core.serial``).
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final, NamedTuple

from sphtp.core.datagrams import VERSION, Kind
from sphtp.core.serial import SerialNumber
from sphtp.core.stream.ranges import Span
from sphtp.core.wire import Reader, Writer
from sphtp.errors import RemoteError, untrusted


class BodyType(IntEnum):
    """The first byte of a body."""

    DATA = 1
    SESSION = 2
    NCF = 3
    NAK = 4
    STATUS = 5


class BodyFlag(IntFlag):
    """The second byte of a body."""

    NONE = 0
    REPAIR = 1
    """This DATA is a retransmission."""
    CLOSING = 2
    """The source sends no new data, and repairs for its linger. In a STATUS: the receiver has
    received the announcement of the end.
    """
    CLOSED = 4
    """The source has ended, and repairs no more."""
    FETCHING = 8
    """The sender of this STATUS is still fetching history."""


class NcfReason(IntEnum):
    """The reasons for which a repair does not come now."""

    NO_RETRY = 0
    """No repair will come: the window has moved on. This implementation sends a session message
    instead.
    """
    IGNORED = 1
    """The source repaired the datagram within its ignore interval."""
    RX_DELAY = 2
    """The repair waits for its turn. It comes unless the window evicts the datagram, or the source
    ends, before.
    """
    SHED = 3
    """Too many repairs wait. The receiver has to request the datagram again."""


class Window(NamedTuple):
    """The transmission window: datagrams from ``trail`` to ``lead``; none if ``trail`` is above."""

    lead: int
    trail: int


class StreamData(NamedTuple):
    """DATA: the datagram ``sqn``, with encoded ``records`` (``sphtp.core.stream.records``)."""

    flags: BodyFlag
    window: Window
    sqn: int
    records: bytes | memoryview


class SessionMessage(NamedTuple):
    """A session message: the source is alive, and announces the next number of each topic.

    ``tails`` are pairs of a topic and the number of its next message.
    """

    flags: BodyFlag
    window: Window
    number: int
    tails: Sequence[tuple[int, int]]


class Ncf(NamedTuple):
    """A NAK confirmation: no repair of ``spans`` comes now.

    The receiver may request them again after ``retry_after`` seconds, 0 if unknown.
    """

    window: Window
    reason: NcfReason
    retry_after: float
    spans: Sequence[Span]


class Nak(NamedTuple):
    """A negative acknowledgement: the sqns of missing datagrams, in order, each once."""

    spans: Sequence[Span]


class StatusMessage(NamedTuple):
    """A receiver's report: it has received or given up every datagram up to ``lead``.

    It can take ``room`` bytes beyond these. While it ``is_fetching`` from the history, it still
    needs the source. ``knows_end`` is true after it has received the announcement of the end.
    """

    lead: int
    room: int
    is_fetching: bool = False
    knows_end: bool = False


Body = StreamData | SessionMessage | Ncf


# Headers, in the clear


STREAM_HEADER: Final = Struct("<BIB")
FEEDBACK_HEADER: Final = Struct("<BII")
_STREAM_FIRST: Final = VERSION << 4 | Kind.STREAM
_FEEDBACK_FIRST: Final = VERSION << 4 | Kind.FEEDBACK


def stream_header(session: int, key: int) -> bytes:
    """Return the header of a source's datagram.

    ``key`` is the number of the key that seals it; 0 in the clear.
    """
    return STREAM_HEADER.pack(_STREAM_FIRST, session, key)


def feedback_header(session: int, receiver: int) -> bytes:
    """Return the header of a receiver's datagram."""
    return FEEDBACK_HEADER.pack(_FEEDBACK_FIRST, session, receiver)


def decode_stream_header_untrusted(datagram: bytes) -> tuple[int, int]:
    """Return session and key number of a STREAM datagram. Raises ``RemoteError`` for another.

    Its body starts at ``STREAM_HEADER.size``.
    """
    if len(datagram) < STREAM_HEADER.size or datagram[0] != _STREAM_FIRST:
        raise RemoteError(f"{len(datagram)} bytes that are no STREAM datagram")
    _, session, key = STREAM_HEADER.unpack_from(datagram)
    return session, key


def decode_feedback_header_untrusted(datagram: bytes) -> tuple[int, int]:
    """Return session and receiver of a FEEDBACK datagram. Raises ``RemoteError`` for another.

    Its body starts at ``FEEDBACK_HEADER.size``.
    """
    if len(datagram) < FEEDBACK_HEADER.size or datagram[0] != _FEEDBACK_FIRST:
        raise RemoteError(f"{len(datagram)} bytes that are no FEEDBACK datagram")
    _, session, receiver = FEEDBACK_HEADER.unpack_from(datagram)
    return session, receiver


def is_of_stream(data: bytes) -> bool:
    """Return True if a datagram is a STREAM or FEEDBACK of this version."""
    return data[:1] in _FIRSTS


_FIRSTS: Final = frozenset({bytes([_STREAM_FIRST]), bytes([_FEEDBACK_FIRST])})


# Limits and layouts of bodies


MOST_RANGES: Final = 128
"""The most ranges in one NAK or NCF, which then fits into ``settings.SMALLEST_DATAGRAM`` bytes."""

FURTHER: Final = 0xFFFF
"""The most numbers after the first in one range on the wire; a longer span takes several ranges."""

SQN: Final = SerialNumber(32)
"""The 32-bit sequence numbers of datagrams, and of session messages."""

_MASK: Final = SQN.mask

# Type, flags, lead and trail; in DATA also the sqn.
_HEAD: Final = Struct("<BBII")
_DATA: Final = Struct("<BBIII")
_STATUS: Final = Struct("<BBII")
_STATUS_FIRST: Final = bytes([BodyType.STATUS])
_TAIL: Final = Struct("<HQ")
_RANGE: Final = Struct("<IH")

DATA_OVERHEAD: Final = _DATA.size
"""Bytes of a DATA body before its records."""
MOST_TAILS: Final = 64
"""The most topics of one source; one session message names them all."""


# Encoding and decoding of bodies


def encode_data(sqn: int, window: Window, records: bytes, *, repair: bool = False) -> bytes:
    """Encode one DATA body."""
    flags = BodyFlag.REPAIR if repair else BodyFlag.NONE
    lead, trail = window
    head = _DATA.pack(BodyType.DATA, flags, lead & _MASK, trail & _MASK, sqn & _MASK)
    return head + records


def encode_new(first: int, trail: int, batch: Sequence[bytes]) -> list[bytes]:
    """Encode one new DATA body for each item of ``batch``, with sqns from ``first`` on.

    The lead of each is its own sqn: the datagrams after it are still on their way and not missing.
    """
    pack, kind, flags, trail = _DATA.pack, BodyType.DATA, BodyFlag.NONE, trail & _MASK
    shorts = [sqn & _MASK for sqn in range(first, first + len(batch))]
    return [
        pack(kind, flags, short, trail, short) + records
        for short, records in zip(shorts, batch, strict=True)
    ]


def encode_session(session: SessionMessage) -> bytes:
    """Encode a session message."""
    writer = _head(BodyType.SESSION, session.flags, session.window)
    writer.u32(session.number & _MASK).u16(len(session.tails))
    for topic, number in session.tails:
        writer.u16(topic).u64(number)
    return writer.finish()


def encode_ncf(ncf: Ncf) -> bytes:
    """Encode an NCF, with a ``retry_after`` of at most 65.535 s."""
    writer = _head(BodyType.NCF, BodyFlag.NONE, ncf.window)
    writer.u8(ncf.reason).u16(min(round(ncf.retry_after * 1000), 0xFFFF))
    return writer.raw(_encode_spans(ncf.spans)).finish()


def encode_nak(nak: Nak) -> bytes:
    """Encode a NAK."""
    return bytes([BodyType.NAK, BodyFlag.NONE]) + _encode_spans(nak.spans)


def trail_of_next(body: bytes, sqn: int) -> int | None:
    """Return the trail in a body if the body is new data with ``sqn`` as its number and its lead.

    Return None for any other body. Almost every datagram takes this short path, which decodes only
    the necessary fields.
    """
    if len(body) < _DATA.size:
        return None
    kind, flags, lead, trail, short = _DATA.unpack_from(body)
    if kind != BodyType.DATA or flags or lead != short or short != sqn & _MASK:
        return None
    reach: int = (lead - trail) & _MASK
    return sqn - reach if reach < SQN.half else None


def decode_body_untrusted(body: bytes | memoryview, lead: int) -> Body:
    """Decode a body of a source. Raises ``RemoteError`` if it is malformed.

    ``lead`` is the highest known sqn, from which the high bits of numbers are restored.
    """
    view = memoryview(body)
    if view and view[0] == BodyType.DATA:
        return _decode_data(view, lead)
    return _decode_other_untrusted(view, lead)


@untrusted
def _decode_other_untrusted(view: memoryview, lead: int) -> Body:
    reader = Reader(view)
    kind, flags = reader.u8(), _flags(reader.u8())
    window = _window(reader.u32(), reader.u32(), lead)
    if kind == BodyType.SESSION:
        return _decode_session(reader, flags, window)
    if kind == BodyType.NCF:
        reason, after = _reason(reader.u8()), reader.u16() / 1000
        return Ncf(window, reason, after, _decode_spans(reader, lead))
    raise RemoteError(f"a source sends no body of type {kind}")


@untrusted
def decode_nak_untrusted(body: bytes | memoryview, lead: int) -> Nak:
    """Decode a NAK. Raises ``RemoteError`` if it is malformed; ``lead`` is the source's lead."""
    reader = Reader(body)
    kind, _ = reader.u8(), _flags(reader.u8())
    if kind != BodyType.NAK:
        raise RemoteError(f"a receiver sends no body of type {kind}")
    return Nak(_decode_spans(reader, lead))


def encode_status(status: StatusMessage) -> bytes:
    """Encode a STATUS, with a room of at most ``2**32 - 1`` bytes."""
    room = min(status.room, _MASK)
    flags = BodyFlag.FETCHING * status.is_fetching | BodyFlag.CLOSING * status.knows_end
    return _STATUS.pack(BodyType.STATUS, flags, status.lead & _MASK, room)


@untrusted
def decode_feedback_untrusted(body: bytes | memoryview, lead: int) -> Nak | StatusMessage:
    """Decode a NAK or a STATUS. Raises ``RemoteError`` if it is malformed.

    ``lead`` is the source's lead.
    """
    if body[:1] != _STATUS_FIRST:
        return decode_nak_untrusted(body, lead)
    if len(body) != _STATUS.size:
        raise RemoteError(f"a STATUS of {len(body)} bytes")
    _, flags, short, room = _STATUS.unpack(body)
    is_fetching, knows_end = flags & BodyFlag.FETCHING, flags & BodyFlag.CLOSING
    return StatusMessage(SQN.unwrap(short, lead), room, bool(is_fetching), bool(knows_end))


def cut(spans: Iterable[Span], most: int = MOST_RANGES) -> list[Span]:
    """Cut spans into at most ``most`` ranges of the wire, the first ones."""
    ranges = list[Span]()
    for first, last in spans:
        for start in range(first, last + 1, FURTHER + 1):
            if len(ranges) == most:
                return ranges
            ranges.append(Span(start, min(start + FURTHER, last)))
    return ranges


def _decode_data(view: memoryview, lead: int) -> StreamData:
    if len(view) < _DATA.size:
        raise RemoteError(f"DATA of {len(view)} bytes")
    _, flags, short_lead, trail, sqn = _DATA.unpack_from(view)
    lead = SQN.unwrap(short_lead, lead)
    reach, back = (short_lead - trail) & _MASK, (short_lead - sqn) & _MASK
    # A datagram is in the window when it leaves, so its number is from the trail to the lead.
    if not back <= reach < SQN.half:
        raise RemoteError(f"a datagram {back} behind the lead of a window of {reach + 1}")
    return StreamData(_flags(flags), Window(lead, lead - reach), lead - back, view[_DATA.size :])


def _decode_session(reader: Reader, flags: BodyFlag, window: Window) -> SessionMessage:
    number, count = reader.u32(), reader.u16()
    if count > MOST_TAILS:
        raise RemoteError(f"a session of {count} topics")
    tails = [_TAIL.unpack(reader.take(_TAIL.size)) for _ in range(count)]
    reader.finish()
    return SessionMessage(flags, window, number, tails)


def _head(kind: BodyType, flags: BodyFlag, window: Window) -> Writer:
    lead, trail = window
    return Writer().raw(_HEAD.pack(kind, flags, lead & _MASK, trail & _MASK))


def _flags(value: int) -> BodyFlag:
    # Flags of later versions are ignored.
    return _FLAGS[value & _ALL_FLAGS]


_ALL_FLAGS: Final = int(sum(BodyFlag))
_FLAGS: Final = tuple(map(BodyFlag, range(_ALL_FLAGS + 1)))


def _reason(value: int) -> NcfReason:
    if value not in _REASONS:
        raise RemoteError(f"no NCF has the reason {value}")
    return _REASONS[value]


_REASONS: Final = {reason.value: reason for reason in NcfReason}


def _window(short_lead: int, short_trail: int, reference: int) -> Window:
    lead = SQN.unwrap(short_lead, reference)
    trail = SQN.unwrap(short_trail, lead)
    if trail > lead + 1:
        raise RemoteError(f"a window from {trail} to {lead}")
    return Window(lead, trail)


def _encode_spans(spans: Sequence[Span]) -> bytes:
    writer = Writer().u16(len(spans))
    for first, last in spans:
        writer.raw(_RANGE.pack(first & _MASK, last - first))
    return writer.finish()


def _decode_spans(reader: Reader, reference: int) -> list[Span]:
    spans = list[Span]()
    for _ in range(_count(reader)):
        short, further = _RANGE.unpack(reader.take(_RANGE.size))
        first = SQN.unwrap(short, reference)
        if spans and first <= spans[-1].last:
            raise RemoteError("ranges that overlap, or are out of order")
        spans.append(Span(first, first + further))
    reader.finish()
    return spans


def _count(reader: Reader) -> int:
    count = reader.u16()
    if not 1 <= count <= MOST_RANGES:
        raise RemoteError(f"{count} ranges; allowed is 1 to {MOST_RANGES}")
    return count
