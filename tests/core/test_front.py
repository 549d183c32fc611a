"""The front of a datagram, byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.datagrams import FRONT, KINDS, VERSION, Kind, decode_front_untrusted, encode_front
from sphtp.errors import RemoteError
from tests.cases import each

KNOWN = {VERSION << 4 | kind for kind in KINDS}


def test_the_layout_is_this() -> None:
    assert encode_front(Kind.CONNECT, 0) == bytes.fromhex("11 00000000")
    assert encode_front(Kind.ACCEPT, 0x11223344) == bytes.fromhex("12 44332211")
    assert encode_front(Kind.STREAM, 0x11223344) == bytes.fromhex("1c 44332211")
    assert FRONT.size == 5


@each("kind", Kind)
def test_what_is_encoded_is_decoded(kind: Kind) -> None:
    assert decode_front_untrusted(encode_front(kind, 4711) + b"more") == (kind, 4711)


@each("length", range(FRONT.size))
def test_a_short_front_is_refused(length: int) -> None:
    with pytest.raises(RemoteError, match=f"{length} bytes"):
        decode_front_untrusted(encode_front(Kind.DATA, 1)[:length])


def test_other_versions_and_kinds_are_refused() -> None:
    for first in set(range(256)) - KNOWN:
        with pytest.raises(RemoteError, match=r"version|kind"):
            decode_front_untrusted(bytes([first]) + bytes(12))


@given(st.binary(max_size=40))
def test_random_bytes_raise_only_remote_errors(data: bytes) -> None:
    try:
        decode_front_untrusted(data)
    except RemoteError:
        return
