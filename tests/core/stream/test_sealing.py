"""Seals of streams: one for all receivers, and a new key when one leaves."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.datagrams import Datagrams
from sphtp.core.stream.membership import StreamKey
from sphtp.core.stream.sealing import (
    FeedbackSeal,
    FeedbackUnsealer,
    SealCounters,
    SourceSeal,
    StreamUnsealer,
    TcpSeal,
    draw_key,
    envelope,
    fetch_keys,
)
from sphtp.core.stream.wire import (
    STREAM_HEADER,
    decode_feedback_header_untrusted,
    decode_stream_header_untrusted,
)
from sphtp.errors import RemoteError

BODIES = [b"first", b"second", b"third"]


def sealed(seal: SourceSeal, bodies: Sequence[bytes]) -> list[bytes]:
    rows = [Datagrams(("", 0), data, size) for data, size in seal.seal(bodies)]
    return [datagram for row in rows for datagram in row.datagrams]


def opened(opener: StreamUnsealer, datagrams: list[bytes]) -> list[bytes]:
    return [body for datagram in datagrams for body in opener.open(datagram, len(datagram))]


def key_of(seal: SourceSeal) -> StreamKey:
    assert seal.key is not None
    return seal.key


def test_every_receiver_opens_what_was_sealed_once() -> None:
    seal = SourceSeal(4711, Random(1))
    openers = [StreamUnsealer(seal.key, SealCounters()) for _ in range(3)]
    datagrams = sealed(seal, BODIES)
    assert [decode_stream_header_untrusted(one)[0] for one in datagrams] == [4711] * 3
    overhead = envelope(is_sealed=True)
    assert [len(one) - overhead for one in datagrams] == list(map(len, BODIES))
    assert not any(body in datagram for datagram in datagrams for body in BODIES)
    for opener in openers:
        assert opened(opener, datagrams) == BODIES


def test_a_receiver_that_comes_late_opens_what_follows() -> None:
    seal, counters = SourceSeal(1, Random(1)), SealCounters()
    before = sealed(seal, BODIES)
    opener = StreamUnsealer(seal.key, counters)
    assert opened(opener, sealed(seal, BODIES)) == BODIES
    assert opened(opener, before) == BODIES, "those that were overtaken, too: it has their key"
    assert (counters.forged, counters.replayed) == (0, 0)


@pytest.fixture
def short_epochs(monkeypatch: pytest.MonkeyPatch) -> int:
    """Epochs of eight datagrams instead of a million; return how many these are."""
    monkeypatch.setattr("sphtp.core.secure.seal.EPOCH_BITS", 3)
    return 8


@pytest.mark.parametrize("before_the_end", [0, 1])
def test_a_receiver_may_come_where_an_epoch_ends(short_epochs: int, before_the_end: int) -> None:
    seal = SourceSeal(1, Random(1))
    for _ in range(short_epochs - before_the_end):
        seal.seal(BODIES[:1])
    opener = StreamUnsealer(seal.key, SealCounters())
    assert opened(opener, sealed(seal, BODIES)) == BODIES


def test_a_receiver_may_have_heard_nothing_for_fifteen_epochs(short_epochs: int) -> None:
    seal, counters = SourceSeal(1, Random(1)), SealCounters()
    opener = StreamUnsealer(seal.key, counters)
    for _ in range(15 * short_epochs):
        seal.seal(BODIES[:1])
    assert opened(opener, sealed(seal, BODIES)) == BODIES
    for _ in range(17 * short_epochs):
        seal.seal(BODIES[:1])
    assert opened(opener, sealed(seal, BODIES)) == []
    assert counters.forged == len(BODIES)


def test_who_left_cannot_open_what_follows_and_who_stays_can() -> None:
    seal, counters = SourceSeal(1, Random(1)), SealCounters()
    staying, left = StreamUnsealer(seal.key, SealCounters()), StreamUnsealer(seal.key, counters)
    overtaken = sealed(seal, BODIES[:1])
    seal.renew()
    staying.learn(key_of(seal))
    datagrams = sealed(seal, BODIES)
    assert opened(left, datagrams) == []
    assert counters.unknown_key == 3
    assert opened(staying, datagrams) == BODIES
    assert opened(staying, overtaken) == BODIES[:1], "it was sealed before the new key"


def test_only_two_keys_are_kept_and_numbers_begin_anew() -> None:
    seal = SourceSeal(1, Random(1))
    opener = StreamUnsealer(seal.key, SealCounters())
    for _ in range(600):
        seal.renew()
        opener.learn(key_of(seal))
        assert opened(opener, sealed(seal, BODIES)) == BODIES


def test_replayed_and_forged_datagrams_are_counted() -> None:
    seal, counters = SourceSeal(1, Random(1)), SealCounters()
    opener = StreamUnsealer(seal.key, counters)
    (datagram,) = sealed(seal, BODIES[:1])
    assert opened(opener, [datagram, datagram]) == BODIES[:1]
    assert counters.replayed == 1
    for place in range(STREAM_HEADER.size, len(datagram)):
        changed = bytearray(sealed(seal, BODIES[:1])[0])
        changed[place] ^= 1
        assert opened(opener, [bytes(changed)]) == []
    assert counters.forged + counters.replayed == 1 + len(datagram) - STREAM_HEADER.size


def test_in_the_clear_a_body_is_what_follows_the_front() -> None:
    seal, opener = SourceSeal(9, None), StreamUnsealer(None, SealCounters())
    assert seal.key is None
    assert seal.renew() is None
    row = seal.seal([b"abc", b"def", b"g"])[0]
    assert opener.open(*row) == [b"abc", b"def", b"g"]


@pytest.mark.parametrize("entropy", [None, Random(1)], ids=["clear", "sealed"])
@given(bodies=st.lists(st.sampled_from([b"x", b"yy", b"zz", b"a" * 40]), max_size=12))
def test_rows_hold_equal_sizes_and_at_most_one_shorter_at_the_end(
    entropy: Random | None, bodies: list[bytes]
) -> None:
    seal = SourceSeal(9, entropy)
    opener, overhead = StreamUnsealer(seal.key, SealCounters()), envelope(is_sealed=bool(entropy))
    rows = seal.seal(bodies)
    assert [body for data, size in rows for body in opener.open(data, size)] == bodies
    for data, size in rows:
        assert size > overhead
        assert len(data) % size == 0 or len(data) % size > overhead


@pytest.mark.parametrize("key", [b"", draw_key(Random(1))])
def test_feedback_is_for_the_source_alone(key: bytes) -> None:
    seal, opener = FeedbackSeal(5, 6, key), FeedbackUnsealer(key, SealCounters())
    datagram = seal.seal(b"nak")
    assert decode_feedback_header_untrusted(datagram) == (5, 6)
    assert opener.open(datagram, len(datagram)) == [b"nak"]
    other = FeedbackUnsealer(bytes(32), counters := SealCounters())
    assert other.open(datagram, len(datagram)) == []
    assert counters.forged == 1


@pytest.mark.parametrize("frame", [b"", b"?", bytes(24), bytes(100)])
def test_a_frame_that_nobody_sealed_is_refused_however_short(frame: bytes) -> None:
    counters = SealCounters()
    seal = TcpSeal(*fetch_keys(draw_key(Random(1)), bytes(32)), counters)
    with pytest.raises(RemoteError, match="not sealed"):
        seal.open_untrusted(frame)
    assert counters.forged == bool(frame)
