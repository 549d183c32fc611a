"""The front of a datagram and the seed's header, byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.header import DATA, Header, decode_data_untrusted, encode_data
from sphtp.core.front import FRONT, Kind, decode_front_untrusted, encode_front
from sphtp.errors import RemoteError

# version 1 and kind, connection id, then sequence, ack, ack_bits; little-endian.
CONNECT = bytes.fromhex("11 00000000")
DATA_PACKET = bytes.fromhex("10 44332211 0201 0403 08070605")
HEADER = Header(sequence=0x0102, ack=0x0304, ack_bits=0x05060708)


def test_the_layout_is_this() -> None:
    assert encode_front(Kind.CONNECT, 0) == CONNECT
    assert encode_front(Kind.ACCEPT, 0x11223344) == bytes.fromhex("12 44332211")
    assert encode_front(Kind.REFUSE, 0x11223344) == bytes.fromhex("13 44332211")
    assert encode_data(0x11223344, HEADER) == DATA_PACKET
    assert (FRONT.size, DATA.size) == (5, 13)


def test_what_is_encoded_is_decoded() -> None:
    assert decode_front_untrusted(DATA_PACKET) == (Kind.DATA, 0x11223344)
    assert decode_data_untrusted(DATA_PACKET + b"frames") == HEADER


@pytest.mark.parametrize("length", range(FRONT.size))
def test_a_short_front_is_refused(length: int) -> None:
    with pytest.raises(RemoteError, match=f"{length} bytes"):
        decode_front_untrusted(DATA_PACKET[:length])


@pytest.mark.parametrize("length", range(DATA.size))
def test_a_short_header_is_refused(length: int) -> None:
    with pytest.raises(RemoteError, match=f"{length} bytes"):
        decode_data_untrusted(DATA_PACKET[:length])


@pytest.mark.parametrize("first", [byte for byte in range(256) if byte not in range(0x10, 0x1C)])
def test_other_versions_and_kinds_are_refused(first: int) -> None:
    with pytest.raises(RemoteError, match=r"version|kind"):
        decode_front_untrusted(bytes([first]) + DATA_PACKET[1:])


@given(st.binary(max_size=40))
def test_random_bytes_raise_only_remote_errors(data: bytes) -> None:
    for decode in (decode_front_untrusted, decode_data_untrusted):
        try:
            decode(data)
        except RemoteError:
            continue
