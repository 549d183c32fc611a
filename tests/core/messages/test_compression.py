"""Compression: what is deflated comes back, and nothing inflates beyond its limit."""

import tracemalloc
import zlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.messages import Compression, MessageFactory, PlainMessages
from sphtp.errors import RemoteError, SettingsError
from tests.core.messages.kinds import Shot, Step

LIMIT = 4096


@dataclass
class Note:
    text: str


squeezing = MessageFactory([Note, Shot, Step], compression=Compression(100, LIMIT))
plain = PlainMessages(compression=Compression(100, LIMIT))


def raw_deflate(data: bytes) -> bytes:
    deflating = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflating.compress(data) + deflating.flush()


@given(st.binary(max_size=LIMIT), st.integers(1, 9))
def test_round_trip(data: bytes, level: int) -> None:
    compression = Compression(threshold=0, max_size=LIMIT, level=level)
    deflated = compression.deflate(data, None)
    assert deflated is None or compression.inflate_untrusted(deflated) == data
    assert compression.inflate_untrusted(raw_deflate(data)) == data


def test_a_message_is_deflated_from_the_threshold_on_or_when_told() -> None:
    short, long = Note("a" * 50), Note("a" * 500)
    assert squeezing.encode(short)[0] & 1 == 0
    assert squeezing.encode(short, compress=True)[0] == 1
    assert squeezing.encode(long)[0] == 1
    assert squeezing.encode(long, compress=False)[0] & 1 == 0
    assert len(squeezing.encode(long)) < 30
    for compress in (None, True, False):
        for note in (short, long):
            assert squeezing.decode_untrusted(squeezing.encode(note, compress=compress)) == note


def test_what_does_not_shrink_or_is_too_large_goes_as_it_is() -> None:
    assert squeezing.encode(Shot(), compress=True) == squeezing.encode(Shot(), compress=False)
    for size in range(30):
        deflated = Compression().deflate(b"a" * size, True)
        assert deflated is None or len(deflated) + 1 < size, "with the byte that says so"
    large = Note("a" * LIMIT)
    data = squeezing.encode(large, compress=True)
    assert data[0] & 1 == 0
    assert squeezing.decode_untrusted(data) == large


def test_plain_messages_have_a_byte_of_their_own() -> None:
    value = ["x"] * 200
    data = plain.encode(value)
    assert data[:1] == b"\xc1"
    assert plain.decode_untrusted(data) == value
    assert PlainMessages().encode(value) == plain.encode(value, compress=False)
    with pytest.raises(RemoteError):
        PlainMessages().decode_untrusted(data)


@pytest.mark.parametrize(("codec", "mark"), [(squeezing, b"\x01"), (plain, b"\xc1")])
def test_a_bomb_is_defused(codec, mark: bytes) -> None:
    bomb = mark + raw_deflate(bytes(8 << 20))
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(RemoteError, match=f"more than {LIMIT} bytes"):
            codec.decode_untrusted(bomb)
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()


def test_the_limit_is_a_limit() -> None:
    compression = Compression(max_size=LIMIT)
    assert len(compression.inflate_untrusted(raw_deflate(bytes(LIMIT)))) == LIMIT
    with pytest.raises(RemoteError):
        compression.inflate_untrusted(raw_deflate(bytes(LIMIT + 1)))


def test_a_message_is_not_deflated_twice() -> None:
    inner = squeezing.encode(Note("a" * 500))
    assert squeezing.decode_untrusted(inner) == Note("a" * 500)
    with pytest.raises(RemoteError):
        squeezing.decode_untrusted(b"\x01" + raw_deflate(inner))
    with pytest.raises(RemoteError):
        plain.decode_untrusted(b"\xc1" + raw_deflate(plain.encode([1] * 500)))


@given(st.binary(max_size=60))
def test_made_up_bytes_are_refused_or_a_message(tail: bytes) -> None:
    try:
        assert type(squeezing.decode_untrusted(b"\x01" + tail)) in squeezing.types
    except RemoteError:
        return


def test_deflated_bytes_cut_or_followed_are_refused() -> None:
    data = squeezing.encode(Note("abcdefgh" * 80))
    for cut in range(len(data)):
        with pytest.raises(RemoteError):
            squeezing.decode_untrusted(data[:cut])
    with pytest.raises(RemoteError):
        squeezing.decode_untrusted(data + b"\0")
    with pytest.raises(RemoteError):
        squeezing.decode_untrusted(b"\x03" + data[1:])


@pytest.mark.parametrize("wrong", [{"threshold": -1}, {"max_size": 0}, {"level": 0}, {"level": 10}])
def test_wrong_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError):
        Compression(**wrong)
