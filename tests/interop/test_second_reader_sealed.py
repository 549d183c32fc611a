"""The keys, seals and sessions of docs/reference/wire, read by the second reader."""

from itertools import pairwise

import pytest

from tests.interop import second_reader_sealed as sealed
from tests.interop.second_page import TEXT, Vector, each, named
from tests.interop.second_reader import Malformed, read_datagram

# It warns of ephemeral keys that are given, as those of recorded sessions are.
pytestmark = pytest.mark.filterwarnings("ignore:One of ephemeral keypairs:UserWarning")

SESSIONS = named("session/")


def spoken(vector: Vector) -> list[tuple[str, bytes]]:
    """Cut the bytes of a session into datagrams, by their sizes."""
    cut, at = [], 0
    for datagram in vector.fields["datagrams"]:
        cut.append((datagram["from"], vector.data[at : at + datagram["size"]]))
        at += datagram["size"]
    assert at == len(vector.data)
    return cut


def altered(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@each(SESSIONS)
def test_a_session_reads_as_the_page_says(vector: Vector) -> None:
    session = sealed.Session(vector.fields)
    assert list(session.read(spoken(vector))) == vector.fields["datagrams"]
    keys = vector.fields["keys"]
    assert session.keys["opener"].hex() == keys["to_answerer"]
    assert session.keys["answerer"].hex() == keys["to_opener"]


@each(SESSIONS)
def test_the_second_greeting_brings_the_cookie(vector: Vector) -> None:
    first, cookie, second, *_ = [data for _, data in spoken(vector)]
    assert cookie[13:].hex() == vector.fields["cookie"]
    assert first[18:34] == bytes(16)
    assert second == first[:18] + cookie[13:] + first[34:]


@each(SESSIONS)
def test_no_answer_is_longer_than_its_question(vector: Vector) -> None:
    kinds = [(data[0] & 15, len(data)) for _, data in spoken(vector)]
    for (asked, question), (told, answer) in pairwise(kinds):
        if asked in (sealed.GREET, sealed.CONFIRM) and told != sealed.GREET:
            assert answer < question


@each(SESSIONS)
def test_a_session_with_a_datagram_altered_is_not_read(vector: Vector) -> None:
    whole = spoken(vector)
    for number, (speaker, data) in enumerate(whole):
        for at in (0, 1, 5, 9, 12, 13, 17, 20, 28, len(data) - 1):
            changed = whole.copy()
            changed[number] = speaker, altered(data, at)
            with pytest.raises(Malformed):
                list(sealed.Session(vector.fields).read(changed))


@each(named("sealed/"))
def test_a_sealed_datagram_opens(vector: Vector) -> None:
    fields = vector.fields
    key, plain = bytes.fromhex(fields["key"]), bytes.fromhex(fields["plain"])
    assert sealed.open_sealed(key, fields["epoch"], vector.data) == plain
    read = read_datagram(vector.data)
    assert (read["connection_id"], read["counter"]) == (fields["connection_id"], fields["counter"])
    if fields["counter"] // sealed.EPOCH > fields["epoch"]:
        key = sealed.next_key(key)
    assert sealed.seal(key, fields["connection_id"], fields["counter"], plain) == vector.data


@each(named("sealed/"))
def test_a_sealed_datagram_with_any_byte_altered_does_not(vector: Vector) -> None:
    key = bytes.fromhex(vector.fields["key"])
    for at in range(len(vector.data)):
        with pytest.raises(Malformed):
            sealed.open_sealed(key, vector.fields["epoch"], altered(vector.data, at))


@each(named("epoch/"))
def test_the_next_key(vector: Vector) -> None:
    assert sealed.next_key(bytes.fromhex(vector.fields["key"])) == vector.data


@each(named("proof/"))
def test_the_proof_of_a_connection(vector: Vector) -> None:
    static = bytes.fromhex(vector.fields["static"])
    assert sealed.proof_of(static, vector.fields["connection_id"]) == vector.data


@each(named("prologue/"))
def test_the_prologue(vector: Vector) -> None:
    assert sealed.prologue(**vector.fields) == vector.data


def test_the_reader_knows_the_patterns_of_the_page() -> None:
    section = TEXT.partition("\n### Patterns\n")[2].partition("\n#")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    told = {int(row[0]): (row[1].strip(" `"), row[2].strip(" `").encode()) for row in rows[2:]}
    assert told == {n: (name, sealed.noise_name(n)) for n, name in sealed.PATTERNS.items()}
