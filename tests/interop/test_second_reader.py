"""The examples of docs/reference/wire, read by a decoder that knows nothing but the page.

`second_reader` shares no code with the project. Where it reads an example otherwise than the page
says, page or reader is wrong; where it cannot tell, the page is not precise enough.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests import cases
from tests.interop import (
    second_reader,
    second_reader_control,
    second_reader_groups,
    second_reader_requests,
    second_reader_sealed,
    second_reader_streams,
    second_reader_watching,
)
from tests.interop.second_page import TEXT, VECTORS, Vector, each, named, unhex
from tests.interop.second_reader import Malformed

BAD = [vector for vector in VECTORS if vector.name.startswith("malformed/")]
# They want keys: see `test_second_reader_sealed` and `test_second_reader_streams`.
WANT_KEYS = second_reader_sealed.FAMILIES + second_reader_streams.FAMILIES
KEYED = [vector for vector in VECTORS if vector.name.startswith(WANT_KEYS)]
GOOD = [vector for vector in VECTORS if vector not in BAD and vector not in KEYED]

to_server = partial(second_reader_control.read_message, receiver="server")
to_client = partial(second_reader_control.read_message, receiver="client")
counts_to_server = partial(second_reader_control.what_counts, receiver="server")
counts_to_client = partial(second_reader_control.what_counts, receiver="client")

# What an example is, by the beginning of its name.
READERS: dict[str, Callable[[bytes], dict[str, Any]]] = {
    "client/": to_server,
    "server/": to_client,
    "member/": to_server,
    "announcement/": second_reader_control.read_announcement,
    "malformed/announcement/": second_reader_control.read_announcement,
    "plain/client/": to_server,
    "plain/server/": to_client,
    "parameter/": second_reader_control.read_parameter,
    "roster/": second_reader_control.read_roster,
    "transport/hello": second_reader_control.read_hello,
    "transport/message": second_reader_control.read_carried,
    "datagram/": second_reader.read_datagram,
    "frame/": second_reader.read_frame,
    "acks/": second_reader.read_acks,
    "array/": second_reader.read_array,
    "lenient/array/": second_reader.read_array,
    "malformed/array/": second_reader.read_array,
    "lenient/client/": counts_to_server,
    "lenient/server/": counts_to_client,
    "lenient/datagram/": second_reader.read_datagram,
    "malformed/transport/": second_reader_control.read_connection_from_pub,
    "vouched/": second_reader_control.read_vouched,
    "malformed/vouched/": second_reader_control.read_vouched,
    "signed/": second_reader_control.read_signed,
    "malformed/signed/": second_reader_control.read_signed,
    "malformed/to-server/": to_server,
    "malformed/to-client/": to_client,
    "malformed/datagram/": second_reader.read_datagram,
    "stream/": second_reader_streams.read_stream,
    "feedback/": second_reader_streams.read_feedback,
    "record/": second_reader_streams.read_record,
    "membership/": second_reader_streams.read_member,
    "history/": second_reader_streams.read_frame,
    "history-hello/": second_reader_streams.read_hello,
    "history-salt/": second_reader_streams.read_salt,
    "request/": second_reader_requests.read_request,
    "malformed/request/": second_reader_requests.read_request,
    "group/": second_reader_groups.read_group,
    "malformed/group/": second_reader_groups.read_group,
    "status/": second_reader_watching.read_status,
    "malformed/status/": second_reader_watching.read_status,
    "watch/": second_reader_watching.read_watch,
    "malformed/watch/": second_reader_watching.read_watch,
    "malformed/stream/": second_reader_streams.read_stream,
    "malformed/feedback/": second_reader_streams.read_feedback,
    "malformed/record/": second_reader_streams.read_record,
    "malformed/membership/": second_reader_streams.read_member,
    "malformed/history/": second_reader_streams.read_frame,
}

# What `fields` says beside what is in the bytes: from what they were made.
BESIDE = {
    "roster": {"peers"},
    "announcement": {"secret"},
    "acks": {"first", "received"},
    "signed": {"server_secret", "cluster_secret"},
}


def reader_of(vector: Vector) -> Callable[[bytes], dict[str, Any]]:
    """Find the one reader of an example."""
    (reader,) = [READERS[start] for start in READERS if vector.name.startswith(start)]
    return reader


def test_no_example_is_left_out() -> None:
    assert len(VECTORS) > 0
    assert all(f"\n- `{vector.name}`\n" in TEXT for vector in VECTORS)
    assert len(GOOD) + len(BAD) + len(KEYED) == len(VECTORS)
    assert len({vector.name for vector in VECTORS}) == len(VECTORS)
    assert all(reader_of(vector) for vector in GOOD + BAD)
    assert all(named(start) for start in READERS)


each_reader = cases.each("start", READERS)


def read_by(start: str, vectors: list[Vector]) -> list[Vector]:
    return [vector for vector in vectors if vector.name.startswith(start)]


@each_reader
def test_an_example_reads_as_the_page_says_and_a_shorter_one_as_something_else(start: str) -> None:
    reader = READERS[start]
    for vector in read_by(start, GOOD):
        beside = BESIDE.get(vector.name.partition("/")[0], set())
        expected = {key: value for key, value in vector.fields.items() if key not in beside}
        whole = reader(vector.data)
        assert whole == expected, vector.name
        if vector.name.startswith(("acks/", "lenient/")):
            continue
        for size in range(len(vector.data)):
            with suppress(Malformed):
                assert reader(vector.data[:size]) != whole, f"{vector.name}, {size} bytes of it"


@each_reader
def test_a_malformed_example_is_dropped(start: str) -> None:
    for vector in read_by(start, BAD):
        assert vector.fields.keys() == {"why"}
        with suppress(Malformed):
            raise AssertionError(f"{vector.name} reads as {READERS[start](vector.data)}")


@each(named("roster/"))
def test_a_roster_is_made_of_its_peers(vector: Vector) -> None:
    peers = [second_reader_control.peer_data(peer) for peer in vector.fields["peers"]]
    digest = second_reader_control.roster_of(peers)
    assert digest == {"count": vector.fields["count"], "mix": vector.fields["mix"]}


@each([vector for vector in GOOD if vector.fields.get("id") == 12])
def test_a_peer_is_written_as_it_was_read(vector: Vector) -> None:
    assert second_reader_control.peer_data(vector.fields) == vector.data[4:]


@each(named("acks/"))
def test_acks_are_those_of_what_was_received(vector: Vector) -> None:
    first, received = vector.fields["first"], vector.fields["received"]
    ack, bits = vector.fields["ack"], vector.fields["ack_bits"]
    assert second_reader.acks_after(first, received) == (ack, bits)
    highest = max(received, default=first - 1)
    assert second_reader.unwrap(ack, highest) == highest
    seen = {sequence for sequence in received if sequence > highest - 32}
    assert second_reader.acked(highest, bits) == seen


def test_bytes_in_parentheses_are_repeated() -> None:
    assert unhex("01 (02 03)*2\n  (ff)*0 04") == bytes.fromhex("010203020304")


def test_a_connection_from_a_pub_is_read() -> None:
    spoken = {vector.name: vector.data for vector in named("transport/")}
    data = spoken["transport/hello PUB"] + spoken["transport/message"] * 2
    heard = second_reader_control.read_connection_from_pub(data)
    assert heard == {"messages": [spoken["transport/message"][8:].hex()] * 2}


def test_messages_of_equal_lengths_say_what_a_run_says() -> None:
    run = second_reader.read_frame(bytes.fromhex("0600000002000100 6162"))
    told_apart = second_reader.read_frame(bytes.fromhex("01000000020001000100 6162"))
    assert told_apart == {**run, "kind": 1}


def test_the_examples_of_types_are_made_of_the_lines_of_the_page() -> None:
    section = TEXT.partition("\n### Types of messages\n")[2].partition("\n#")[0]
    lines = section.partition("```text\n")[2].partition("\n```")[0].split("\n")
    (connect,) = [vector.fields for vector in VECTORS if vector.fields.get("digests")]
    assert connect["offer"]["schema_hash"] == second_reader.schema_hash_of(lines)
    assert connect["digests"] == [second_reader.digest_of(line) for line in lines]
    (refuse,) = named("datagram/REFUSE SCHEMA")[:1]
    assert refuse.fields["digest"] == second_reader.digest_of(lines[1])
    theirs = [lines[0], refuse.fields["line"]]
    assert refuse.fields["schema_hash"] == second_reader.schema_hash_of(theirs)


def test_unwrap_examples() -> None:
    section = TEXT.partition("\n### Unwrap examples\n")[2].partition("\n#")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    examples = [tuple(map(int, row)) for row in rows[2:]]
    assert examples
    for short, reference, full in examples:
        assert second_reader.unwrap(short, reference) == full


# What the page says in words, without an example.

CLIENT = bytes.fromhex("79563412")
SERVER = bytes.fromhex("e0ac6824")
ANY = bytes(4)


def parameter(number: int, data: bytes) -> bytes:
    return number.to_bytes(2, "little") + len(data).to_bytes(2, "little") + data


def message(simulation: bytes, sender: bytes, command: int, *parameters: bytes) -> bytes:
    return simulation + sender + command.to_bytes(2, "little") + b"".join(parameters)


NONCE = parameter(3, bytes(8))
BLOB = parameter(11, bytes(4096))
REVISION = parameter(10, bytes(4))
STATE = parameter(5, b"\1")


@pytest.mark.parametrize(
    ("reader", "data"),
    [
        pytest.param(to_client, message(CLIENT, SERVER, 0x19, NONCE), id="STATUS without PART"),
        pytest.param(to_client, message(ANY, SERVER, 1, STATE, parameter(5, b"")), id="2nd STATE"),
        pytest.param(
            partial(second_reader.read_datagram, max_datagram=256),
            bytes.fromhex("10100f0e0d0000f9ff00000000") + b"\4" * 244,
            id="a DATA over max_datagram",
        ),
    ],
)
def test_dropped_by_the_words_of_the_page(
    reader: Callable[[bytes], dict[str, Any]], data: bytes
) -> None:
    with pytest.raises(Malformed):
        reader(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(message(CLIENT, CLIENT, 1, parameter(5, b"\x07")), id="a STATE nobody takes"),
        pytest.param(message(CLIENT, CLIENT, 6, BLOB, REVISION, NONCE), id="in any order"),
        pytest.param(message(ANY, SERVER, 1, parameter(2, b"\xff" * 4)), id="unknown FEATURES"),
        pytest.param(
            message(CLIENT, CLIENT, 0x100, parameter(0x100, bytes(65536 - 14))), id="65536 bytes"
        ),
    ],
)
def test_read_by_the_words_of_the_page(data: bytes) -> None:
    assert to_server(data)["parameters"]
