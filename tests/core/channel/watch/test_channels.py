"""What is told of nodes and the lives of channels, and of datagrams thrown away."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.frames import Frame, Header, Messages, Ping, encode_data, encode_frames
from sphtp.core.channel.handshake import Connect, Refusal, encode_connect
from sphtp.core.channel.instrument import Drop
from sphtp.core.channel.lifecycle import CloseReason
from sphtp.core.channel.security import Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Datagrams
from sphtp.core.schema import Schema
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT
from tests.cases import each
from tests.core.channel.talk import offer
from tests.recorder import Recorder

NOWHERE = ("10.9.9.9", 9)


def watched_pair(**changes: Any) -> tuple[Pair, Recorder, Recorder]:
    here, there = Recorder(), Recorder()
    settings = ChannelSettings(**changes)
    return Pair(1, settings=settings, instrument=here, right_instrument=there), here, there


def test_both_sides_tell_of_the_opening_and_of_the_end_with_its_reason() -> None:
    pair, here, there = watched_pair()
    left, right = pair.open()
    pair.run(1)
    left.close(pair.now)
    pair.touch(left)
    pair.run(5)
    for recorder in (here, there):
        life = [name for name in recorder.names if name.startswith("channel_")]
        assert life == ["channel_opening", "channel_opened", "channel_closed"]
    [(_, channel, closed)] = here.of("channel_closed")
    assert (closed.reason, closed.by_peer) == (CloseReason.DONE, False)
    assert (channel.id, channel.is_dialled) == (left.connection_id, True)
    assert (channel.peer_id, channel.peer_address) == (3, RIGHT)
    [(when, channel, closed)] = there.of("channel_closed")
    assert (closed.reason, closed.by_peer) == (CloseReason.DONE, True)
    assert (channel.id, channel.is_dialled) == (right.connection_id, False)
    assert (channel.peer_id, channel.peer_address) == (1, LEFT)
    assert when < pair.now, "the end is told when it is known, not when lingering is over"


def test_a_peer_that_does_not_answer_ends_an_opening() -> None:
    pair, here, _ = watched_pair()
    pair.left.dial(pair.now, [NOWHERE])
    pair.run(10)
    assert here.names == ["channel_opening", "channel_closed"]
    [(when, channel, closed)] = here.of("channel_closed")
    assert closed.reason is CloseReason.UNREACHABLE
    assert when == ChannelSettings().connect_timeout
    assert channel.peer_address is None


@pytest.mark.parametrize("why", [Refusal.FULL, Refusal.WRONG_PEER, Refusal.GONE, Refusal.SCHEMA])
def test_a_refused_channel_is_told_by_both_sides(why: Refusal) -> None:
    pair, here, there = watched_pair(backlog=1)
    if why is Refusal.SCHEMA:
        schema, settings = Schema(["Step(number: integer)"]), ChannelSettings(backlog=1)
        pair.right = Endpoint(Random(2), settings, 3, schema, observer=there)
        pair.endpoints[RIGHT] = pair.right
    if why is Refusal.FULL:
        pair.left.dial(pair.now, [RIGHT])
        pair.run(1)
    if why is Refusal.GONE:
        pair.right.close(pair.now, "leaving")
    pair.left.dial(pair.now, [RIGHT], wanted=9 if why is Refusal.WRONG_PEER else 0)
    pair.run(1)
    assert [event[1:] for event in there.of("channel_refused")] == [(LEFT, why)]
    [(_, _, closed)] = here.of("channel_closed")
    is_by_types = why is Refusal.SCHEMA
    assert closed.reason is (CloseReason.SCHEMA if is_by_types else CloseReason.REFUSED)


def data(
    to: Connection, frames: list[Frame], *, sequence: int = 50, ack: int = 0, bits: int = 0
) -> bytes:
    return encode_data(to.connection_id, Header(sequence, ack, bits)) + encode_frames(frames)


BAD: dict[Drop, Callable[[Connection], bytes]] = {
    Drop.MALFORMED: lambda to: data(to, [Messages(64, 0, [b"a"])]),
    Drop.FOREIGN_ADDRESS: lambda to: data(to, [Ping()]),
    Drop.FORGED_ACK: lambda to: data(to, [Ping()], ack=300, bits=1),
    Drop.DUPLICATE: lambda to: data(to, [Ping()], sequence=0),
    Drop.TOO_OLD: lambda to: data(to, [Ping()], sequence=65_536 - 2000),
    Drop.TOO_EARLY: lambda to: data(to, [Messages(0, 20_000, [b"a"])]),
}


@each("why", BAD)
def test_what_is_wrong_with_a_datagram_for_a_channel_is_told(why: Drop) -> None:
    pair, _, there = watched_pair()
    _, right = pair.open()
    pair.run(0.5)
    assert not there.of("datagram_dropped")
    datagram = BAD[why](right)
    source = NOWHERE if why is Drop.FOREIGN_ADDRESS else LEFT
    pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(source, datagram))
    [channel] = there.last("channel_opened", 1)
    assert there.of("datagram_dropped") == [(pair.now, channel, source, len(datagram), why)]


def test_data_that_comes_before_its_channel_is_open_is_too_early() -> None:
    pair, here, _ = watched_pair()
    left = pair.left.dial(pair.now, [RIGHT])
    pair.left.handle_datagrams_untrusted(pair.now, Datagrams.of(RIGHT, data(left, [Ping()])))
    assert here.last("datagram_dropped", 4) == [Drop.TOO_EARLY]


@pytest.mark.parametrize(
    ("datagram", "why"),
    [(b"", Drop.MALFORMED), (b"\xff" * 20, Drop.MALFORMED), (b"\x10" * 20, Drop.UNKNOWN)],
)
def test_a_datagram_for_no_channel_is_told(datagram: bytes, why: Drop) -> None:
    pair, here, _ = watched_pair()
    pair.left.handle_datagrams_untrusted(1.0, Datagrams.of(NOWHERE, datagram))
    assert here.told == [("datagram_dropped", (1.0, None, NOWHERE, len(datagram), why))]


def test_a_good_datagram_after_a_bad_one_is_no_news() -> None:
    pair, here, _ = watched_pair()
    pair.left.handle_datagrams_untrusted(1.0, Datagrams.of(NOWHERE, b""))
    connect = encode_connect(Connect(token=1, wanted=0, offer=offer(1, 5)))
    pair.left.handle_datagrams_untrusted(1.0, Datagrams.of(NOWHERE, connect))
    assert here.names == ["datagram_dropped", "channel_opening"]


def test_a_peer_that_vanishes_is_told() -> None:
    pair, here, _ = watched_pair()
    pair.open()
    pair.network.set_default(Faults(blocked=True))
    pair.run(60)
    assert [closed.reason for closed in here.last("channel_closed")] == [CloseReason.VANISHED]


def test_a_sealed_node_tells_at_once_of_what_it_drops_and_refuses() -> None:
    recorder = Recorder()
    settings, security = ChannelSettings(), Security()
    endpoint = Endpoint(Random(1), settings, observer=recorder, security=security)
    sealed = bytes([0x18]) + bytes(60)
    endpoint.handle_datagrams_untrusted(1.0, Datagrams(LEFT, sealed + sealed, len(sealed)))
    endpoint.handle_datagrams_untrusted(2.0, Datagrams.of(LEFT, sealed[:20]))
    assert recorder.of("datagram_dropped") == [
        (1.0, None, LEFT, len(sealed), Drop.UNKNOWN),
        (1.0, None, LEFT, len(sealed), Drop.UNKNOWN),
        (2.0, None, LEFT, 20, Drop.MALFORMED),
    ]
