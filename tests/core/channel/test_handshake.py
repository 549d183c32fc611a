"""CONNECT, ACCEPT and REFUSE, byte by byte."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.handshake import (
    CONNECT_SIZE,
    REFUSE_HEAD,
    Accept,
    Connect,
    Refusal,
    Refuse,
    TransportParameters,
    decode_accept_untrusted,
    decode_connect_untrusted,
    decode_refuse_untrusted,
    encode_accept,
    encode_connect,
    encode_refuse,
)
from sphtp.core.channel.settings import SMALLEST_DATAGRAM
from sphtp.core.schema import Mismatch
from sphtp.errors import RemoteError, WireError
from tests.cases import each

OFFER = TransportParameters(
    connection_id=0x11223344,
    peer_id=0x55667788,
    first_sequence=0x0102,
    receive_buffer=0x0304,
    receive_buffer_bytes=0x0A0B0C0D,
    max_datagram=0x0506,
    max_message=0x0708090A,
    schema_hash=0x1112131415161718,
)
TOKEN = 0x0102030405060708
OFFER_BYTES = bytes.fromhex("44332211 88776655 0201 0403 0d0c0b0a 0605 0a090807 1817161514131211")
TOKEN_BYTES = bytes.fromhex("0807060504030201")

CONNECT = (
    bytes.fromhex("11 00000000") + TOKEN_BYTES + bytes.fromhex("0d0c0b0a") + OFFER_BYTES + b"\0"
)
ACCEPT = bytes.fromhex("12 efbeadde") + TOKEN_BYTES + OFFER_BYTES
REFUSE = bytes.fromhex("13 efbeadde") + TOKEN_BYTES + bytes([2])
MISMATCH = Mismatch(0x2122232425262728, 0x31323334, "Äpfel")
TYPES = REFUSE[:-1] + bytes.fromhex("04 2827262524232221 34333231") + "Äpfel".encode()

DECODERS: list[Callable[[bytes], object]] = [
    decode_connect_untrusted,
    decode_accept_untrusted,
    decode_refuse_untrusted,
]


def test_the_layout_is_this() -> None:
    connect = Connect(TOKEN, 0x0A0B0C0D, OFFER)
    assert encode_connect(connect) == CONNECT.ljust(64, b"\0")
    assert encode_accept(0xDEADBEEF, Accept(TOKEN, OFFER)) == ACCEPT
    assert encode_refuse(0xDEADBEEF, Refuse(TOKEN, 2)) == REFUSE
    assert encode_refuse(0xDEADBEEF, Refuse(TOKEN, 4, MISMATCH)) == TYPES


def test_what_is_encoded_is_decoded() -> None:
    assert decode_connect_untrusted(CONNECT.ljust(64, b"\0")) == Connect(TOKEN, 0x0A0B0C0D, OFFER)
    assert decode_accept_untrusted(ACCEPT) == Accept(TOKEN, OFFER)
    assert decode_refuse_untrusted(REFUSE) == Refuse(TOKEN, 2)
    assert decode_refuse_untrusted(TYPES) == Refuse(TOKEN, 4, MISMATCH)


def test_digests_fill_the_room_there_is_and_no_more() -> None:
    digests = tuple(range(1, 1000))
    for size, count in ((64, 4), (65, 4), (68, 5), (1200, 255), (60_000, 255)):
        data = encode_connect(Connect(TOKEN, 0, OFFER, digests, size))
        assert len(data) == size
        assert data[47] == count
        assert decode_connect_untrusted(data) == Connect(TOKEN, 0, OFFER, digests[:count], size)


def test_digests_that_the_datagram_does_not_hold_are_refused() -> None:
    for count, fits in ((4, True), (5, False), (255, False)):
        data = bytearray(CONNECT.ljust(64, b"\0"))
        data[47] = count
        with nullcontext() if fits else pytest.raises(RemoteError):
            decode_connect_untrusted(bytes(data))


@given(st.text(), st.integers(CONNECT_SIZE, 1200))
def test_a_line_is_cut_to_the_room_there_is(line: str, room: int) -> None:
    line = line.encode("utf-8", "ignore").decode()
    data = encode_refuse(1, Refuse(TOKEN, Refusal.SCHEMA, Mismatch(1, 2, line)), room)
    assert len(data) == min(room, REFUSE_HEAD + len(line.encode()))
    mismatch = decode_refuse_untrusted(data).mismatch
    assert mismatch is not None
    if len(data) < room:
        assert mismatch.line == line
    assert line.startswith(mismatch.line.removesuffix("...").rstrip("\ufffd"))


def test_no_answer_is_longer_than_the_question() -> None:
    assert len(ACCEPT) < CONNECT_SIZE
    assert len(REFUSE) < CONNECT_SIZE
    assert len(REFUSE) < len(ACCEPT), "an ACCEPT can be answered by a REFUSE"
    assert len(ACCEPT) > REFUSE_HEAD, "with SCHEMA, too"


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (decode_connect_untrusted, CONNECT.ljust(64, b"\0")),
        (decode_accept_untrusted, ACCEPT),
        (decode_refuse_untrusted, REFUSE),
        (decode_refuse_untrusted, TYPES[:REFUSE_HEAD]),
    ],
)
def test_every_truncation_is_refused(decode: Callable[[bytes], object], data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(RemoteError):
            decode(data[:length])


@pytest.mark.parametrize(
    ("decode", "data"), [(decode_accept_untrusted, ACCEPT), (decode_refuse_untrusted, REFUSE)]
)
def test_trailing_bytes_are_refused(decode: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(RemoteError, match="too many"):
        decode(data + b"\0")


def test_padding_of_a_connect_may_be_anything() -> None:
    assert decode_connect_untrusted(CONNECT.ljust(1200, b"x")) == Connect(
        TOKEN, 0x0A0B0C0D, OFFER, (), 1200
    )


@each(
    "nonsense",
    [
        {"connection_id": 0},
        {"receive_buffer": 0},
        {"max_message": 0},
        {"max_datagram": 0},
        {"max_datagram": SMALLEST_DATAGRAM - 1},
    ],
)
def test_an_offer_that_nobody_can_use_is_refused(nonsense: dict[str, Any]) -> None:
    offer = replace(OFFER, **nonsense)
    with pytest.raises(RemoteError):
        decode_connect_untrusted(encode_connect(Connect(TOKEN, 0, offer)))
    with pytest.raises(RemoteError):
        decode_accept_untrusted(encode_accept(1, Accept(TOKEN, offer)))


def test_a_value_that_does_not_fit_is_this_sides_mistake() -> None:
    with pytest.raises(WireError):
        encode_connect(Connect(1 << 64, 0, OFFER))


@given(st.binary(max_size=100))
def test_random_bytes_raise_only_remote_errors(data: bytes) -> None:
    for decode in DECODERS:
        try:
            decode(data)
        except RemoteError:
            continue


@given(st.integers(0, CONNECT_SIZE * 8 - 1))
def test_a_flipped_bit_raises_only_remote_errors(bit: int) -> None:
    data = bytearray(CONNECT.ljust(CONNECT_SIZE, b"\0"))
    data[bit // 8] ^= 1 << bit % 8
    for decode in DECODERS:
        try:
            decode(bytes(data))
        except RemoteError:
            continue
