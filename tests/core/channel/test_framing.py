"""Every frame: its bytes, its limits, and what bytes that are no frame do."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.frames import (
    ACK_DELAY_OVERHEAD,
    CREDIT_OVERHEAD,
    DATA,
    DELAY_STEP,
    FRAGMENT_OVERHEAD,
    LONGEST_DELAY,
    MAX_CLOSE_TEXT,
    MESSAGES_OVERHEAD,
    SKIP_OVERHEAD,
    UNRELIABLE_OVERHEAD,
    AckDelay,
    Close,
    Credit,
    Fragment,
    Frame,
    FrameKind,
    Header,
    Messages,
    Padding,
    Ping,
    Skip,
    Unreliable,
    decode_frames_untrusted,
    decode_packet_untrusted,
    encode_data,
    encode_frames,
)
from sphtp.core.wire import LENGTH_OVERHEAD
from sphtp.errors import RemoteError
from tests.cases import each

VECTORS: list[tuple[Frame, str]] = [
    (Messages(0x83, 0x0102, [b"ab", b""]), "01 83 0201 0200 0200 0000 6162"),
    (Messages(0, 0x0102, [b"ab"]), "06 00 0201 0100 0200 6162"),
    (Messages(5, 0xFFFF, [b"ab", b"cd", b"ef"]), "06 05 ffff 0300 0200 6162 6364 6566"),
    (Fragment(1, 0x0102, 7, 300, b"abc"), "02 01 0201 07000000 2c010000 0300 616263"),
    (Skip(2, 0x0102, 0x01020304), "08 02 0201 04030201"),
    (Unreliable(0x80, 0x0102, [b"", b"a"]), "03 80 0201 0200 0000 0100 61"),
    (Ping(), "04"),
    (Credit(0x01020304, 0x05060708090A0B0C), "07 04030201 0c0b0a0908070605"),
    (AckDelay(0.0015), "0a 0f00"),
    (Close(1, "why"), "05 01 03 776879"),
]

lanes = st.integers(0, 255)
u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFFFFFF)
payloads = st.lists(st.binary(max_size=20), min_size=1, max_size=5)
frames = st.one_of(
    st.builds(Messages, lanes, u16, payloads),
    st.builds(Unreliable, lanes, u16, payloads),
    st.builds(
        lambda lane, number, before, payload, behind: Fragment(
            lane, number, before, before + len(payload) + behind, payload
        ),
        lanes,
        u16,
        st.integers(0, 2**31),
        st.binary(min_size=1, max_size=20),
        st.integers(0, 2**30),
    ),
    st.builds(Skip, lanes, u16, u32),
    st.builds(Credit, u32, st.integers(0, 2**64 - 1)),
    st.integers(0, 65_535).map(lambda steps: AckDelay(steps * DELAY_STEP)),
    st.just(Ping()),
    st.builds(Close, st.integers(0, 255), st.text("abcé€", max_size=30)),
)


@each(("frame", "layout"), VECTORS)
def test_the_layout_is_this(frame: Frame, layout: str) -> None:
    assert encode_frames([frame]) == bytes.fromhex(layout)
    assert decode_frames_untrusted(bytes.fromhex(layout)) == [frame]


def test_padding_takes_the_rest_of_its_packet() -> None:
    assert encode_frames([Padding(5)]) == bytes.fromhex("09 00000000")
    assert decode_frames_untrusted(bytes.fromhex("04 09 01020304")) == [Ping(), Padding(5)]
    assert decode_frames_untrusted(bytes.fromhex("09")) == [Padding(1)]


def test_frames_start_behind_a_header() -> None:
    assert decode_frames_untrusted(bytes.fromhex("ffffff 04"), 3) == [Ping()]


def test_every_kind_has_a_vector() -> None:
    kinds = {bytes.fromhex(layout)[0] for _, layout in VECTORS}
    assert kinds | {FrameKind.PADDING} == set(FrameKind)


@each(("frame", "layout"), VECTORS)
def test_every_truncation_is_refused(frame: Frame, layout: str) -> None:
    data = bytes.fromhex(layout)
    for length in range(1, len(data)):
        with pytest.raises(RemoteError):
            decode_frames_untrusted(data[:length])


@each(("frame", "layout"), VECTORS)
def test_trailing_bytes_are_refused(frame: Frame, layout: str) -> None:
    for tail in ("00", "0b", "ff", "01", "07"):
        with pytest.raises(RemoteError):
            decode_frames_untrusted(bytes.fromhex(layout + tail))


@each(
    "layout",
    [
        "01 00 0000 0000",  # no messages
        "03 00 0000 0000",  # none either
        "06 00 0000 0000 0100",  # nor here
        "02 00 0000 00000000 00000000 0000",  # nothing of nothing
        "02 00 0000 00000000 05000000 0000",  # nothing of something
        "02 00 0000 05000000 05000000 0100 61",  # beyond the end
        "02 00 0000 ffffffff ffffffff 0100 61",  # far beyond
    ],
)
def test_what_makes_no_sense_is_refused(layout: str) -> None:
    with pytest.raises(RemoteError):
        decode_frames_untrusted(bytes.fromhex(layout))


def test_a_flood_of_empty_messages_is_refused_before_it_takes_memory() -> None:
    """Eight bytes could say 65,535 messages, and a packet has room for thousands of that."""
    run = struct.pack("<BBHHH", FrameKind.RUN, 0, 0, 65_535, 0)
    with pytest.raises(RemoteError, match="65535 messages in a packet of 64000 bytes"):
        decode_frames_untrusted(run * 8000)
    honest = Messages(0, 0, [b""] * 500)
    assert decode_frames_untrusted(encode_frames([honest]).ljust(1184, b"\4"))[0] == honest


def test_the_overheads_are_what_they_cost() -> None:
    cost = LENGTH_OVERHEAD + 1
    assert len(encode_frames([Messages(0, 0, [b"a"])])) == MESSAGES_OVERHEAD + cost
    assert len(encode_frames([Messages(0, 0, [b"a", b""])])) == MESSAGES_OVERHEAD + 2 + cost
    assert len(encode_frames([Unreliable(0, 0, [b"a"])])) == UNRELIABLE_OVERHEAD + cost
    assert len(encode_frames([Fragment(0, 0, 0, 1, b"a")])) == FRAGMENT_OVERHEAD + 1
    assert len(encode_frames([Skip(0, 0, 0)])) == SKIP_OVERHEAD
    assert len(encode_frames([Credit(0, 0)])) == CREDIT_OVERHEAD
    assert len(encode_frames([AckDelay(0)])) == ACK_DELAY_OVERHEAD


@given(payloads)
def test_a_row_of_messages_never_costs_more_than_was_reckoned(row: list[bytes]) -> None:
    reckoned = MESSAGES_OVERHEAD + LENGTH_OVERHEAD * len(row) + sum(map(len, row))
    assert len(encode_frames([Messages(0, 0, row)])) <= reckoned


def test_no_frames_are_an_ack() -> None:
    assert decode_frames_untrusted(b"") == []
    front = encode_data(1, Header(2, 3, 4))
    rows: list[tuple[list[Frame], float, list[Frame]]] = [
        ([], 0.0, []),
        ([AckDelay(1)], 1.0, []),
        ([Ping()], 0.0, [Ping()]),
        ([AckDelay(1), Padding(9)], 1.0, [Padding(9)]),
    ]
    for row, delay, asking in rows:
        packet = decode_packet_untrusted(encode_frames(row, front))
        assert (packet.ack_delay, packet.frames) == (delay, asking)


@each(("delay", "told"), [(0, 0), (0.00014, 0.0001), (1, 1), (6.5535, 6.5535), (99, LONGEST_DELAY)])
def test_a_delay_is_told_in_steps(delay: float, told: float) -> None:
    (frame,) = decode_frames_untrusted(encode_frames([AckDelay(delay)]))
    assert isinstance(frame, AckDelay)
    assert frame.delay == pytest.approx(told)


@pytest.mark.parametrize("text", ["x" * 500, "é" * 500, "x" + "é" * 500, "€" * 500])
def test_a_long_reason_is_cut_between_characters(text: str) -> None:
    (close,) = decode_frames_untrusted(encode_frames([Close(1, text)]))
    assert isinstance(close, Close)
    assert text.startswith(close.text)
    assert MAX_CLOSE_TEXT - 4 < len(close.text.encode()) <= MAX_CLOSE_TEXT


def test_a_reason_that_is_not_text_is_carried_as_far_as_it_is() -> None:
    assert decode_frames_untrusted(bytes.fromhex("05 01 02 61ff")) == [Close(1, "a\ufffd")]
    assert encode_frames([Close(1, "a\ud800")]) == bytes.fromhex("05 01 02 613f")


@given(st.lists(frames, max_size=6))
def test_what_is_encoded_is_decoded(row: list[Frame]) -> None:
    assert decode_frames_untrusted(encode_frames(row)) == row


@given(st.binary(max_size=200))
def test_random_bytes_raise_only_remote_errors(data: bytes) -> None:
    try:
        row = decode_frames_untrusted(data)
    except RemoteError:
        return
    assert len(row) <= len(data)


@given(st.lists(frames, min_size=1, max_size=4), st.data())
def test_a_flipped_bit_raises_only_remote_errors(row: list[Frame], data: st.DataObject) -> None:
    encoded = bytearray(encode_frames(row))
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    try:
        decode_frames_untrusted(bytes(encoded))
    except RemoteError:
        return


@given(st.binary(max_size=12), st.integers(0, 12), st.integers(0, 3), st.integers(0, 20))
def test_a_packet_is_read_as_its_frames_are(
    rest: bytes, kind: int, count: int, length: int
) -> None:
    """Whether or not its frame fills it; that it is no such packet shows either way."""
    fields = bytes([kind, 3]) + b"".join(it.to_bytes(2, "little") for it in (9, count, length))
    datagram = encode_data(5, Header(1, 2, 3)) + fields + rest
    try:
        row = decode_frames_untrusted(datagram, DATA.size)
    except RemoteError:
        with pytest.raises(RemoteError):
            decode_packet_untrusted(datagram)
        return
    packet = decode_packet_untrusted(datagram)
    assert (packet.sequence, packet.ack, packet.ack_bits) == (1, 2, 3)
    assert (packet.size, packet.number) == (len(datagram), 1)
    said = [frame for frame in row if not isinstance(frame, AckDelay)]
    assert sorted(map(repr, packet.frames)) == sorted(map(repr, said))
