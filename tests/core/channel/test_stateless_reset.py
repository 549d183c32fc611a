"""Peers that forgot: told by a proof that nobody else has, once, and within a round trip."""

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.lifecycle import CloseReason, State
from sphtp.core.channel.security import HandshakeLimits, PeerPin
from sphtp.core.channel.stateless_reset import decode_reset_untrusted, encode_reset
from sphtp.core.datagrams import Address, Datagrams, Kind, encode_front
from sphtp.testing import Faults
from tests.attack.channel.mallory import answers, kind_of, watch
from tests.core.channel.sealed import (
    LEFT,
    RIGHT,
    SealedPair,
    check_forgotten,
    identity,
    keys_of,
    make_sealed,
)

WAYS = pytest.mark.parametrize(
    "expectation", [PeerPin(identity("right").public), PeerPin()], ids=["IK", "XX"]
)


def open_pair(expectation: PeerPin) -> tuple[SealedPair, Connection, Connection]:
    pair = SealedPair(1, Faults(delay=0.05))
    left, right = pair.open(expectation)
    pair.run(0.5)
    return pair, left, right


def restart(pair: SealedPair, name: str, seed: int = 2) -> None:
    address = LEFT if name == "left" else RIGHT
    pair.endpoints[address] = make_sealed(name, seed=seed)


@WAYS
@pytest.mark.parametrize("restarted", ["left", "right"])
def test_a_restarted_node_is_known_to_be_one_within_a_round_trip(
    expectation: PeerPin, restarted: str
):
    pair, left, right = open_pair(expectation)
    restart(pair, restarted)
    stays = left if restarted == "right" else right
    began = pair.now
    pair.send(stays, b"are you there?")
    pair.drive(lambda: stays.state is State.CLOSED)
    assert pair.now - began == pytest.approx(0.1)
    assert stays.closed is not None
    assert stays.closed.reason is CloseReason.VANISHED
    assert "has forgotten the channel: it restarted, or ended it" in stays.closed.text
    pair.run(20)
    for endpoint in pair.endpoints.values():
        check_forgotten(endpoint)


@WAYS
def test_a_node_with_another_identity_has_no_proof(expectation: PeerPin):
    pair, left, _ = open_pair(expectation)
    pair.endpoints[RIGHT] = make_sealed("somebody else")
    pair.send(left, b"are you there?")
    pair.run(5)
    assert left.state is State.OPEN
    assert pair.left.handshake_counters.resets_forged > 0
    pair.run(10)
    assert left.closed is not None
    assert "vanished" in left.closed.text


@WAYS
def test_two_that_both_forgot_do_not_tell_each_other_for_ever(expectation: PeerPin):
    pair, left, right = open_pair(expectation)
    pair.send(left, b"on its way")
    pair.send(right, b"on its way")
    restart(pair, "left")
    restart(pair, "right")
    seen = watch(pair)
    pair.run(10)
    assert [kind_of(it) for *_, it in seen] == [Kind.RESET, Kind.RESET]


@WAYS
def test_a_proof_that_is_made_up_changes_nothing(expectation: PeerPin):
    pair, left, right = open_pair(expectation)
    keys = keys_of(left)
    true = keys.proof
    made_up = [bytes(16), bytes([255] * 16), true[:-1] + bytes([true[-1] ^ 1]), true[::-1]]
    made_up.append(keys_of(right).proof)
    for proof in made_up:
        for peer in (keys.peer, keys.own, 0):
            for source in (RIGHT, ("10.6.6.6", 6)):
                assert answers(pair, pair.left, source, encode_reset(peer, proof)) == []
    assert answers(pair, pair.left, ("10.6.6.6", 6), encode_reset(keys.peer, true)) == []
    assert answers(pair, pair.left, RIGHT, encode_reset(keys.own, true)) == []
    assert pair.left.handshake_counters.resets_forged == len(made_up) * 6 + 2
    for size in range(21):
        answers(pair, pair.left, RIGHT, encode_reset(keys.peer, true)[:size])
    answers(pair, pair.left, RIGHT, encode_reset(keys.peer, true) + b"\0")
    assert pair.left.handshake_counters.resets_taken == 0
    assert left.state is State.OPEN
    assert pair.transfer(left, right, [b"x"]) == [b"x"]
    assert answers(pair, pair.left, RIGHT, encode_reset(keys.peer, true)) == []
    assert left.closed is not None


def test_resets_are_limited_and_counted():
    pair = SealedPair(1, limits=HandshakeLimits(resets_per_second=10))
    said = []
    for number in range(100):
        source = f"10.6.6.{number % 20}", 6
        sealed = encode_front(Kind.SEALED, 1 + number).ljust(50, b"\0")
        said += answers(pair, pair.right, source, sealed)
        welcome = encode_front(Kind.WELCOME, 1 + number).ljust(50, b"\0")
        said += answers(pair, pair.right, source, welcome)
    assert len(said) == 10
    counters = pair.right.handshake_counters
    assert (counters.resets_sent, counters.resets_over_rate) == (10, 190)
    assert len({decode_reset_untrusted(it) for it in said}) == 5, "each id has its own"


def test_one_address_has_a_quarter_of_the_resets_and_one_host_half():
    pair = SealedPair(1, limits=HandshakeLimits(resets_per_second=40))
    said = [
        sum(len(ask_for_reset(pair, ("10.6.6.6", port), number)) for number in range(100))
        for port in range(1, 5)
    ]
    assert said == [10, 10, 0, 0]
    assert len(ask_for_reset(pair, ("10.6.6.7", 1), 4711)) == 1


def test_made_up_datagrams_keep_no_peer_from_being_told_of_a_restart():
    """A thousand a second from ten ports of one host: a peer of another host is told at once."""
    pair, left, _ = open_pair(PeerPin(identity("right").public))
    restart(pair, "right")
    restarted = pair.endpoints[RIGHT]
    assert restarted.is_sealed
    for number in range(300):
        ask_for_reset(pair, ("10.6.6.6", 1 + number % 10), number, restarted)
        pair.run(0.001)
    pair.send(left, b"are you there?")
    for number in range(1000, 1200):
        ask_for_reset(pair, ("10.6.6.6", 1 + number % 10), number, restarted)
        pair.run(0.001)
    assert left.state is State.CLOSED
    assert restarted.handshake_counters.resets_sent < 100


def ask_for_reset(
    pair: SealedPair, source: Address, number: int, endpoint: Endpoint | None = None
) -> list[bytes]:
    sealed = encode_front(Kind.SEALED, 1 + number).ljust(50, b"\0")
    return answers(pair, endpoint or pair.right, source, sealed)


def test_an_answer_to_an_attempt_that_is_over_is_taken_back():
    """Left dials, restarts, and is welcomed: right learns at once that nobody waits."""
    for expectation in (PeerPin(identity("right").public), PeerPin()):
        pair = SealedPair(1, Faults(delay=0.05))
        pair.left.dial(0.0, [RIGHT], 0, expectation)
        pair.run(0.12)
        restart(pair, "left")
        pair.run(3.0)
        if expectation.key:
            assert pair.right.handshake_counters.resets_taken >= 1
            assert pair.right.connections == ()
        pair.run(10)
        for endpoint in pair.endpoints.values():
            check_forgotten(endpoint)


@WAYS
@pytest.mark.parametrize(("port", "is_taken"), [(2000, True), (2001, False)])
def test_of_two_nodes_with_one_identity_neither_ends_the_other_s_channels(
    expectation: PeerPin, port: int, is_taken: bool
):
    """Right's double is asked for a proof of right's; one that restarted on its port is right."""
    right, double = (make_sealed("right", port=it, seed=it) for it in (2000, port))
    pair = SealedPair(1)
    pair.right = pair.endpoints[RIGHT] = right
    left, _ = pair.open(expectation)
    pair.run(1)
    keys = keys_of(left)
    sealed = encode_front(Kind.SEALED, keys.peer).ljust(50, b"\0")
    (reset,) = answers_of(double, sealed)
    answers(pair, pair.left, RIGHT, reset)
    assert (left.closed is not None) == is_taken
    assert pair.left.handshake_counters.resets_taken == is_taken


def answers_of(endpoint: Endpoint, datagram: bytes) -> list[bytes]:
    endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(("10.6.6.6", 6), datagram))
    row = endpoint.poll_transmit(0.0)
    return list(row.datagrams) if row is not None else []
