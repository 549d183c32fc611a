"""Mallory takes somebody's place: under its connection id, at its address, with its own keys."""

from random import Random

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.frames import DATA, Header, Messages, encode_data, encode_frames
from sphtp.core.channel.handshake import (
    Accept,
    Connect,
    Refusal,
    Refuse,
    encode_accept,
    encode_connect,
    encode_refuse,
)
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.noise import Answer, decode_greet_untrusted, encode_answer, prologue
from sphtp.core.channel.path_validation import decode_path_untrusted, encode_path
from sphtp.core.channel.security import PeerPin
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import FRONT, Kind, encode_front
from sphtp.core.secure.noise_framework import IK, NoiseHandshake
from sphtp.testing.pair import Stage
from tests.attack.channel.mallory import Knocking, Sent, answers, kind_of, meddle, watch
from tests.cases import each
from tests.core.channel.sealed import LEFT, RIGHT, SealedPair, identity, keys_of, make_sealed
from tests.core.channel.talk import offer

KNOWN = PeerPin(identity("right").public)
MALLORY = ("10.6.6.6", 666)
PATIENT = ChannelSettings(connect_timeout=60)


class Chosen(Random):
    """Entropy of somebody who has a connection id as it likes."""

    connection_id: int | None = None

    def getrandbits(self, count: int, /) -> int:
        if count == 32 and self.connection_id is not None:
            return self.connection_id
        return super().getrandbits(count)


def make_trio() -> Stage:
    """Left, right, and Mallory with an honest endpoint; they deal with what they are told."""
    sides = {LEFT: "left", RIGHT: "right", MALLORY: "mallory"}
    return Stage(1, {address: make_sealed(name) for address, name in sides.items()})


def dial(stage: Stage, to: str, address: tuple[str, int]) -> Connection:
    """Open a channel from left to somebody whose key is known."""
    expectation = PeerPin(identity(to).public)
    dialled = stage.endpoints[LEFT].dial(stage.now, [address], 0, expectation)
    stage.drive(lambda: dialled.state is State.OPEN)
    stage.run(1)
    return dialled


@pytest.mark.parametrize("known", [True, False])
def test_a_visitor_keeps_its_place_until_it_is_known(known: bool):
    """All that is needed is on the path: its address, its connection id, its token."""
    pair = SealedPair(0, None, PATIENT)
    is_cut = True

    def cut(sent: Sent) -> list[Sent]:
        is_last = kind_of(sent[2]) is (Kind.WELCOME if known else Kind.SEALED)
        return [] if is_cut and is_last and sent[0] == RIGHT else [sent]

    seen = meddle(pair, cut)
    left = pair.left.dial(pair.now, [RIGHT], 0, KNOWN if known else PeerPin())
    pair.run(1)
    greet = decode_greet_untrusted(next(it for _, _, it in seen if kind_of(it) is Kind.GREET))
    for key in (identity("right").public, None):
        thief = Knocking(pair, pair.right, LEFT, greet.opener, greet.token, key=key)
        assert thief.enter() == []
    is_cut = False
    pair.drive(lambda: pair.right.has_incoming)
    right = pair.right.poll_incoming()
    assert right is not None
    assert right.peer_key == identity("left").public
    assert pair.transfer(left, right, [b"for right alone"]) == [b"for right alone"]
    assert pair.right.handshake_counters.denied == 2


def test_what_is_for_one_peer_is_not_sealed_for_another_with_its_connection_id():
    pair = SealedPair(0)
    is_cut = True

    def cut(sent: Sent) -> list[Sent]:
        return [] if is_cut and sent[0] == RIGHT and kind_of(sent[2]) is Kind.SEALED else [sent]

    seen = meddle(pair, cut)
    left = pair.left.dial(pair.now, [RIGHT], 0, KNOWN)
    pair.drive(lambda: left.state is State.OPEN)
    pair.run(0.1)
    peer = FRONT.unpack_from(next(it for _, _, it in seen if kind_of(it) is Kind.SEALED))[1]
    for key in (identity("left").public, None):
        thief = Knocking(pair, pair.left, RIGHT, peer, 7, key=key)
        answered = thief.enter()
        if answered and key is None:
            thief.confirm(answered[0])
    assert left.peer_key == identity("right").public
    is_cut = False
    pair.drive(lambda: pair.right.has_incoming)
    right = pair.right.poll_incoming()
    assert right is not None
    assert pair.transfer(left, right, [b"for right alone"]) == [b"for right alone"]


def test_a_peer_that_moves_does_not_take_over_what_goes_to_another():
    stage, chosen = make_trio(), Chosen(1)
    stage.endpoints[MALLORY] = make_sealed("mallory", entropy=chosen)
    left = stage.endpoints[LEFT]
    first = dial(stage, "right", RIGHT)
    peer = keys_of(first).peer
    mallory = stage.endpoints[MALLORY]
    chosen.connection_id = peer
    second = dial(stage, "mallory", MALLORY)
    keys = keys_of(*mallory.connections)
    ping = encode_data(second.connection_id, Header(9, 0, 1)) + b"\4"
    moved = keys.seal(LEFT, ping, len(ping)).data
    (challenge,) = answers(stage, left, RIGHT, moved)
    (plain,) = keys.unsealer.open(challenge, len(challenge))
    response = encode_path(Kind.RESPONSE, keys.peer, decode_path_untrusted(plain))
    answers(stage, left, RIGHT, keys.seal(LEFT, response, len(response)).data)
    assert first.peer_key == identity("right").public
    right = stage.endpoints[RIGHT].poll_incoming()
    assert right is not None
    assert stage.transfer(first, right, [b"x"]) == [b"x"]


def test_an_answer_serves_no_other_attempt_than_the_one_it_answers():
    """Left dials Mallory and, at the same time, right, whose answer is held back."""
    stage = Stage(1, {LEFT: make_sealed("left", settings=PATIENT)})
    left, seen = stage.endpoints[LEFT], watch(stage)
    meant = left.dial(0.0, [RIGHT], 0, KNOWN)
    other = left.dial(0.0, [MALLORY], 0, PeerPin(identity("mallory").public))
    stage.run(0.05)
    for to, token in (
        (meant.connection_id, meant.handshake.token),
        (meant.connection_id, other.handshake.token),
        (other.connection_id, meant.handshake.token),
    ):
        sent = next(it for _, where, it in reversed(seen) if where == MALLORY)
        greet = decode_greet_untrusted(sent)
        for inner in (
            encode_accept(to, Accept(token, offer(99))),
            encode_refuse(to, Refuse(token, Refusal.FULL)),
        ):
            handshake = NoiseHandshake(
                IK,
                initiator=False,
                identity=identity("mallory"),
                secrets=Random(1),
                prologue=prologue(IK, greet.opener, greet.token),
            )
            handshake.read_untrusted(greet.noise)
            noise = handshake.write(bytes(16) + inner)
            welcome = encode_answer(Kind.WELCOME, greet.opener, Answer(greet.token, noise))
            answers(stage, left, MALLORY, welcome)
            assert meant.state is State.CONNECTING
            assert meant.address is None
            assert all(kind_of(it) is Kind.GREET for _, _, it in seen)


def test_a_peer_refuses_no_channel_but_its_own():
    stage = make_trio()
    left, mallory = stage.endpoints[LEFT], stage.endpoints[MALLORY]
    own = dial(stage, "mallory", MALLORY)
    stage.endpoints.pop(RIGHT)
    meant = left.dial(stage.now, [RIGHT], 5, KNOWN)
    stage.run(0.1)
    keys = keys_of(*mallory.connections)
    assert keys.peer == own.connection_id
    refuse = encode_refuse(meant.connection_id, Refuse(meant.handshake.token, Refusal.SCHEMA))
    refuse += bytes(12)
    welcome = encode_answer(
        Kind.WELCOME, meant.connection_id, Answer(meant.handshake.token, bytes(16) + refuse)
    )
    for inner in (refuse, welcome):
        answers(stage, left, MALLORY, keys.seal(LEFT, inner, len(inner)).data)
        assert meant.state is State.CONNECTING
    assert left.counters.malformed == 2


@each("kind", [Kind.DATA, Kind.REFUSE, Kind.ACCEPT, Kind.GREET])
@each("is_known", [True, False])
def test_what_comes_in_a_handshake_is_a_connect_and_nothing_else(kind: Kind, is_known: bool):
    """A CONNECT by its fields, and by its front a message for somebody else's channel."""
    pair = SealedPair(0)
    _, right = pair.open(KNOWN)
    pair.run(1)
    # The token stands where sequence and acks do, the offer where frames do.
    header = Header(5, 0, 1)
    token = int.from_bytes(encode_data(0, header)[FRONT.size :], "little")
    frames = encode_frames([Messages(0, 0, [b"forged, forged"])])
    opener = int.from_bytes(frames[4:8], "little")
    connect = encode_connect(Connect(token, 0, offer(opener)))[DATA.size + 8 :]
    inner = encode_front(kind, right.connection_id) + encode_data(0, header)[FRONT.size :]
    inner += frames[:8] + connect
    key = identity("right").public if is_known else None
    thief = Knocking(pair, pair.right, LEFT, opener, token, key=key, connect=inner)
    before = right.port.statistics()
    answered = thief.enter()
    if not is_known:
        answered = thief.confirm(answered[0])
    assert answered == []
    after = right.port.statistics()
    assert (after.received, after.malformed) == (before.received, before.malformed)
    assert right.state is State.OPEN
    assert pair.right.counters.malformed == 1
    assert pair.right.half_open == 0


def test_what_is_sent_back_to_its_sender_does_not_prove_the_secret_of_a_group():
    """Right is not there; Mallory is in its place, and has nothing but a mirror."""
    pair = SealedPair(0, psk=bytes(32))
    mirrored = meddle(pair, lambda sent: [(sent[1], sent[0], sent[2])])
    left = pair.left.dial(pair.now, [RIGHT], 0, PeerPin())
    pair.run(20)
    assert {kind_of(datagram) for _, _, datagram in mirrored} >= {Kind.GREET, Kind.COOKIE}
    assert Kind.WELCOME in {kind_of(datagram) for _, _, datagram in mirrored}
    assert left.state is State.CLOSED
    assert not pair.left.has_incoming
