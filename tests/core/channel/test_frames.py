"""Every frame: its bytes, its limits, and what bytes that are no frame do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.frames import (
    FRAGMENT_OVERHEAD,
    LENGTH_OVERHEAD,
    MAX_CLOSE_TEXT,
    MESSAGES_OVERHEAD,
    UNRELIABLE_OVERHEAD,
    Close,
    Fragment,
    Frame,
    Messages,
    Ping,
    Unreliable,
    decode_frames_untrusted,
    encode_frames,
)
from sphtp.errors import RemoteError

VECTORS: list[tuple[Frame, str]] = [
    (Messages(0x0102, [b"ab", b""]), "01 0201 02 0200 6162 0000"),
    (Fragment(0x0102, 3, 4, b"abc"), "02 0201 0300 0400 0300 616263"),
    (Unreliable([b"", b"a"]), "03 02 0000 0100 61"),
    (Ping(), "04"),
    (Close(1, "why"), "05 01 03 776879"),
]

u16 = st.integers(0, 0xFFFF)
payloads = st.lists(st.binary(max_size=20), min_size=1, max_size=5)
indices = u16.flatmap(lambda count: st.tuples(st.integers(0, max(count - 1, 0)), st.just(count)))
frames = st.one_of(
    st.builds(Messages, u16, payloads),
    st.builds(
        lambda message_id, part, payload: Fragment(message_id, part[0], part[1], payload),
        u16,
        indices.filter(lambda part: part[1] > 0),
        st.binary(min_size=1, max_size=20),
    ),
    st.builds(Unreliable, payloads),
    st.just(Ping()),
    st.builds(Close, st.integers(0, 255), st.text("abcé€", max_size=30)),
)


@pytest.mark.parametrize(("frame", "layout"), VECTORS)
def test_the_layout_is_this(frame: Frame, layout: str) -> None:
    assert encode_frames([frame]) == bytes.fromhex(layout)
    assert decode_frames_untrusted(bytes.fromhex(layout)) == [frame]


@pytest.mark.parametrize(("frame", "layout"), VECTORS)
def test_every_truncation_is_refused(frame: Frame, layout: str) -> None:
    data = bytes.fromhex(layout)
    for length in range(1, len(data)):
        with pytest.raises(RemoteError):
            decode_frames_untrusted(data[:length])


@pytest.mark.parametrize(("frame", "layout"), VECTORS)
@pytest.mark.parametrize("tail", ["00", "06", "ff", "01"])
def test_trailing_bytes_are_refused(frame: Frame, layout: str, tail: str) -> None:
    with pytest.raises(RemoteError):
        decode_frames_untrusted(bytes.fromhex(layout + tail))


@pytest.mark.parametrize(
    "layout",
    [
        "01 0000 00",  # no messages
        "03 00",  # none either
        "02 0000 0000 0000 0100 61",  # part 0 of 0
        "02 0000 0200 0200 0100 61",  # part 2 of 2
        "02 0000 0000 0200 0000",  # an empty part
    ],
)
def test_what_makes_no_sense_is_refused(layout: str) -> None:
    with pytest.raises(RemoteError):
        decode_frames_untrusted(bytes.fromhex(layout))


def test_the_overheads_are_what_they_cost() -> None:
    assert len(encode_frames([Messages(0, [b"a"])])) == MESSAGES_OVERHEAD + LENGTH_OVERHEAD + 1
    assert len(encode_frames([Unreliable([b"a"])])) == UNRELIABLE_OVERHEAD + LENGTH_OVERHEAD + 1
    assert len(encode_frames([Fragment(0, 0, 1, b"a")])) == FRAGMENT_OVERHEAD + 1


def test_no_frames_are_an_ack() -> None:
    assert decode_frames_untrusted(b"") == []


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
