"""Mallory is not on the path: it guesses, or was told, and sends from anywhere as anybody."""

import resource
from pathlib import Path
from random import Random

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.frames import (
    Close,
    Credit,
    Frame,
    Header,
    Messages,
    Ping,
    encode_data,
    encode_frames,
)
from sphtp.core.channel.handshake import (
    Accept,
    Connect,
    Refusal,
    Refuse,
    encode_accept,
    encode_connect,
    encode_refuse,
)
from sphtp.core.channel.lifecycle import CloseReason, State
from sphtp.core.channel.noise import Answer, Greet, encode_answer, encode_greet
from sphtp.core.channel.path_validation import encode_path
from sphtp.core.channel.security import PeerPin
from sphtp.core.channel.stateless_reset import encode_reset
from sphtp.core.datagrams import KINDS, VERSION, Datagrams, Kind, encode_front
from sphtp.testing import Faults
from tests.attack.channel.mallory import answers, watch
from tests.core.channel.sealed import LEFT, RIGHT, SealedPair, identity
from tests.core.channel.talk import offer
from tests.core.channel.test_responder import addresses
from tests.soaked import soaked

KNOWN = PeerPin(identity("right").public)


def lies(to: int, token: int) -> list[bytes]:
    """What could be said to a connection by somebody who knows all but the keys."""
    frames: list[list[Frame]] = [
        [Messages(0, 0, [b"forged"])],
        [Close(CloseReason.DONE, "")],
        [Credit(1, 1)],
        [Ping()],
    ]
    header = Header(2, 0, 0xFFFF)
    data = [encode_data(to, header) + encode_frames(it) for it in ([], *frames)]
    in_a_seal = [
        encode_front(Kind.SEALED, to) + counter.to_bytes(8, "little") + it + bytes(16)
        for it in data
        for counter in (0, 3, 1000, 2**20, 2**64 - 1)
    ]
    return [
        *data,
        *in_a_seal,
        encode_connect(Connect(token, 0, offer(77))),
        encode_accept(to, Accept(token, offer(77))),
        *(encode_refuse(to, Refuse(token, why)) for why in (Refusal.GONE, Refusal.DENIED, 99)),
        encode_answer(Kind.COOKIE, to, Answer(token, bytes(16))),
        encode_answer(Kind.WELCOME, to, Answer(token, bytes(96))),
        encode_greet(Greet(to, token, 2, bytes(16), bytes(200))),
        encode_greet(Greet(to, token, 1, bytes(16), bytes(200))),
        encode_front(Kind.CONFIRM, 0) + to.to_bytes(4, "little") + bytes(100),
        encode_reset(to, bytes(16)),
        encode_path(Kind.CHALLENGE, to, 1),
        encode_path(Kind.RESPONSE, to, 1),
        b"",
    ]


def sure(pair: SealedPair, left: Connection, right: Connection) -> None:
    """All is as if nobody had said anything."""
    for connection, sent in ((left, b"to the right"), (right, b"to the left")):
        other = right if connection is left else left
        assert connection.state is State.OPEN
        assert pair.transfer(connection, other, [sent] * 3) == [sent] * 3
        figures = connection.port.statistics()
        assert (figures.malformed, figures.forged_acks, figures.foreign_address) == (0, 0, 0)
    assert (left.address, right.address) == (RIGHT, LEFT)


@pytest.mark.parametrize("known", [True, False])
def test_lies_to_an_open_channel_change_nothing(known: bool):
    pair = SealedPair(1)
    left, right = pair.open(KNOWN if known else PeerPin())
    pair.run(0.5)
    token = left.handshake.token
    for endpoint, own, peer, there in (
        (pair.left, left, right, RIGHT),
        (pair.right, right, left, LEFT),
    ):
        for source in (there, ("10.6.6.6", 6), RIGHT, LEFT):
            for name in (own.connection_id, peer.connection_id, 0, 4711):
                for lie in lies(name, token):
                    endpoint.handle_datagrams_untrusted(pair.now, Datagrams.of(source, lie))
                    endpoint.handle_datagrams_untrusted(
                        pair.now, Datagrams(source, lie * 3, len(lie) or 1)
                    )
    sure(pair, left, right)
    assert len(pair.left.connections) == len(pair.right.connections) == 1
    pair.run(10)
    sure(pair, left, right)
    for endpoint in (pair.left, pair.right):
        assert len(endpoint.connections) == 1
        assert endpoint.half_open == 0


@pytest.mark.parametrize("known", [True, False])
def test_lies_to_an_attempt_change_nothing(known: bool):
    """The address that it asks, its connection id and its token are all known."""
    pair = SealedPair(1, Faults(delay=0.05))
    left = pair.left.dial(0.0, [RIGHT], 0, KNOWN if known else PeerPin())
    for _ in range(6):
        pair.run(0.03)
        for lie in lies(left.connection_id, left.handshake.token):
            pair.left.handle_datagrams_untrusted(pair.now, Datagrams.of(RIGHT, lie))
            pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, lie))
    pair.drive(lambda: pair.right.has_incoming, 4)
    right = pair.right.poll_incoming()
    assert right is not None
    pair.run(1)
    sure(pair, left, right)


def test_what_has_been_seen_changes_nothing_when_it_comes_again():
    """All that ever went to right comes a second time, from anywhere, in any order."""
    pair = SealedPair(1)
    seen = watch(pair)
    left, right = pair.open(PeerPin())
    assert pair.transfer(left, right, [b"%d" % number for number in range(300)])
    pair.run(0.1)
    old = [it for _, destination, it in seen if destination == RIGHT]
    Random(1).shuffle(old)
    before = right.port.statistics()
    for source in (LEFT, ("10.6.6.6", 6)):
        for datagram in old:
            pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(source, datagram))
    sealed = sum(it[0] & 0x0F == Kind.SEALED for it in old)
    assert pair.right.handshake_counters.replayed == 2 * sealed
    assert right.port.statistics().received == before.received
    assert pair.right.handshake_counters.paths_tried == 0
    sure(pair, left, right)


def test_noise_raises_nothing_and_keeps_nothing(seed: int):
    random, pair = Random(seed), SealedPair(seed)
    left, right = pair.open(PeerPin())
    pair.run(0.5)
    names = [left.connection_id, right.connection_id, 0, 4711]
    for _ in range(5000):
        size = random.choice((0, 1, 4, 5, 12, 13, 28, 29, 30, 60, 192, 300, 1200))
        front = bytes([VERSION << 4 | random.choice([*KINDS, 14, 15])])
        front += random.choice(names).to_bytes(4, "little")
        data = (front + random.randbytes(size))[: size + 1]
        row = Datagrams(random.choice((LEFT, RIGHT)), data, random.randrange(1, len(data) + 2))
        for endpoint in (pair.left, pair.right):
            endpoint.handle_datagrams_untrusted(pair.now, row)
            while endpoint.poll_transmit(pair.now) is not None:
                pass
    sure(pair, left, right)
    for endpoint in (pair.left, pair.right):
        assert len(endpoint.connections) == 1
        assert endpoint.half_open <= 1


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.parametrize("sources", [4000, *soaked([100_000])])
def test_a_flood_of_handshakes_holds_nothing_up_and_fills_nothing(sources: int):
    """20,000 a second for so many, while an open channel sends a message every millisecond."""
    pair = SealedPair(1)
    left, right = pair.open(KNOWN)
    pair.run(0.5)
    heard: list[bytes] = []
    before = resident_bytes()
    for number, source in enumerate(addresses(sources)):
        cookie = number.to_bytes(16, "little")
        greet = Greet(1 + number, number, 1 + number % 3, cookie, bytes(200))
        (answer,) = answers(pair, pair.right, source, encode_greet(greet))
        assert len(answer) == 29
        if number % 20 == 0:
            pair.send(left, b"%06d" % number)
            pair.run(0.001)
            heard += pair.receive(right)
    on_its_way = 30
    sent = sources // 20
    assert len(heard) >= sent - on_its_way, "a delay of 10 ms, and no more"
    assert heard == [b"%06d" % (20 * number) for number in range(len(heard))]
    assert resident_bytes() - before < 1000 * sources
    pair.run(1)
    assert len(heard) + len(pair.receive(right)) == sent
    assert pair.right.half_open == 0
    sure(pair, left, right)
