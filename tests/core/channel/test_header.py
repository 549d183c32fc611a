"""The seed's header, byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.frames import DATA, Header, decode_data_untrusted, encode_data
from sphtp.errors import RemoteError
from tests.cases import each

# version 1 and kind, connection id, then sequence, ack, ack_bits; little-endian.
DATA_PACKET = bytes.fromhex("10 44332211 0201 0403 08070605")
HEADER = Header(sequence=0x0102, ack=0x0304, ack_bits=0x05060708)


def test_the_layout_is_this() -> None:
    assert encode_data(0x11223344, HEADER) == DATA_PACKET
    assert DATA.size == 13


def test_what_is_encoded_is_decoded() -> None:
    assert decode_data_untrusted(DATA_PACKET + b"frames") == HEADER


@each("length", range(DATA.size))
def test_a_short_header_is_refused(length: int) -> None:
    with pytest.raises(RemoteError, match=f"{length} bytes"):
        decode_data_untrusted(DATA_PACKET[:length])


@given(st.binary(max_size=40))
def test_random_bytes_raise_only_remote_errors(data: bytes) -> None:
    try:
        decode_data_untrusted(data)
    except RemoteError:
        return
