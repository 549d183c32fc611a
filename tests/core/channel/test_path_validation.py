"""Peers whose address changes: followed when they have answered from there, and not before."""

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.path_validation import RETRY
from sphtp.core.channel.security import PeerPin
from sphtp.core.datagrams import Kind
from sphtp.testing import Faults
from sphtp.testing.network import Address
from tests.attack.channel.mallory import Sent, answers, kind_of, meddle
from tests.core.channel.sealed import LEFT, RIGHT, SealedPair, check_forgotten, identity, keys_of

NEW: Address = ("10.0.0.7", 7)
AWAY: Address = ("10.6.6.6", 6)
WAYS = pytest.mark.parametrize(
    "expectation", [PeerPin(identity("right").public), PeerPin()], ids=["IK", "XX"]
)


def open_pair(
    expectation: PeerPin, delay: float = 0.02
) -> tuple[SealedPair, Connection, Connection]:
    pair = SealedPair(1, Faults(delay=delay, jitter=0.01))
    left, right = pair.open(expectation)
    pair.run(0.5 + 10 * delay)
    return pair, left, right


def move(pair: SealedPair, old: Address, new: Address) -> None:
    """As a NAT does that forgot: what leaves has a new source, and the old one leads nowhere."""
    pair.endpoints[new] = pair.endpoints.pop(old)


@WAYS
@pytest.mark.parametrize("who", ["left", "right"])
def test_a_peer_that_moves_is_followed_and_nothing_is_lost(expectation: PeerPin, who: str):
    pair, left, right = open_pair(expectation)
    mover, stayer = (left, right) if who == "left" else (right, left)
    old = LEFT if who == "left" else RIGHT
    counters = (pair.right if who == "left" else pair.left).handshake_counters
    sent = [b"%04d" % number for number in range(400)]
    assert pair.transfer(mover, stayer, sent[:100]) == sent[:100]
    move(pair, old, NEW)
    assert pair.transfer(mover, stayer, sent) == sent
    pair.run(1)
    assert stayer.address == NEW
    assert pair.transfer(stayer, mover, sent) == sent
    assert (counters.paths_changed, left.state, right.state) == (1, State.OPEN, State.OPEN)
    mover.close(pair.now)
    pair.touch(mover)
    pair.run(30)
    for endpoint in pair.endpoints.values():
        check_forgotten(endpoint)


@pytest.mark.parametrize("delay", [0.09, 0.11, 0.15, 0.25])
def test_a_peer_that_moves_is_followed_over_any_round_trip(delay: float):
    """Also where the next challenge leaves before the first one can be answered."""
    pair, left, right = open_pair(PeerPin(), delay)
    assert 2 * 0.09 < RETRY < 2 * 0.11
    move(pair, LEFT, NEW)
    sent = [b"%03d" % number for number in range(100)]
    heard: list[bytes] = []
    for message in sent:
        pair.send(left, message)
        pair.run(0.05)
        heard += pair.receive(right)
    pair.run(3)
    assert heard + pair.receive(right) == sent
    assert (right.address, left.state, right.state) == (NEW, State.OPEN, State.OPEN)


@WAYS
def test_data_flows_in_order_while_a_path_is_tried(expectation: PeerPin):
    """The answers to the new address are lost for a while: what comes from there still counts."""
    pair, left, right = open_pair(expectation)
    move(pair, LEFT, NEW)
    pair.network.set_faults(Faults(blocked=True), RIGHT, NEW)
    for number in range(30):
        pair.send(left, b"%02d" % number)
        pair.run(0.05)
    heard = pair.receive(right)
    assert heard == [b"%02d" % number for number in range(len(heard))]
    assert len(heard) > 5
    assert (right.address, pair.right.handshake_counters.paths_changed) == (LEFT, 0)
    assert 2 <= pair.right.handshake_counters.paths_tried <= pair.now / RETRY + 1
    pair.network.set_faults(Faults(), RIGHT, NEW)
    pair.run(3)
    heard += pair.receive(right)
    assert heard == [b"%02d" % number for number in range(30)]
    assert (right.address, pair.right.handshake_counters.paths_changed) == (NEW, 1)


def test_a_copy_from_elsewhere_moves_nothing():
    """Even one that overtakes what it is a copy of; nobody there can answer the challenge."""
    for faster in (False, True):
        pair, left, right = open_pair(PeerPin())
        pair.network.set_faults(Faults(delay=0.001 if faster else 0.5), AWAY, RIGHT)
        meddle(pair, lambda sent: [sent, (AWAY, RIGHT, sent[2])] if sent[1] == RIGHT else [sent])
        sent = [b"%04d" % number for number in range(400)]
        assert pair.transfer(left, right, sent) == sent
        pair.run(2)
        counters = pair.right.handshake_counters
        assert right.address == LEFT
        assert counters.paths_changed == 0
        assert bool(counters.paths_tried) == faster
        assert counters.replayed > 0
        assert pair.transfer(right, left, sent) == sent


@WAYS
def test_an_answer_to_an_attempt_that_comes_from_elsewhere_moves_nothing(expectation: PeerPin):
    pair = SealedPair(1)

    def copy(sent: Sent) -> list[Sent]:
        is_sealed = sent[0] == RIGHT and kind_of(sent[2]) is Kind.SEALED
        return [(AWAY, *sent[1:])] if is_sealed and pair.now < 1 else [sent]

    meddle(pair, copy)
    left = pair.left.dial(0.0, [RIGHT], 0, expectation)
    pair.drive(lambda: pair.right.has_incoming, 4)
    right = pair.right.poll_incoming()
    assert right is not None
    assert left.address == RIGHT
    assert pair.transfer(left, right, [b"x"]) == [b"x"]


def test_an_answer_from_elsewhere_proves_nothing():
    """Mallory sees the challenge, and sends it back: it does not have the keys to do more."""
    pair, left, right = open_pair(PeerPin())
    caught: list[Sent] = []

    def copy(sent: Sent) -> list[Sent]:
        if sent[1] == AWAY:
            caught.append(sent)
            return []
        return [sent, (AWAY, RIGHT, sent[2])] if sent[1] == RIGHT else [sent]

    pair.network.set_faults(Faults(delay=0.001), AWAY, RIGHT)
    meddle(pair, copy)
    pair.send(left, b"x")
    pair.run(1)
    assert caught
    for *_, challenge in caught:
        echo = challenge[:1] + right.connection_id.to_bytes(4, "little") + challenge[5:]
        assert answers(pair, pair.right, AWAY, echo) == []
    assert (right.address, pair.right.handshake_counters.paths_changed) == (LEFT, 0)


def test_a_relay_may_carry_everything_and_go_again():
    """Mallory passes all on under its own address, both ways; then it is gone."""
    pair, left, right = open_pair(PeerPin())
    is_there = True

    def relay(sent: Sent) -> list[Sent]:
        _, destination, datagram = sent
        if not is_there:
            return [] if AWAY in sent[:2] else [sent]
        far = RIGHT if sent[0] in (LEFT,) else LEFT
        return [(AWAY, far, datagram)] if destination in (LEFT, RIGHT, AWAY) else []

    meddle(pair, relay)
    sent = [b"%04d" % number for number in range(300)]
    assert pair.transfer(left, right, sent) == sent
    assert pair.transfer(right, left, sent) == sent
    pair.run(2)
    assert {left.address, right.address} == {AWAY}, "that is where the other side answers from"
    is_there = False
    pair.run(30)
    for connection in (left, right):
        assert connection.closed is not None
        assert "vanished" in connection.closed.text


def test_a_path_is_tried_once_in_a_while_wherever_copies_come_from():
    pair, left, right = open_pair(PeerPin())
    keys = keys_of(left)
    ping = keys.data_front[:1] + right.connection_id.to_bytes(4, "little")
    said = 0
    for number in range(1000):
        sealed = keys.seal(RIGHT, ping + bytes(8), 13).data
        said += len(answers(pair, pair.right, ("10.6.6.6", number), sealed))
    assert said == 1
    assert pair.right.handshake_counters.paths_tried == 1


def test_what_was_overtaken_asks_nobody_where_it_came_from():
    """Nothing says that the peer is still there: others from elsewhere have come since."""
    pair, left, right = open_pair(PeerPin())
    left.port.send_many([b"overtaken"])
    pair.left.touch(left)
    overtaken = pair.left.poll_transmit(pair.now)
    assert overtaken is not None
    pair.transfer(left, right, [b"newer"])
    tried = pair.right.handshake_counters.paths_tried
    pair.right.handle_datagrams_untrusted(pair.now, overtaken._replace(address=AWAY))
    pair.run(1)
    assert pair.right.handshake_counters.paths_tried == tried
