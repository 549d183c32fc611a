"""Late join and off-transport recovery over TCP, byte by byte.

On the connection, the length u32 of every frame comes before it. A receiver sends requests, and the
source sends answers. Every frame starts with kind u8, session u32, topic u16 and number u32. The
receiver chooses the number of a request, and the answers repeat it. Then follow, in a request

ASK        no further fields: request the bounds of the topic's history
FETCH      count u16, (first u64, further u16)*: request these messages, the lowest first;
           ``further`` counts the numbers after the first

and in an answer

INFO       low u64, next u64: the source keeps the messages from low to next - 1
MSG        a record of ``sphtp.core.stream.records``
GONE       first u64, last u64: the source keeps these messages no more
END        no further fields: the end of the answers to a FETCH; requested messages without MSG
           or GONE are still unsent
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import (
    Record,
    RunRecord,
    decode_records_untrusted,
    encode_fragment,
    encode_run,
)
from sphtp.core.wire import Reader
from sphtp.errors import RemoteError, untrusted

MOST_FRAME: Final = 1 << 18
"""The most bytes of a frame, with its seal and without its length."""
MOST_REQUESTS: Final = 64
"""The most requests that may wait for their answers. The source disconnects a receiver that sends
more.
"""
MOST_SPANS: Final = 256
"""The most ranges in one FETCH."""
FURTHER: Final = 0xFFFF
"""The most numbers after the first in one range."""
MOST_WANTED: Final = 0xFFFF
"""The most messages in one FETCH."""

_LENGTH: Final = Struct("<I")
_HEAD: Final = Struct("<BIHI")
_PAIR: Final = Struct("<QQ")
_COUNT: Final = Struct("<H")
_SPAN: Final = Struct("<QH")


class FetchFrameKind(IntEnum):
    """The first byte of a frame."""

    ASK = 1
    FETCH = 2
    INFO = 3
    MSG = 4
    GONE = 5
    END = 6


class RequestKey(NamedTuple):
    """The key of a request: the session, the topic, and a number that the receiver chose."""

    session: int
    topic: int
    number: int


class AskRequest(NamedTuple):
    """ASK: a request for the bounds of a topic's history."""

    request_key: RequestKey


class FetchRequest(NamedTuple):
    """FETCH: a request for messages; ``spans`` are in order, and do not overlap."""

    request_key: RequestKey
    spans: Sequence[Span]


class InfoAnswer(NamedTuple):
    """INFO: the source keeps the messages from ``low`` to ``next - 1``."""

    request_key: RequestKey
    low: int
    next: int


class MessagesAnswer(NamedTuple):
    """MSG: a record of requested messages."""

    request_key: RequestKey
    record: Record


class GoneAnswer(NamedTuple):
    """GONE: requested messages that the source no longer keeps."""

    request_key: RequestKey
    span: Span


class EndAnswer(NamedTuple):
    """END: the answers to a FETCH are complete."""

    request_key: RequestKey


Request = AskRequest | FetchRequest
Answer = InfoAnswer | MessagesAnswer | GoneAnswer | EndAnswer


# The connection


def prefixed(frame: bytes) -> bytes:
    """Return the frame with its length before it."""
    return _LENGTH.pack(len(frame)) + frame


class Framing:
    """The frames in the bytes of a connection, which may arrive in pieces of any size."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed_untrusted(self, data: bytes) -> list[bytes]:
        """Take bytes, and return the frames that are complete, without their lengths.

        Raises ``RemoteError`` if one is too long; the caller then has to close the connection.
        """
        buffer, frames, start = self._buffer, list[bytes](), 0
        buffer += data
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > MOST_FRAME:
                raise RemoteError(f"a frame of {length} bytes; allowed is {MOST_FRAME}")
            end = start + _LENGTH.size + length
            if end > len(buffer):
                break
            frames.append(bytes(buffer[start + _LENGTH.size : end]))
            start = end
        del buffer[:start]
        return frames


# Requests


def encode_ask(ask: AskRequest) -> bytes:
    """Return the frame of an ASK."""
    return _head(FetchFrameKind.ASK, ask.request_key)


def encode_fetch(fetch: FetchRequest) -> bytes:
    """Return the frame of a FETCH, whose spans have at most ``FURTHER + 1`` numbers each."""
    spans = [_SPAN.pack(first, last - first) for first, last in fetch.spans]
    return (
        _head(FetchFrameKind.FETCH, fetch.request_key) + _COUNT.pack(len(spans)) + b"".join(spans)
    )


@untrusted
def decode_request_untrusted(frame: bytes) -> Request:
    """Decode a request of a receiver. Raises ``RemoteError`` if it is malformed."""
    kind, request_key, reader = _open(frame)
    if kind == FetchFrameKind.ASK:
        reader.finish()
        return AskRequest(request_key)
    if kind == FetchFrameKind.FETCH:
        return FetchRequest(request_key, _decode_spans(reader))
    raise RemoteError(f"a receiver sends no request of kind {kind}")


def _decode_spans(reader: Reader) -> list[Span]:
    spans, wanted = list[Span](), 0
    count = reader.u16()
    if not 1 <= count <= MOST_SPANS:
        raise RemoteError(f"{count} ranges; allowed is 1 to {MOST_SPANS}")
    for _ in range(count):
        first, further = _SPAN.unpack(reader.take(_SPAN.size))
        if spans and first <= spans[-1].last:
            raise RemoteError("ranges that overlap, or are out of order")
        spans.append(Span(first, first + further))
        wanted += further + 1
    if wanted > MOST_WANTED:
        raise RemoteError(f"{wanted} messages in one FETCH; allowed is {MOST_WANTED}")
    reader.finish()
    return spans


# Answers


def encode_info(info: InfoAnswer) -> bytes:
    """Return the frame of an INFO."""
    return _head(FetchFrameKind.INFO, info.request_key) + _PAIR.pack(info.low, info.next)


def encode_msg(msg: MessagesAnswer) -> bytes:
    """Return the frame of a MSG, with its record."""
    record = msg.record
    body = encode_run(record) if isinstance(record, RunRecord) else encode_fragment(record)
    return _head(FetchFrameKind.MSG, msg.request_key) + body


def encode_gone(gone: GoneAnswer) -> bytes:
    """Return the frame of a GONE."""
    return _head(FetchFrameKind.GONE, gone.request_key) + _PAIR.pack(*gone.span)


def encode_done(done: EndAnswer) -> bytes:
    """Return the frame of an END."""
    return _head(FetchFrameKind.END, done.request_key)


@untrusted
def decode_answer_untrusted(frame: bytes) -> Answer:
    """Decode an answer of a source. Raises ``RemoteError`` if it is malformed."""
    kind, request_key, reader = _open(frame)
    if kind not in _ANSWERS:
        raise RemoteError(f"a source sends no answer of kind {kind}")
    answer = _ANSWERS[kind](request_key, reader)
    reader.finish()
    return answer


def _decode_info(request_key: RequestKey, reader: Reader) -> InfoAnswer:
    low, after = reader.u64(), reader.u64()
    if low > after:
        raise RemoteError(f"a history from {low} that ends before {after}")
    return InfoAnswer(request_key, low, after)


def _decode_msg(request_key: RequestKey, reader: Reader) -> MessagesAnswer:
    records = decode_records_untrusted(reader.rest())
    if len(records) != 1 or records[0].topic != request_key.topic:
        raise RemoteError("a MSG must contain one record, of the requested topic")
    return MessagesAnswer(request_key, records[0])


def _decode_gone(request_key: RequestKey, reader: Reader) -> GoneAnswer:
    span = Span(reader.u64(), reader.u64())
    if span.size < 1:
        raise RemoteError(f"GONE from {span.first} to {span.last} names no message")
    return GoneAnswer(request_key, span)


def _decode_done(request_key: RequestKey, _: Reader) -> EndAnswer:
    return EndAnswer(request_key)


_ANSWERS: Final[dict[int, Callable[[RequestKey, Reader], Answer]]] = {
    FetchFrameKind.INFO: _decode_info,
    FetchFrameKind.MSG: _decode_msg,
    FetchFrameKind.GONE: _decode_gone,
    FetchFrameKind.END: _decode_done,
}


def _head(kind: FetchFrameKind, request_key: RequestKey) -> bytes:
    return _HEAD.pack(kind, *request_key)


def _open(frame: bytes) -> tuple[int, RequestKey, Reader]:
    reader = Reader(frame)
    kind, *request_key = _HEAD.unpack(reader.take(_HEAD.size))
    return kind, RequestKey(*request_key), reader
