"""The streams of docs/reference/wire, read by the second reader."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop import second_reader
from tests.interop import second_reader_streams as streams
from tests.interop.second_page import TEXT, Vector, each, named
from tests.interop.second_reader import Malformed

# What is before the seal, and who reads what is in it.
FRONTS: dict[str, tuple[int, Callable[[bytes], dict[str, Any]]]] = {
    "sealed-stream": (6, streams.read_stream),
    "sealed-feedback": (9, streams.read_feedback),
    "sealed-history": (0, streams.read_frame),
}
SEALED = [vector for start in FRONTS for vector in named(f"{start}/")]


def sealed_in(vector: Vector) -> tuple[bytes, int]:
    """Return what is sealed, with its front, and how long that is."""
    start = vector.name.partition("/")[0]
    data = streams.cut_frame(vector.data) if start == "sealed-history" else vector.data
    return data, FRONTS[start][0]


@each(SEALED)
def test_what_is_sealed_opens(vector: Vector) -> None:
    key, plain = (bytes.fromhex(vector.fields[name]) for name in ("key", "plain"))
    data, front_size = sealed_in(vector)
    assert streams.open_sealed(key, data, front_size) == (vector.fields["counter"], plain)


@each(SEALED)
def test_what_is_sealed_reads_as_in_the_clear(vector: Vector) -> None:
    key = bytes.fromhex(vector.fields["key"])
    data, front_size = sealed_in(vector)
    _, plain = streams.open_sealed(key, data, front_size)
    front = data[:front_size] if front_size else len(plain).to_bytes(4, "little")
    fields = FRONTS[vector.name.partition("/")[0]][1](front + plain)
    assert fields["session"] == vector.fields.get("session", 0xDEADBEEF)
    assert fields.get("key") == vector.fields.get("number")
    assert fields.get("receiver") == vector.fields.get("receiver")


@each(SEALED)
def test_with_any_byte_altered_it_does_not(vector: Vector) -> None:
    key = bytes.fromhex(vector.fields["key"])
    data, front_size = sealed_in(vector)
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(Malformed):
            streams.open_sealed(key, changed, front_size)


@each(named("history-keys/"))
def test_the_keys_of_a_connection(vector: Vector) -> None:
    fields = {name: bytes.fromhex(value) for name, value in vector.fields.items()}
    salts = fields["receiver_salt"] + fields["source_salt"]
    assert streams.history_keys(fields["receiver_key"], salts) == vector.data


def test_the_hash_is_that_of_the_line_of_the_page() -> None:
    section = TEXT.partition("\n## Joining\n")[2].partition("\n## ")[0]
    line, said = section.split("`")[1], section.split("| schema_hash | ")[1].split(" ")[0]
    assert int(said, 16) == second_reader.schema_hash_of([line])
