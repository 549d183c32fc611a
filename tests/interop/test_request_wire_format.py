"""Part five of `docs/reference/wire` says what the code does: bytes and numbers."""

from enum import IntEnum
from typing import Any

import pytest

from sphtp.core.requests import wire
from sphtp.core.requests.table import IDLE, MOST_REQUESTS
from sphtp.core.requests.wire import (
    CancelMessage,
    ErrorMessage,
    ErrorReason,
    GoodbyeMessage,
    Message,
    ReplyMessage,
    RequestKind,
    RequestMessage,
    decode_message_untrusted,
    encode_message,
)
from sphtp.core.schema import Schema
from sphtp.errors import RemoteError
from tests.cases import each
from tests.interop.page import WIRE, read_vectors, rows_under

VECTORS = [vector for vector in read_vectors() if vector.name.startswith("request/")]
MALFORMED = [vector for vector in read_vectors() if vector.name.startswith("malformed/request/")]


def message_of(named: dict[str, Any]) -> Message:
    number = named.get("number", 0)
    match named["kind"]:
        case RequestKind.REQUEST:
            left = named["milliseconds"] / 1000 or None
            return RequestMessage(number, named["name"], bytes.fromhex(named["value"]), left)
        case RequestKind.CANCEL:
            return CancelMessage(number)
        case RequestKind.REPLY:
            return ReplyMessage(number, bytes.fromhex(named["value"]))
        case RequestKind.ERROR:
            reason, data = ErrorReason(named["reason"]), bytes.fromhex(named["data"])
            return ErrorMessage(number, reason, named["type"], named["text"], data)
        case _:
            return GoodbyeMessage()


@each("vector", VECTORS)
def test_bytes_and_fields_are_the_same(vector: Any) -> None:
    message = message_of(vector.fields)
    assert encode_message(message) == vector.data
    assert decode_message_untrusted(vector.data) == message
    assert type(decode_message_untrusted(vector.data)) is type(message)


@each("vector", MALFORMED)
def test_what_is_malformed_is_refused(vector: Any) -> None:
    with pytest.raises(RemoteError):
        decode_message_untrusted(vector.data)


@pytest.mark.parametrize(
    ("title", "numbers"),
    [("Messages of requests", RequestKind), ("Reasons of errors", ErrorReason)],
)
def test_every_number_has_a_row(title: str, numbers: type[IntEnum]) -> None:
    rows = {(int(row[0]), row[1]) for row in rows_under(title)}
    assert rows == {(one.value, one.name) for one in numbers}


def test_every_kind_has_a_vector() -> None:
    assert {vector.fields["kind"] for vector in VECTORS} == set(RequestKind)


def test_the_numbers_are_those_of_the_code() -> None:
    (row,) = rows_under("Channels of requests")
    assert int(row[1], 16) == Schema([wire.SERVICE_LINE]).schema_hash
    text = (WIRE / "requests.md").read_text(encoding="utf-8")
    for words in (
        f"`{wire.SERVICE_LINE}`",
        f"more than {wire.SMALL:,} bytes",
        f"at most {MOST_REQUESTS} requests",
        f"for {IDLE:g} s",
        f"up to {wire.LONGEST_TYPE} bytes and a `text` up to {wire.LONGEST_TEXT}",
    ):
        assert words in text, words
