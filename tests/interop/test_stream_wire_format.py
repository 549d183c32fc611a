"""Part four of `docs/reference/wire` says what the code does: bytes and numbers."""

from enum import IntEnum
from typing import Any, get_args

import pytest

from sphtp.core.datagrams import Kind
from sphtp.core.schema import Schema
from sphtp.core.secure.seal import Sealer
from sphtp.core.stream import late_join_wire as fetch
from sphtp.core.stream import records, wire
from sphtp.core.stream.late_join_wire import FetchFrameKind, prefixed
from sphtp.core.stream.membership import Member, MemberKind, StreamKey, membership_schema
from sphtp.core.stream.receiver import REACH
from sphtp.core.stream.records import RecordKind
from sphtp.core.stream.sealing import (
    KEPT,
    SEAL_OVERHEAD,
    FeedbackSeal,
    FeedbackUnsealer,
    SealCounters,
    StreamUnsealer,
    TcpSeal,
    fetch_keys,
)
from sphtp.core.stream.wire import BodyFlag, BodyType, NcfReason
from sphtp.errors import RemoteError
from sphtp.shell import stream_admission as admission
from sphtp.shell import stream_history as history
from tests.cases import Decorator, each
from tests.interop import stream_members, streams
from tests.interop.page import Vector, read_vectors, rows_under

VECTORS = read_vectors()

READERS = {
    "stream": streams.read_stream,
    "feedback": streams.read_feedback,
    "record": streams.read_record,
    "membership": stream_members.read_member,
    "history": stream_members.read_frame,
}
WRITERS = {
    "stream": streams.write_stream,
    "feedback": streams.write_feedback,
    "record": streams.write_record,
    "membership": stream_members.write_member,
    "history": stream_members.write_frame,
}


def family(*prefixes: str) -> Decorator:
    found = [v for v in VECTORS if v.name.startswith(tuple(f"{prefix}/" for prefix in prefixes))]
    assert found, prefixes
    return each("vector", found)


@family(*READERS)
def test_bytes_and_fields_are_the_same(vector: Vector) -> None:
    kind, _, _ = vector.name.partition("/")
    assert WRITERS[kind](vector.fields) == vector.data
    assert READERS[kind](vector.data) == vector.fields


@family(*(f"malformed/{kind}" for kind in READERS))
def test_what_is_malformed_is_refused(vector: Vector) -> None:
    _, kind, _ = vector.name.split("/", 2)
    with pytest.raises(RemoteError):
        READERS[kind](vector.data)


def test_every_kind_has_malformed_ones() -> None:
    assert {v.name.split("/")[1] for v in VECTORS if v.name.startswith("malformed/")} >= {*READERS}


def test_varied_lengths_that_are_equal_are_read_as_a_run_is() -> None:
    run = streams.read_record(bytes.fromhex("01 0000 0700000000000000 0200 0100 61 62"))
    told_apart = bytes.fromhex("02 0000 0700000000000000 0200 0100 0100 61 62")
    assert streams.read_record(told_apart) == run


# Seals


@family("sealed-stream")
def test_a_source_seals_so(vector: Vector) -> None:
    fields = vector.fields
    key, plain = bytes.fromhex(fields["key"]), bytes.fromhex(fields["plain"])
    front, first = wire.stream_header(fields["session"], fields["number"]), fields["counter"]
    assert Sealer(key, front, first).seal(plain, len(plain))[0] == vector.data
    opener = StreamUnsealer(StreamKey(fields["number"], key, first), SealCounters())
    assert opener.open(vector.data, len(vector.data)) == [plain]


@family("sealed-feedback")
def test_a_receiver_seals_so(vector: Vector) -> None:
    fields = vector.fields
    key, plain = bytes.fromhex(fields["key"]), bytes.fromhex(fields["plain"])
    seal = FeedbackSeal(fields["session"], fields["receiver"], key)
    sealed = [seal.seal(plain) for _ in range(fields["counter"] + 1)]
    assert sealed[-1] == vector.data
    opener = FeedbackUnsealer(key, SealCounters())
    assert opener.open(vector.data, len(vector.data)) == [plain]


@family("sealed-history")
def test_frames_are_sealed_so(vector: Vector) -> None:
    fields = vector.fields
    key, plain = bytes.fromhex(fields["key"]), bytes.fromhex(fields["plain"])
    sender, receiver = (TcpSeal(key, key, SealCounters()) for _ in range(2))
    sealed = [sender.seal(plain) for _ in range(fields["counter"] + 1)]
    assert prefixed(sealed[-1]) == vector.data
    (frame,) = fetch.Framing().feed_untrusted(vector.data)
    assert receiver.open_untrusted(frame) == plain


@family("history-keys")
def test_a_connection_has_these_keys(vector: Vector) -> None:
    named = {key: bytes.fromhex(value) for key, value in vector.fields.items()}
    keys = fetch_keys(named["receiver_key"], named["receiver_salt"] + named["source_salt"])
    assert b"".join(keys) == vector.data


@family("history-hello")
def test_a_receiver_says_hello_so(vector: Vector) -> None:
    fields = vector.fields
    salt = bytes.fromhex(fields["salt"])
    assert history.HELLO.pack(fields["session"], fields["receiver"], salt) == vector.data


@family("history-salt")
def test_a_source_answers_so(vector: Vector) -> None:
    assert bytes.fromhex(vector.fields["salt"]) == vector.data
    assert len(vector.data) == history.SALT_SIZE


# Nothing is missing


def numbered(title: str) -> set[tuple[int, str]]:
    return {(int(row[0], 0), row[1]) for row in rows_under(title) if row[1].isupper()}


def shown(kind: str, key: str) -> set[Any]:
    named = [v.fields for v in VECTORS if v.name.startswith(f"{kind}/")]
    return {fields[key] for fields in named if key in fields}


@each(
    ("title", "numbers"),
    [
        ("Bodies", BodyType),
        ("NCF", NcfReason),
        ("Records", RecordKind),
        ("Joining", MemberKind),
        ("Requests and answers", FetchFrameKind),
    ],
)
def test_every_number_has_a_row(title: str, numbers: type[IntEnum]) -> None:
    assert numbered(title) == {(one.value, one.name) for one in numbers}


def test_every_flag_has_a_row() -> None:
    assert numbered("Flags") == {(flag.value, str(flag.name)) for flag in BodyFlag if flag}


def test_every_number_has_a_vector() -> None:
    assert shown("stream", "kind") == {Kind.STREAM}
    assert shown("feedback", "kind") == {Kind.FEEDBACK}
    assert shown("stream", "type") | shown("feedback", "type") == set(BodyType)
    assert shown("stream", "flags") | shown("feedback", "flags") == {0, *map(int, BodyFlag)}
    assert shown("stream", "reason") == set(NcfReason)
    assert shown("record", "kind") == set(RecordKind)
    assert shown("membership", "kind") == set(MemberKind)
    assert shown("history", "kind") == set(FetchFrameKind)


def test_every_type_of_ours_is_named() -> None:
    assert set(stream_members.MEMBER_NAMES) == set(get_args(Member))


def test_the_hash_of_such_channels_is_that_of_the_code() -> None:
    (row,) = (row for row in rows_under("Joining") if row[0] == "schema_hash")
    assert int(row[1], 16) == membership_schema(Schema()).schema_hash


def test_the_numbers_are_those_of_the_code() -> None:
    page = [float(row[1]) for row in rows_under("Streams in numbers")]
    assert page == [
        SEAL_OVERHEAD,
        KEPT,
        REACH,
        wire.MOST_TAILS,
        wire.MOST_RANGES,
        records.MOST_PARTS,
        admission.PATIENCE,
        admission.GATHERING,
        history.PATIENCE,
        fetch.MOST_FRAME,
        fetch.MOST_SPANS,
        fetch.MOST_WANTED,
        fetch.MOST_REQUESTS,
    ]
