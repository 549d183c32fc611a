"""Seals of streams: one for all receivers, and a new key when one leaves."""

from random import Random

import pytest

from sphtp.core.secure.seal import EPOCH_BITS
from sphtp.core.stream.membership import StreamKey
from sphtp.core.stream.sealing import (
    FeedbackOpener,
    FeedbackSeal,
    SealCounters,
    SourceSeal,
    StreamOpener,
    draw_key,
    envelope,
)
from sphtp.core.stream.wire import (
    STREAM_FRONT,
    decode_feedback_front_untrusted,
    decode_stream_front_untrusted,
)

BODIES = [b"first", b"second", b"third"]


def opened(opener: StreamOpener, datagrams: list[bytes]) -> list[bytes]:
    return [body for datagram in datagrams for body in opener.open(datagram, len(datagram))]


def key_of(seal: SourceSeal) -> StreamKey:
    assert seal.key is not None
    return seal.key


def test_every_receiver_opens_what_was_sealed_once() -> None:
    seal = SourceSeal(4711, Random(1))
    openers = [StreamOpener(seal.key, SealCounters()) for _ in range(3)]
    datagrams = seal.seal(BODIES)
    assert [decode_stream_front_untrusted(one)[0] for one in datagrams] == [4711] * 3
    overhead = envelope(is_sealed=True)
    assert [len(one) - overhead for one in datagrams] == list(map(len, BODIES))
    assert not any(body in datagram for datagram in datagrams for body in BODIES)
    for opener in openers:
        assert opened(opener, datagrams) == BODIES


def test_a_receiver_that_comes_late_opens_what_follows() -> None:
    seal, counters = SourceSeal(1, Random(1)), SealCounters()
    before = seal.seal(BODIES)
    opener = StreamOpener(seal.key, counters)
    assert opened(opener, seal.seal(BODIES)) == BODIES
    assert opened(opener, before) == BODIES, "those that were overtaken, too: it has their key"
    assert (counters.forged, counters.replayed) == (0, 0)


@pytest.mark.parametrize("before_the_end", [0, 1])
def test_a_receiver_may_come_where_an_epoch_ends(before_the_end: int) -> None:
    seal = SourceSeal(1, Random(1))
    assert seal._sealer is not None
    seal._sealer._counter = (1 << EPOCH_BITS) - before_the_end
    opener = StreamOpener(seal.key, SealCounters())
    assert opened(opener, seal.seal(BODIES)) == BODIES


def test_who_left_cannot_open_what_follows_and_who_stays_can() -> None:
    seal, counters = SourceSeal(1, Random(1)), SealCounters()
    staying, left = StreamOpener(seal.key, SealCounters()), StreamOpener(seal.key, counters)
    overtaken = seal.seal(BODIES[:1])
    seal.renew()
    staying.learn(key_of(seal))
    datagrams = seal.seal(BODIES)
    assert opened(left, datagrams) == []
    assert counters.unknown_key == 3
    assert opened(staying, datagrams) == BODIES
    assert opened(staying, overtaken) == BODIES[:1], "it was sealed before the new key"


def test_only_two_keys_are_kept_and_numbers_begin_anew() -> None:
    seal = SourceSeal(1, Random(1))
    opener = StreamOpener(seal.key, SealCounters())
    for _ in range(600):
        seal.renew()
        opener.learn(key_of(seal))
        assert opened(opener, seal.seal(BODIES)) == BODIES
        assert len(opener._openers) <= 2


def test_replayed_and_forged_datagrams_are_counted() -> None:
    seal, counters = SourceSeal(1, Random(1)), SealCounters()
    opener = StreamOpener(seal.key, counters)
    (datagram,) = seal.seal(BODIES[:1])
    assert opened(opener, [datagram, datagram]) == BODIES[:1]
    assert counters.replayed == 1
    for place in range(STREAM_FRONT.size, len(datagram)):
        changed = bytearray(seal.seal(BODIES[:1])[0])
        changed[place] ^= 1
        assert opened(opener, [bytes(changed)]) == []
    assert counters.forged + counters.replayed == 1 + len(datagram) - STREAM_FRONT.size


def test_in_the_clear_a_body_is_what_follows_the_front() -> None:
    seal, opener = SourceSeal(9, None), StreamOpener(None, SealCounters())
    assert seal.key is None
    assert seal.renew() is None
    row = b"".join(seal.seal([b"abc", b"def", b"g"]))
    assert opener.open(row, STREAM_FRONT.size + 3) == [b"abc", b"def", b"g"]


@pytest.mark.parametrize("key", [b"", draw_key(Random(1))])
def test_feedback_is_for_the_source_alone(key: bytes) -> None:
    seal, opener = FeedbackSeal(5, 6, key), FeedbackOpener(key, SealCounters())
    datagram = seal.seal(b"nak")
    assert decode_feedback_front_untrusted(datagram) == (5, 6)
    assert opener.open(datagram, len(datagram)) == [b"nak"]
    assert FeedbackOpener(bytes(32), counters := SealCounters()).open(datagram, len(datagram)) == []
    assert counters.forged == 1
