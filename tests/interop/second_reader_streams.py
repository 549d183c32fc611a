"""A second reader of streams, written from docs/reference/wire alone.

It shares no code with the project. What depends on what came before (whose session, how far its
lead) is no business of a decoder.
"""

import hmac
from itertools import pairwise
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.interop.second_reader import Cursor, Fields, Malformed, demand, record
from tests.interop.second_reader_sealed import nonce_of

FAMILIES = ("history-keys/", "sealed-stream/", "sealed-feedback/", "sealed-history/")

SHORT = 1 << 32
HALF = 1 << 31
COUNTER_SIZE = 8
KEY_SIZE = 32
MOST_FRAME = 262144
MOST_PARTS = 1048576
BIN = {0xC4: Cursor.u8, 0xC5: lambda cursor: int.from_bytes(cursor.take(2), "big")}


def text(data: bytes) -> str:
    """Read text for people."""
    return data.decode(errors="replace")


def sized_text(cursor: Cursor) -> str:
    """Read text behind its length."""
    return text(cursor.take(cursor.u8()))


# Records.


def _payloads(cursor: Cursor, lengths: list[int]) -> list[str]:
    return [cursor.take(length).hex() for length in lengths]


def _some(cursor: Cursor) -> int:
    count = cursor.u16()
    demand(count > 0, "one message at least")
    return count


def _run(cursor: Cursor) -> Fields:
    fields = record(topic=Cursor.u16, first=Cursor.u64)(cursor)
    count, length = _some(cursor), cursor.u16()
    return {**fields, "payloads": _payloads(cursor, [length] * count)}


def _varied(cursor: Cursor) -> Fields:
    fields = record(topic=Cursor.u16, first=Cursor.u64)(cursor)
    lengths = [cursor.u16() for _ in range(_some(cursor))]
    return {**fields, "payloads": _payloads(cursor, lengths)}


def _fragment(cursor: Cursor) -> Fields:
    read = record(topic=Cursor.u16, first=Cursor.u64, part=Cursor.u32, parts=Cursor.u32)
    fields = read(cursor)
    payload = cursor.take(_some(cursor))
    demand(fields["part"] < fields["parts"] <= MOST_PARTS, "no such part")
    return {**fields, "payload": payload.hex()}


RECORDS = {1: _run, 2: _varied, 3: _fragment}


def _record(cursor: Cursor) -> Fields:
    kind = cursor.u8()
    demand(kind in RECORDS, f"there is no record of kind {kind}")
    return {"kind": kind, **RECORDS[kind](cursor)}


def _records(cursor: Cursor) -> list[Fields]:
    size, found = cursor.left, list[Fields]()
    while cursor.left:
        found.append(_record(cursor))
        messages = sum(len(one.get("payloads", ())) for one in found)
        demand(messages <= size, "more messages than bytes")
    return found


def read_record(data: bytes) -> Fields:
    """Decode the only record."""
    found = _records(Cursor(data))
    demand(len(found) == 1, "one record")
    return found[0]


# Bodies.


def _ranges(cursor: Cursor) -> list[Fields]:
    ranges, count = list[Fields](), cursor.u16()
    demand(1 <= count <= 128, "1 to 128 ranges")
    for _ in range(count):
        ranges.append(record(first=Cursor.u32, further=Cursor.u16)(cursor))
    for before, after in pairwise(ranges):
        # Whatever they are unwrapped by, those of one window are less than half of all apart.
        ahead = (after["first"] - before["first"]) % SHORT
        demand(before["further"] < ahead < HALF, "not in order")
    return ranges


def _window(cursor: Cursor) -> Fields:
    return record(lead=Cursor.u32, trail=Cursor.u32)(cursor)


def _reach(fields: Fields) -> int:
    """How far the trail is behind the lead; -1 for an empty window."""
    return int((fields["lead"] - fields["trail"] + HALF) % SHORT - HALF)


def _data(cursor: Cursor) -> Fields:
    fields = {**_window(cursor), "sqn": cursor.u32()}
    back = (fields["lead"] - fields["sqn"]) % SHORT
    demand(back <= _reach(fields), "it is not in its window")
    return {**fields, "records": _records(cursor)}


def _session(cursor: Cursor) -> Fields:
    fields = {**_window(cursor), "number": cursor.u32()}
    demand(_reach(fields) >= -1, "a trail above an empty window's")
    count = cursor.u16()
    demand(count <= 64, "64 topics at most")
    tails = [record(topic=Cursor.u16, next=Cursor.u64)(cursor) for _ in range(count)]
    return {**fields, "tails": tails}


def _ncf(cursor: Cursor) -> Fields:
    fields = {**_window(cursor), "reason": cursor.u8(), "retry_after": cursor.u16()}
    demand(_reach(fields) >= -1, "a trail above an empty window's")
    demand(fields["reason"] <= 3, "no such reason")
    return {**fields, "ranges": _ranges(cursor)}


SAID = {1: _data, 2: _session, 3: _ncf}
HEARD = {4: record(ranges=_ranges), 5: record(lead=Cursor.u32, room=Cursor.u32)}
# The bits that mean anything, by type.
FLAGS = {1: 1, 2: 2 | 4, 3: 0, 4: 0, 5: 2 | 8}


def _body(cursor: Cursor, bodies: dict[int, Any]) -> Fields:
    kind, flags = cursor.u8(), cursor.u8()
    demand(kind in bodies, f"nobody says {kind} here")
    fields = {"type": kind, "flags": flags & FLAGS[kind], **bodies[kind](cursor)}
    cursor.end()
    return fields


def read_stream(data: bytes) -> Fields:
    """Decode a STREAM in the clear."""
    cursor = Cursor(data)
    demand(cursor.u8() == 0x1C, "no STREAM")
    front = record(session=Cursor.u32, key=Cursor.u8)(cursor)
    return {"kind": 12, **front, **_body(cursor, SAID)}


def read_feedback(data: bytes) -> Fields:
    """Decode a FEEDBACK in the clear."""
    cursor = Cursor(data)
    demand(cursor.u8() == 0x1D, "no FEEDBACK")
    front = record(session=Cursor.u32, receiver=Cursor.u32)(cursor)
    return {"kind": 13, **front, **_body(cursor, HEARD)}


# Joining.


def _join(cursor: Cursor) -> Fields:
    fields = record(version=Cursor.u8)(cursor)
    demand(fields["version"] == 2, "another version")
    return fields | record(topic=sized_text, session=Cursor.u32, lacks=Cursor.u64)(cursor)


def _key(cursor: Cursor) -> Fields:
    number, key = cursor.u8(), cursor.take(KEY_SIZE).hex()
    return {"number": number, "key": key, "first": cursor.u64()}


def _welcome(cursor: Cursor) -> Fields:
    u16, u32, u64 = Cursor.u16, Cursor.u32, Cursor.u64
    fields = record(session=u32, receiver=u32, topic=u16, after=u64, trail=u64, next=u64)(cursor)
    fields |= record(reach=u32, history=u16, group=sized_text, port=u16)(cursor)
    demand(fields["session"] > 0, "it is not 0")
    demand(fields["trail"] <= fields["after"], "a trail above an empty window's")
    fields["seal"] = cursor.u8()
    if fields["seal"]:
        fields |= _key(cursor) | {"receiver_key": cursor.take(KEY_SIZE).hex()}
    return fields


def _end(cursor: Cursor) -> Fields:
    fields = record(after=Cursor.u64, trail=Cursor.u64, next=Cursor.u64)(cursor)
    demand(fields["trail"] <= fields["after"], "a trail above an empty window's")
    return fields


def _refused(cursor: Cursor) -> Fields:
    return {"text": text(cursor.rest())}


MEMBERS = {1: _join, 2: _welcome, 3: _refused, 4: _key, 5: _end}


def read_member(data: bytes) -> Fields:
    """Decode a payload of the channel by which a receiver joins."""
    cursor = Cursor(data)
    marker = cursor.u8()
    demand(marker in BIN, "no bin")
    demand(BIN[marker](cursor) == cursor.left, "not one bin")
    kind = cursor.u8()
    demand(kind in MEMBERS, f"there is no message {kind}")
    fields = {"kind": kind, **MEMBERS[kind](cursor)}
    cursor.end()
    return fields


# History.


def _wanted(cursor: Cursor) -> Fields:
    count = cursor.u16()
    demand(1 <= count <= 256, "1 to 256 ranges")
    ranges = [record(first=Cursor.u64, further=Cursor.u16)(cursor) for _ in range(count)]
    for before, after in pairwise(ranges):
        demand(after["first"] > before["first"] + before["further"], "not in order")
    demand(sum(one["further"] + 1 for one in ranges) <= 65535, "65535 messages at most")
    return {"ranges": ranges}


def _ordered(low: str, high: str) -> Any:
    def read(cursor: Cursor) -> Fields:
        fields = {low: cursor.u64(), high: cursor.u64()}
        demand(fields[low] <= fields[high], f"{low} is above {high}")
        return fields

    return read


FRAMES = {
    1: record(),
    2: _wanted,
    3: _ordered("low", "next"),
    4: record(record=_record),
    5: _ordered("first", "last"),
    6: record(),
}


def cut_frame(data: bytes) -> bytes:
    """Take the only frame out of its length."""
    cursor = Cursor(data)
    length = cursor.u32()
    demand(length <= MOST_FRAME, "a frame too long")
    frame = cursor.take(length)
    cursor.end()
    return frame


def read_frame(data: bytes) -> Fields:
    """Decode a frame with its length, in the clear."""
    cursor = Cursor(cut_frame(data))
    head = record(kind=Cursor.u8, session=Cursor.u32, topic=Cursor.u16, number=Cursor.u32)
    fields = head(cursor)
    demand(fields["kind"] in FRAMES, "no such frame")
    fields |= FRAMES[fields["kind"]](cursor)
    cursor.end()
    demand(fields.get("record", fields)["topic"] == fields["topic"], "of another topic")
    return fields


def read_hello(data: bytes) -> Fields:
    """Decode how a receiver begins."""
    cursor = Cursor(data)
    fields = record(session=Cursor.u32, receiver=Cursor.u32)(cursor)
    fields["salt"] = cursor.take(16).hex()
    cursor.end()
    return fields


def read_salt(data: bytes) -> Fields:
    """Decode what a source answers."""
    demand(len(data) == 16, "a salt has 16 bytes")
    return {"salt": data.hex()}


# Seals.


def history_keys(receiver_key: bytes, salts: bytes) -> bytes:
    """Give the keys of a connection: the receiver's, then the source's."""
    infos = (b"SphTP fetch request", b"SphTP fetch answer")
    return b"".join(hmac.digest(receiver_key, one + salts + b"\1", "sha256") for one in infos)


def open_sealed(key: bytes, data: bytes, front_size: int) -> tuple[int, bytes]:
    """Open what is behind a front; return counter and body."""
    cursor = Cursor(data)
    cursor.take(front_size)
    counter, head = cursor.u64(), data[: front_size + COUNTER_SIZE]
    try:
        return counter, AESGCM(key).decrypt(nonce_of(counter), cursor.rest(), head)
    except InvalidTag:
        raise Malformed("not authentic") from None
