"""Messages by which receivers join and leave: whole, cut, and changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.membership import (
    KEY_SIZE,
    Closing,
    Join,
    JoinRefused,
    Member,
    StreamKey,
    Welcome,
    decode_member_untrusted,
    encode_member,
)
from sphtp.core.stream.wire import Window
from sphtp.errors import RemoteError
from tests.cases import each

KEY = StreamKey(7, bytes(range(KEY_SIZE)), 2**40)
EMPTY = Window(-1, 0)
WIDE = Window(2**33, 2**33 - 5)

MESSAGES: list[Member] = [
    Join("positions"),
    Join("positions", 2**32 - 1, 2**40),
    Welcome(1, 2, 3, EMPTY, 0),
    Welcome(2**32 - 1, 2, 3, WIDE, 2**50, 1500, 4711, "239.1.2.3", 9000, KEY, bytes(32)),
    JoinRefused("there is no such topic"),
    KEY,
    Closing(WIDE, 2**50),
]  # fmt: skip
messages = st.sampled_from(MESSAGES)


@each("message", MESSAGES)
def test_what_is_said_is_understood(message: Member) -> None:
    data = encode_member(message)
    assert decode_member_untrusted(data) == message
    assert type(decode_member_untrusted(data)) is type(message)


@each("message", MESSAGES)
def test_cut_messages_are_refused_unless_they_are_text(message: Member) -> None:
    data = encode_member(message)
    for size in range(0 if type(message) is not JoinRefused else len(data), len(data)):
        with pytest.raises(RemoteError):
            decode_member_untrusted(data[:size])


@given(
    st.binary(max_size=120)
    | st.builds(
        lambda m, at, bit: flip(encode_member(m), at, bit),
        messages,
        st.integers(0, 200),
        st.integers(0, 7),
    )
)
def test_anything_else_is_a_message_or_refused(data: bytes) -> None:
    try:
        message = decode_member_untrusted(data)
    except RemoteError:
        return
    assert decode_member_untrusted(encode_member(message)) == message


def flip(data: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[at % len(data)] ^= 1 << bit
    return bytes(changed)


def test_text_that_nobody_can_print_is_made_printable() -> None:
    message = decode_member_untrusted(encode_member(JoinRefused("no\x1b[31m\n")))
    assert message == JoinRefused(r"no\u001b[31m\u000a")


def test_another_version_is_refused() -> None:
    data = bytearray(encode_member(Join("positions")))
    data[1] = 3
    with pytest.raises(RemoteError, match="version 3"):
        decode_member_untrusted(bytes(data))
