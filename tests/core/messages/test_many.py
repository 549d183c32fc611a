"""Many at a time: what is well-formed comes out as it does one by one, and nothing raises."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.messages import BitMessage, Compression, MessageFactory, PlainMessages
from sphtp.core.messages.codec import MessageCodec
from sphtp.errors import RemoteError, WireError
from tests.cases import each
from tests.core.messages.kinds import Shot, Step

SMALL = Compression(threshold=50, max_size=2000)


class Nothing(BitMessage):
    """Takes no bits of its own."""

    def serialize(self, stream: Any) -> None:
        pass


CODECS: list[MessageCodec] = [
    MessageFactory([Step, Shot]),
    MessageFactory([Step]),
    MessageFactory([Step, Shot, Nothing], compression=SMALL),
    PlainMessages(),
    PlainMessages(compression=SMALL),
]
MESSAGES = [Step(number, 0.5, "x" * 20 * number) for number in range(8)]


def one_by_one(codec: MessageCodec, payloads: Sequence[bytes]) -> list[str]:
    """Return what comes of each that is a message."""
    done = []
    for payload in payloads:
        try:
            done.append(repr(codec.decode_untrusted(payload)))
        except RemoteError:
            continue
    return done


@given(st.sampled_from(CODECS[:3]), st.lists(st.sampled_from(MESSAGES)))
def test_messages_come_back_in_order(codec: MessageCodec, sent: list[Step]) -> None:
    payloads = codec.encode_many(sent)
    assert payloads == [codec.encode(message) for message in sent]
    assert codec.decode_many_untrusted(payloads) == sent


@given(
    st.sampled_from(CODECS),
    st.lists(st.integers(0, 6) | st.binary(max_size=12), max_size=20),
)
def test_what_is_malformed_is_left_out(codec: MessageCodec, drawn: list[int | bytes]) -> None:
    plain = isinstance(codec, PlainMessages)
    good = [codec.encode(i) for i in range(3)] if plain else codec.encode_many(MESSAGES[:3])
    # A whole message with something before or behind it, and one that is cut.
    bad = [good[0] + good[1], good[2][:-1], b"\0" + good[0], good[1] + b"\0"]
    payloads = [(good + bad)[it] if isinstance(it, int) else it for it in drawn]
    decoded = codec.decode_many_untrusted(payloads)
    assert len(decoded) <= len(payloads)
    if all(payload in good for payload in payloads):
        assert list(map(repr, decoded)) == one_by_one(codec, payloads)


@each("codec", CODECS)
def test_one_that_does_not_fit_is_refused_with_all_beside_it(codec: MessageCodec) -> None:
    wrong = {1j} if isinstance(codec, PlainMessages) else object()
    with pytest.raises(WireError):
        codec.encode_many([MESSAGES[0], wrong])


def test_each_may_be_deflated() -> None:
    factory = CODECS[2]
    large, small = Step(1, 0.5, "x" * 1000), Step(1, 0.5, "x" * 40)
    assert [len(payload) < 100 for payload in factory.encode_many([large, small])] == [True, True]
    assert [len(one) > 1000 for one in factory.encode_many([large], compress=False)] == [True]
    assert factory.decode_many_untrusted(factory.encode_many([large, small], compress=True)) == [
        large,
        small,
    ]


@pytest.mark.parametrize("codec", [CODECS[0], CODECS[3]])
def test_without_compression_nothing_is_deflated(codec: MessageCodec) -> None:
    message = 1 if isinstance(codec, PlainMessages) else MESSAGES[0]
    for compress in (None, False):
        assert codec.encode(message, compress=compress) == codec.encode(message)
    with pytest.raises(WireError, match="no compression"):
        codec.encode(message, compress=True)
    with pytest.raises(WireError, match="no compression"):
        codec.encode_many([message], compress=True)


def test_how_many_may_be_inflated_at_once() -> None:
    assert Compression().most_at_once == 4
    assert Compression(max_size=64 << 20).most_at_once == 1
    assert Compression(max_size=1 << 30).most_at_once == 1
    assert Compression(max_size=1000).most_at_once == 4194


def test_payloads_are_what_the_page_of_the_wire_says() -> None:
    step = b"\x93\x01\xcb\x3f\xe0\0\0\0\0\0\0\xa1x"
    assert MessageFactory([Step]).encode(Step(1, 0.5, "x")) == step
    assert MessageFactory([Step, Shot]).encode(Step(1, 0.5, "x")) == b"\x01" + step
    squeezed = MessageFactory([Step, Shot], compression=SMALL)
    assert squeezed.encode(Step(1, 0.5, "x")) == b"\x02" + step
    assert MessageFactory([Nothing, Shot, Step]).encode(Nothing()) == b"\0"
    assert squeezed.encode(MESSAGES[7])[:1] == b"\x01"
    assert CODECS[4].encode("x" * 1000)[:1] == b"\xc1"
