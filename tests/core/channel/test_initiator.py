"""Attempts that have several addresses, cross the peer's own, or begin anew."""

from collections.abc import Iterator
from random import Random

import pytest

from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.noise import Answer, decode_greet_untrusted, encode_answer
from sphtp.core.channel.security import PeerPin
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Datagrams, Kind
from sphtp.testing import Faults
from sphtp.testing.pair import Stage
from tests.attack.channel.mallory import kind_of, watch
from tests.core.channel.sealed import (
    LEFT,
    RIGHT,
    SealedPair,
    check_forgotten,
    identity,
    make_sealed,
)
from tests.soaked import soaked

KNOWN = PeerPin(identity("right").public)
NOWHERE, ELSEWHERE = ("10.0.0.8", 8), ("10.0.0.9", 9)
PATIENT = ChannelSettings(connect_timeout=120, timeout=240, keepalive=60)


@pytest.mark.parametrize("expectation", [KNOWN, PeerPin()], ids=["IK", "XX"])
def test_of_many_addresses_the_first_to_answer_is_used(expectation: PeerPin):
    pair = SealedPair(1)
    pair.network.set_faults(Faults(delay=0.5), LEFT, RIGHT)
    candidates = [NOWHERE, RIGHT, ELSEWHERE]
    left = pair.left.dial(0.0, candidates, 0, expectation)
    pair.drive(lambda: pair.right.has_incoming)
    right = pair.right.poll_incoming()
    assert right is not None
    assert (left.state, left.address) == (State.OPEN, RIGHT)
    assert pair.transfer(left, right, [b"x"]) == [b"x"]


@pytest.mark.parametrize("expectation", [KNOWN, PeerPin()], ids=["IK", "XX"])
def test_one_that_refuses_does_not_keep_another_from_accepting(expectation: PeerPin):
    """Both have the key that is wanted; the one that has no room is the first to answer."""
    full, free = make_sealed("right"), make_sealed("right", seed=2)
    full.close(0.0, "its node closed")
    stage = Stage(1, {LEFT: make_sealed("left"), ELSEWHERE: full, RIGHT: free})
    stage.network.set_faults(Faults(delay=0.05), LEFT, RIGHT)
    left = stage.endpoints[LEFT].dial(0.0, [ELSEWHERE, RIGHT], 0, expectation)
    stage.drive(lambda: free.has_incoming, 3)
    right = free.poll_incoming()
    assert right is not None
    assert left.address == RIGHT
    assert stage.transfer(left, right, [b"x"]) == [b"x"]
    left.close(stage.now)
    stage.touch(left)
    stage.run(60)
    for endpoint in (full, free, stage.endpoints[LEFT]):
        check_forgotten(endpoint)


def test_one_that_has_two_addresses_gives_one_channel():
    """Right is reached on two ways, and answers on both."""
    pair = SealedPair(1)
    pair.endpoints[ELSEWHERE] = pair.right
    left = pair.left.dial(0.0, [RIGHT, ELSEWHERE], 0, KNOWN)
    pair.run(10)
    assert left.state is State.OPEN
    assert pair.right.poll_incoming() is not None
    assert pair.right.poll_incoming() is None
    assert len(pair.right.connections) == 1


def crossing(seed: int) -> Iterator[tuple[SealedPair, str]]:
    random = Random(f"crossing {seed}")
    loss = random.choice([0.0, 0.3, 0.6])
    faults = Faults(loss=loss, delay=0.02, jitter=0.05, duplicate=0.2, corrupt=loss / 10)
    pair = SealedPair(seed, faults, PATIENT)
    expectations = [
        random.choice([PeerPin(identity(name).public), PeerPin()]) for name in ("right", "left")
    ]
    pair.run(random.random() / 10)
    left = pair.left.dial(pair.now, [RIGHT], 0, expectations[0])
    pair.run(random.choice([0.0, 0.01, 0.05, 0.2]))
    right = pair.right.dial(pair.now, [LEFT], 0, expectations[1])
    # Of two that cross one counts, which by XX is six datagrams in a row: it may take its time.
    pair.run(PATIENT.connect_timeout - 10)
    yield pair, f"seed {seed}"
    assert State.CONNECTING not in (left.state, right.state), seed


@pytest.mark.parametrize("seeds", [range(10), *soaked([range(10, 300)])], ids=str)
def test_two_that_dial_each_other_at_once_get_one_channel_each_way_or_one(seeds: range):
    """As in the clear: who dialled while the other's CONNECT was on its way shares its channel."""
    for seed in seeds:
        for pair, name in crossing(seed):
            sides = []
            for endpoint in (pair.left, pair.right):
                while endpoint.poll_incoming() is not None:
                    pass
                sides.append([it for it in endpoint.connections if it.state is State.OPEN])
            left, right = sides
            assert len(left) == len(right), name
            assert 1 <= len(left) <= 2, name
            pair.network.set_default(Faults())
            for number, connection in enumerate(left):
                connection.port.send_many([b"%d" % number])
                pair.touch(connection)
            pair.run(60)
            heard = sorted(message for it in right for message in pair.receive(it))
            assert heard == [b"%d" % number for number in range(len(left))], name
            for connection in (*left, *right):
                assert connection.peer_key in {identity("left").public, identity("right").public}
                connection.close(pair.now)
                pair.touch(connection)
            pair.run(300)
            for endpoint in (pair.left, pair.right):
                check_forgotten(endpoint)


@pytest.mark.parametrize("seeds", [range(30), *soaked([range(30, 200)])], ids=str)
def test_an_attempt_that_is_given_up_while_both_dial_leaves_nothing_behind(seeds: range):
    """The other side's own goes on, and is no worse off for it."""
    for seed in seeds:
        random = Random(f"given up {seed}")
        pair = SealedPair(seed, Faults(loss=random.choice([0.0, 0.3]), jitter=0.05), PATIENT)
        left = pair.left.dial(0.0, [RIGHT], 0, random.choice([KNOWN, PeerPin()]))
        right = pair.right.dial(0.0, [LEFT], 0, PeerPin(identity("left").public))
        pair.run(random.random() / 8)
        left.close(pair.now)
        pair.touch(left)
        pair.run(100)
        incoming = pair.left.poll_incoming()
        if incoming is not None and right.state is State.OPEN:
            assert pair.transfer(right, incoming, [b"x"]) == [b"x"], seed
            right.close(pair.now)
            pair.touch(right)
        else:
            assert right.state is State.CLOSED, seed
        pair.network.set_default(Faults())
        pair.run(300)
        for endpoint in (pair.left, pair.right):
            check_forgotten(endpoint)


def test_a_peer_that_restarts_between_question_and_answer_is_reached_all_the_same():
    """With nothing but the defaults: half of the time is left for a second handshake."""
    pair = SealedPair(1, Faults(delay=0.02))
    seen = watch(pair)
    left = pair.left.dial(0.0, [RIGHT], 0, PeerPin())
    pair.drive(lambda: any(kind_of(it) is Kind.CONFIRM for *_, it in seen))
    restarted = pair.endpoints[RIGHT] = make_sealed("right", seed=2)
    pair.drive(lambda: left.state is not State.CONNECTING)
    assert left.state is State.OPEN
    pair.run(1)
    right = restarted.poll_incoming()
    assert right is not None
    assert pair.transfer(left, right, [b"x"]) == [b"x"]


def test_an_answer_that_is_long_in_coming_is_taken_beside_another_handshake():
    """The peer has answered, and is not heard: greeting anew must not throw away those keys."""
    pair = SealedPair(1, Faults(delay=0.02))
    seen = watch(pair)
    left = pair.left.dial(0.0, [RIGHT], 0, PeerPin())
    pair.drive(lambda: any(kind_of(it) is Kind.CONFIRM for *_, it in seen))
    pair.network.set_faults(Faults(blocked=True), RIGHT, LEFT)
    greets = sum(kind_of(it) is Kind.GREET for *_, it in seen)
    pair.run(3)
    assert sum(kind_of(it) is Kind.GREET for *_, it in seen) > greets, "it greets anew"
    pair.network.set_faults(Faults(delay=0.02), RIGHT, LEFT)
    pair.drive(lambda: left.state is not State.CONNECTING, 1)
    assert left.state is State.OPEN
    pair.run(1)
    right = pair.right.poll_incoming()
    assert right is not None
    assert pair.transfer(left, right, [b"x"]) == [b"x"]
    assert pair.right.handshake_counters.handshakes == 1


@pytest.mark.parametrize("expectation", [KNOWN, PeerPin()], ids=["IK", "XX"])
def test_an_opener_that_asks_on_is_remembered_on_both_sides(expectation: PeerPin):
    """What the peer says is lost for longer than it would keep one that fell silent."""
    pair = SealedPair(1, Faults(delay=0.02), ChannelSettings(connect_timeout=8.0))
    seen = watch(pair)
    left = pair.left.dial(0.0, [RIGHT], 0, expectation)
    pair.drive(lambda: any(kind_of(it) is Kind.WELCOME for *_, it in seen))
    pair.network.set_faults(Faults(blocked=True), RIGHT, LEFT)
    pair.run(7)
    pair.network.set_faults(Faults(delay=0.02), RIGHT, LEFT)
    pair.run(1)
    right = pair.right.poll_incoming()
    assert right is not None
    assert (left.state, right.state) == (State.OPEN, State.OPEN)
    assert pair.right.handshake_counters.handshakes == 1


def test_cookies_that_somebody_makes_up_do_not_keep_an_attempt_alive():
    """An address proves itself once; whoever reads a GREET can send any number of cookies."""
    pair = SealedPair(1, Faults(blocked=True))
    seen = watch(pair)
    left = pair.left.dial(0.0, [RIGHT], 0, PeerPin())
    pair.run(1)
    greet = decode_greet_untrusted(seen[0][2])
    while left.closed is None:
        for number in range(5):
            made_up = Answer(greet.token, number.to_bytes(16, "big"))
            cookie = encode_answer(Kind.COOKIE, greet.opener, made_up)
            pair.left.handle_datagrams_untrusted(pair.now, Datagrams.of(RIGHT, cookie))
        pair.run(0.1)
    assert pair.now == pytest.approx(1 + ChannelSettings().connect_timeout, abs=0.2)
    greets = sum(kind_of(it) is Kind.GREET for *_, it in seen)
    assert greets <= 2 * pair.now / 0.1 + 1, "one for each repeat of its own, at most"
