"""The datagrams of the sealed handshake: there and back, cut anywhere, and with bytes behind."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.noise import (
    COOKIE_SIZE,
    SMALLEST_GREET,
    Answer,
    Confirm,
    Greet,
    decode_answer_untrusted,
    decode_confirm_untrusted,
    decode_greet_untrusted,
    decode_stranger_untrusted,
    encode_answer,
    encode_confirm,
    encode_greet,
)
from sphtp.core.channel.path_validation import decode_path_untrusted, encode_path
from sphtp.core.channel.stateless_reset import RESET_SIZE, decode_reset_untrusted, encode_reset
from sphtp.core.datagrams import VERSION, Kind, decode_front_untrusted
from sphtp.errors import RemoteError
from tests.cases import each

GREET = Greet(0x01020304, 0x1112131415161718, 2, bytes(range(16)), bytes(160))
CONFIRM = Confirm(0x01020304, 0x1112131415161718, b"noise")
ANSWER = Answer(0x1112131415161718, b"content")
u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)

Decoder = Callable[[bytes], Any]
FIXED: list[tuple[bytes, Decoder, int]] = [
    (encode_path(Kind.CHALLENGE, 5, 6), decode_path_untrusted, 13),
    (encode_path(Kind.RESPONSE, 5, 6), decode_path_untrusted, 13),
    (encode_reset(5, bytes(16)), decode_reset_untrusted, RESET_SIZE),
]
OPEN_ENDED: list[tuple[bytes, Decoder, int]] = [
    (encode_greet(GREET), decode_greet_untrusted, SMALLEST_GREET),
    (encode_confirm(CONFIRM), decode_confirm_untrusted, 17),
    (encode_answer(Kind.WELCOME, 5, ANSWER), decode_answer_untrusted, 13),
]


@given(u32.filter(bool), u64, st.integers(0, 255), st.binary(min_size=16, max_size=16), st.data())
def test_a_greet_is_read_as_it_was_written(
    opener: int, token: int, pattern: int, cookie: bytes, data: st.DataObject
):
    noise = data.draw(st.binary(min_size=158, max_size=200))
    greet = Greet(opener, token, pattern, cookie, noise)
    datagram = encode_greet(greet)
    assert decode_greet_untrusted(datagram) == greet
    assert decode_front_untrusted(datagram) == (Kind.GREET, 0)


@given(u32, u64, st.binary(max_size=99), st.sampled_from([Kind.COOKIE, Kind.WELCOME]))
def test_the_others_are_read_as_they_were_written(to: int, token: int, noise: bytes, kind: Kind):
    confirm = Confirm(to, token, noise)
    assert decode_confirm_untrusted(encode_confirm(confirm)) == confirm
    answer = encode_answer(kind, to, Answer(token, noise))
    assert decode_answer_untrusted(answer) == Answer(token, noise)
    assert decode_front_untrusted(answer) == (kind, to)
    assert decode_path_untrusted(encode_path(Kind.CHALLENGE, to, token)) == token
    proof = noise.ljust(16, b"\0")[:16]
    assert decode_reset_untrusted(encode_reset(to, proof)) == proof


@each(("datagram", "decode", "smallest"), FIXED + OPEN_ENDED)
def test_one_that_is_cut_is_refused(datagram: bytes, decode: Decoder, smallest: int):
    for size in range(smallest):
        with pytest.raises(RemoteError):
            decode(datagram[:size])
    for size in range(smallest, len(datagram) + 1):
        decode(datagram[:size])


@pytest.mark.parametrize(("datagram", "decode", "size"), FIXED)
def test_one_of_fixed_size_has_nothing_behind_it(datagram: bytes, decode: Decoder, size: int):
    assert len(datagram) == size
    with pytest.raises(RemoteError):
        decode(datagram + b"\0")


def test_a_greet_of_nobody_is_refused():
    with pytest.raises(RemoteError, match="connection id 0"):
        decode_greet_untrusted(encode_greet(GREET._replace(opener=0)))


def test_a_greet_of_another_version_is_known_by_its_first_bytes():
    datagram = encode_greet(GREET)
    for version in range(16):
        other = bytes([version << 4 | Kind.GREET]) + datagram[1:17] + bytes(range(200))
        said = decode_stranger_untrusted(other)
        assert said == (None if version == VERSION else (GREET.opener, GREET.token))
        for kind in range(16):
            if kind != Kind.GREET:
                assert decode_stranger_untrusted(bytes([version << 4 | kind]) + other[1:]) is None
        assert decode_stranger_untrusted(other[: SMALLEST_GREET - 1]) is None
    assert decode_stranger_untrusted(b"") is None


def test_cookies_have_one_size():
    assert len(GREET.cookie) == COOKIE_SIZE
