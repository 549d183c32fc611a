"""Part six of `docs/reference/wire` says what the code does: bytes and numbers."""

from typing import Any

import pytest

from sphtp.core.group.machine import AGREEMENT_TIMEOUT, FOUNDING_DELAY
from sphtp.core.group.messages import (
    decode_group_message_untrusted,
    encode_group_message,
    step_of_untrusted,
)
from sphtp.core.group.steps import PROGRESS_EVERY, WINDOW
from sphtp.core.schema import Schema
from sphtp.errors import RemoteError
from tests.cases import each
from tests.interop.page import WIRE, read_vectors, rows_under

VECTORS = [vector for vector in read_vectors() if vector.name.startswith("group/")]
MALFORMED = [vector for vector in read_vectors() if vector.name.startswith("malformed/group/")]


def plain(value: Any) -> Any:
    """Return a field as an example has it."""
    if isinstance(value, bytes):
        return value.hex()
    return [plain(item) for item in value] if isinstance(value, tuple) else value


@each("vector", VECTORS)
def test_bytes_and_fields_are_the_same(vector: Any) -> None:
    fields = dict(vector.fields)
    if not fields.pop("form"):
        assert step_of_untrusted(vector.data) == fields["step"]
        return
    message = decode_group_message_untrusted(vector.data)
    assert encode_group_message(message) == vector.data
    (kind, *names), values = rows()[fields.pop("kind")], map(plain, message)
    assert vector.name.partition("/")[2].split()[0] == kind
    assert dict(zip(names, values, strict=True)) == fields


@each("vector", MALFORMED)
def test_what_is_malformed_is_refused(vector: Any) -> None:
    read = step_of_untrusted if vector.data[:1] == b"\0" else decode_group_message_untrusted
    with pytest.raises(RemoteError):
        read(vector.data)


def rows() -> dict[int, list[str]]:
    """Return the message of each kind and its fields, as the page has them."""
    found = [row for row in rows_under("Messages of a group") if len(row) == 3]
    return {
        int(kind): [name, *(field.strip(" `") for field in fields.split(","))]
        for kind, name, fields in found
    }


def test_every_kind_has_a_row_and_a_vector() -> None:
    assert {vector.fields["kind"] for vector in VECTORS if vector.fields["form"]} == set(rows())
    assert list(rows()) == list(range(15))


def test_the_numbers_are_those_of_the_code() -> None:
    (row,) = rows_under("Channels of a group")
    assert int(row[1], 16) == Schema(["(group): fluid"]).schema_hash
    text = (WIRE / "groups.md").read_text(encoding="utf-8")
    for words in (
        f"more than {WINDOW + 1} ahead",
        f"at most {WINDOW} steps ahead",
        f"more than {2 * WINDOW} ahead",
        f"for {PROGRESS_EVERY} steps",
        f"cannot agree for {AGREEMENT_TIMEOUT:g} s",
        f"waits for {FOUNDING_DELAY:g} s first",
    ):
        assert words in text, words
