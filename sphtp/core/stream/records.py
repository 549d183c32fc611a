"""Records: the contents of a DATA datagram, each a kind byte and its fields.

RUN        kind u8, topic u16, first u64, count u16, length u16, payloads
VARIED     kind u8, topic u16, first u64, count u16, lengths u16 each, payloads
FRAGMENT   kind u8, topic u16, number u64, part u32, parts u32, length u16, bytes

Messages of a topic have consecutive 64-bit numbers, one each. A message that is too large for a
datagram is sent in fragments, which all have its number.
"""

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from sphtp.core.wire import encode_lengths, take_equal, take_varied
from sphtp.errors import RemoteError


class RecordKind(IntEnum):
    """The first byte of a record."""

    RUN = 1
    VARIED = 2
    FRAGMENT = 3


class RunRecord(NamedTuple):
    """Consecutive whole messages of a topic, the first of them with the number ``first``."""

    topic: int
    first: int
    payloads: Sequence[bytes]

    @property
    def last(self) -> int:
        """The number of the last message."""
        return self.first + len(self.payloads) - 1


class FragmentRecord(NamedTuple):
    """A fragment of message number ``first``: ``part``, counted from 0, of ``parts``."""

    topic: int
    first: int
    part: int
    parts: int
    payload: bytes

    @property
    def last(self) -> int:
        """The number of the message."""
        return self.first


Record = RunRecord | FragmentRecord

_RUN: Final = Struct("<BHQHH")
_VARIED: Final = Struct("<BHQH")
_FRAGMENT: Final = Struct("<BHQIIH")

RUN_OVERHEAD: Final = _RUN.size
"""Bytes of a RUN before its messages. A VARIED has two fewer, and two more for each message."""
FRAGMENT_OVERHEAD: Final = _FRAGMENT.size
"""Bytes of a FRAGMENT before its payload."""
MOST_PARTS: Final = 1 << 20
"""The most fragments of one message."""


def encode_run(run: RunRecord) -> bytes:
    """Encode whole messages as one RUN or VARIED."""
    topic, first, payloads = run
    return b"".join((run_front(topic, first, list(map(len, payloads))), *payloads))


def run_front(topic: int, first: int, lengths: Sequence[int]) -> bytes:
    """Return the front of a RUN or VARIED record with messages of these lengths."""
    count, length = len(lengths), lengths[0]
    # Empty messages travel with their lengths: decoders reject more messages than bytes.
    if length and lengths.count(length) == count:
        return equal_front(topic, first, count, length)
    return _VARIED.pack(RecordKind.VARIED, topic, first, count) + encode_lengths(lengths)


def equal_front(topic: int, first: int, count: int, length: int) -> bytes:
    """Return the front of a RUN of messages that all have one length, which is not 0."""
    return _RUN.pack(RecordKind.RUN, topic, first, count, length)


def encode_fragment(fragment: FragmentRecord) -> bytes:
    """Encode a fragment of a message as a FRAGMENT."""
    topic, number, part, parts, payload = fragment
    kind = RecordKind.FRAGMENT
    return _FRAGMENT.pack(kind, topic, number, part, parts, len(payload)) + payload


def decode_records_untrusted(data: bytes, start: int = 0) -> list[Record]:
    """Decode the records of a datagram from ``start`` on.

    Raises ``RemoteError`` if one of them is malformed.
    """
    records = list[Record]()
    size, messages = len(data) - start, 0
    try:
        while start < len(data):
            record, start = _DECODERS[data[start]](data, start)
            records.append(record)
            if type(record) is RunRecord:
                messages += len(record.payloads)
    except KeyError as error:
        raise RemoteError(f"no record is of kind {error}") from error
    except struct.error as error:
        raise RemoteError(f"a record ends before its fields: {error}") from error
    # A forged RUN of 15 bytes could name 65,535 empty messages.
    if messages > size:
        raise RemoteError(f"{messages} messages in a datagram of {size} bytes")
    return records


def _decode_run(data: bytes, start: int) -> tuple[RunRecord, int]:
    _, topic, first, count, length = _RUN.unpack_from(data, start)
    payloads, end = take_equal(data, start + _RUN.size, count, length)
    return RunRecord(topic, first, payloads), end


def _decode_varied(data: bytes, start: int) -> tuple[RunRecord, int]:
    _, topic, first, count = _VARIED.unpack_from(data, start)
    payloads, end = take_varied(data, start + _VARIED.size, count)
    return RunRecord(topic, first, payloads), end


def _decode_fragment(data: bytes, start: int) -> tuple[FragmentRecord, int]:
    _, topic, number, part, parts, length = _FRAGMENT.unpack_from(data, start)
    start += _FRAGMENT.size
    end = start + length
    if not length or end > len(data):
        raise RemoteError(f"a fragment of {length} bytes, {len(data) - start} left")
    if part >= parts or parts > MOST_PARTS:
        raise RemoteError(f"part {part} of {parts}")
    return FragmentRecord(topic, number, part, parts, data[start:end]), end


_DECODERS: Final[dict[int, Callable[[bytes, int], tuple[Record, int]]]] = {
    RecordKind.RUN: _decode_run,
    RecordKind.VARIED: _decode_varied,
    RecordKind.FRAGMENT: _decode_fragment,
}
