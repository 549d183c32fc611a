"""Messages of requests: whole, cut, and changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.requests.wire import (
    LONGEST_TEXT,
    CancelMessage,
    ErrorMessage,
    ErrorReason,
    GoodbyeMessage,
    Message,
    ReplyMessage,
    RequestMessage,
    decode_message_untrusted,
    encode_message,
)
from sphtp.errors import RemoteError
from tests.cases import each

MESSAGES: list[Message] = [
    RequestMessage(0, "load", b""),
    RequestMessage(2**32 - 1, "x" * 255, b"value", 1.5),
    CancelMessage(7),
    ReplyMessage(7, b"value"),
    ErrorMessage(7, ErrorReason.UNKNOWN),
    ErrorMessage(7, ErrorReason.APPLICATION, "NotFound", "no such step", b"\x07"),
    GoodbyeMessage(),
]
messages = st.sampled_from(MESSAGES)


@each("message", MESSAGES)
def test_what_is_sent_is_read(message: Message) -> None:
    data = encode_message(message)
    assert decode_message_untrusted(data) == message
    assert type(decode_message_untrusted(data)) is type(message)


def changed(message: Message, at: int, bit: int) -> bytes:
    data = bytearray(encode_message(message))
    data[at % len(data)] ^= 1 << bit
    return bytes(data)


@given(
    st.binary(max_size=40)
    | st.builds(changed, messages, st.integers(0, 300), st.integers(0, 7))
    | st.builds(lambda it, size: encode_message(it)[:size], messages, st.integers(0, 300))
)
def test_anything_else_is_a_message_or_refused(data: bytes) -> None:
    try:
        message = decode_message_untrusted(data)
    except RemoteError:
        return
    again = decode_message_untrusted(encode_message(message))
    assert again[0:1] == message[0:1]


def test_a_goodbye_has_nothing_behind_it() -> None:
    with pytest.raises(RemoteError):
        decode_message_untrusted(encode_message(GoodbyeMessage()) + b"\0")


@each(
    ("seconds", "read"),
    [(0.0, 0.001), (0.0001, 0.001), (1.0, 1.0), (1.0001, 1.001), (4294967.295, 4294967.295)],
)
def test_the_time_that_is_left_is_rounded_up_to_milliseconds(seconds: float, read: float) -> None:
    message = decode_message_untrusted(encode_message(RequestMessage(1, "load", b"", seconds)))
    assert isinstance(message, RequestMessage)
    assert message.time_left == pytest.approx(read)


def test_more_time_than_fits_is_any_time() -> None:
    message = decode_message_untrusted(encode_message(RequestMessage(1, "load", b"", 1e12)))
    assert message == RequestMessage(1, "load", b"")


def test_the_text_of_an_error_is_cut_and_printable() -> None:
    long = ErrorMessage(1, ErrorReason.APPLICATION, "E" * 300, "é" * LONGEST_TEXT)
    cut = decode_message_untrusted(encode_message(long))
    assert cut == ErrorMessage(1, ErrorReason.APPLICATION, "E" * 255, "é" * (LONGEST_TEXT // 2))
    rude = ErrorMessage(1, ErrorReason.APPLICATION, "E", "no\x1b[31m\n")
    read = decode_message_untrusted(encode_message(rude))
    assert isinstance(read, ErrorMessage)
    assert read.text == r"no\u001b[31m\u000a"
