"""Mallory carries everything between two peers, and does with it what it likes.

All that it can do is delay or drop: what is delivered is a prefix of what was sent, in order.
"""

from collections.abc import Callable
from random import Random

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.lifecycle import CloseReason, State
from sphtp.core.channel.security import PeerPin, RosterAuthenticator
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import VERSION, Kind
from sphtp.core.secure.identity import Identity
from sphtp.testing import Faults
from sphtp.testing.pair import Stage
from tests.attack.channel.mallory import Sent, kind_of, meddle, watch
from tests.core.channel.sealed import (
    LEFT,
    RIGHT,
    SealedPair,
    check_forgotten,
    identity,
    make_sealed,
)
from tests.core.channel.test_sealed_refusals import Introduced
from tests.soaked import soaked

KNOWN = PeerPin(identity("right").public)
SETTINGS = ChannelSettings(max_datagram=1200, congestion="cubic")
SENT = [b"%06d " % number * (number % 7 + 1) for number in range(150)]

Trick = Callable[[Random, Sent, list[Sent]], list[Sent]]


def flip(random: Random, sent: Sent, _: list[Sent]) -> list[Sent]:
    source, destination, datagram = sent
    bit = random.randrange(8 * len(datagram))
    altered = int.from_bytes(datagram, "little") ^ 1 << bit
    return [(source, destination, altered.to_bytes(len(datagram), "little"))]


def cut(random: Random, sent: Sent, _: list[Sent]) -> list[Sent]:
    return [(*sent[:2], sent[2][: random.randrange(len(sent[2]))])]


def swell(random: Random, sent: Sent, _: list[Sent]) -> list[Sent]:
    return [(*sent[:2], sent[2] + random.randbytes(random.choice((1, 100, 60_000))))]


def drop(_: Random, _sent: Sent, _seen: list[Sent]) -> list[Sent]:
    return []


def repeat(random: Random, sent: Sent, seen: list[Sent]) -> list[Sent]:
    return [sent, *(random.choice(seen) for _ in range(3))] if seen else [sent]


def reflect(_: Random, sent: Sent, _seen: list[Sent]) -> list[Sent]:
    return [sent, (sent[1], sent[0], sent[2])]


def relabel(random: Random, sent: Sent, _: list[Sent]) -> list[Sent]:
    """Make it say that it is something else: a CLOSE is DATA, and so is an ACK."""
    first = bytes([random.choice((VERSION, VERSION, 2)) << 4 | random.choice(list(Kind))])
    return [(*sent[:2], first + sent[2][1:])]


def graft(random: Random, sent: Sent, seen: list[Sent]) -> list[Sent]:
    """The front of one on the body of another."""
    other = random.choice(seen)[2] if seen else sent[2]
    at = random.choice((1, 5, 13, 17, 34))
    return [(*sent[:2], sent[2][:at] + other[at:])]


def elsewhere(_: Random, sent: Sent, _seen: list[Sent]) -> list[Sent]:
    return [(("10.6.6.6", 6), sent[1], sent[2])]


TRICKS: list[Trick] = [flip, cut, swell, drop, repeat, reflect, relabel, graft, elsewhere]


class Carried:
    """Left sends to right by way of Mallory, who plays one of its tricks on a share of it."""

    def __init__(self, seed: int, tricks: list[Trick], share: float) -> None:
        random, seen = Random(f"relay {seed}"), list[Sent]()
        self.name = f"seed {seed}"
        self.pair = SealedPair(seed, Faults(delay=0.01, jitter=0.005), SETTINGS)
        self.heard: list[bytes] = []
        self.answered: list[Connection] = []
        self.waiting = list(SENT)

        def change(sent: Sent) -> list[Sent]:
            is_meant = random.random() < share
            changed = random.choice(tricks)(random, sent, seen) if is_meant else [sent]
            seen.append(sent)
            return [it for it in changed if it[2]]

        meddle(self.pair, change)
        self.left = self.pair.left.dial(0.0, [RIGHT], 0, random.choice([KNOWN, PeerPin()]))

    def carry(self) -> None:
        left = self.left
        if (incoming := self.pair.right.poll_incoming()) is not None:
            self.answered.append(incoming)
        while self.waiting and left.state is State.OPEN:
            if not left.port.room_for([len(self.waiting[0])]):
                break
            left.port.send_many([self.waiting.pop(0)])
        self.pair.touch(left)
        for side in self.answered:
            self.heard += self.pair.receive(side)
        assert self.heard == SENT[: len(self.heard)], self.name

    def check(self) -> None:
        assert len(self.answered) <= 1, self.name
        for connection in (self.left, *self.answered):
            closed = connection.closed
            reasons = {CloseReason.UNREACHABLE, CloseReason.VANISHED, CloseReason.REFUSED}
            assert closed is None or closed.reason in reasons, (self.name, closed)
        for side in self.answered:
            assert side.peer_key == identity("left").public
            assert side.port.statistics().malformed == 0

    def end(self) -> None:
        for endpoint in (self.pair.left, self.pair.right):
            endpoint.close(self.pair.now, "over")
        self.pair.run(60)
        for endpoint in (self.pair.left, self.pair.right):
            check_forgotten(endpoint)


def play(seed: int, tricks: list[Trick], share: float) -> bool:
    """Return whether everything arrived."""
    carried = Carried(seed, tricks, share)
    carried.pair.run(40, carried.carry)
    carried.check()
    carried.end()
    return carried.heard == SENT


@pytest.mark.parametrize("seed", [0, *soaked(range(1, 20))])
@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: trick.__name__)
def test_each_trick_delays_or_drops_and_nothing_else(trick: Trick, seed: int):
    assert play(seed, [trick], 0.1)
    play(seed, [trick], 0.9)


@pytest.mark.parametrize("plays", [9, *soaked([60])])
def test_all_tricks_together_delay_or_drop_and_nothing_else(plays: int):
    arrived = [play(1000 + seed, TRICKS, (0.1, 0.3, 0.6)[seed % 3]) for seed in range(plays)]
    assert arrived.count(True) > plays / 2


def test_a_capture_holds_no_payload_and_no_name():
    """Not the payload, and by IK no public key either, neither of whom asks nor of whom answers."""
    pair = SealedPair(1)
    seen = watch(pair)
    left, right = pair.open(KNOWN)
    secret = b"nobody else's business, "
    assert pair.transfer(left, right, [secret * 5, secret * 5000]) == [secret * 5, secret * 5000]
    assert pair.transfer(right, left, [secret * 50]) == [secret * 50]
    left.close(pair.now)
    pair.touch(left)
    pair.run(5)
    captured = b"\0\0".join(datagram for *_, datagram in seen)
    assert len(captured) > 120_000
    assert {kind_of(datagram) for *_, datagram in seen} == {
        Kind.GREET, Kind.COOKIE, Kind.WELCOME, Kind.SEALED
    }  # fmt: skip
    for name in ("left", "right"):
        assert identity(name).public not in captured
        drawn = Random(name).getrandbits(256).to_bytes(32, "little")
        assert Identity(drawn).public == identity(name).public
        assert drawn not in captured
    for size in (len(secret), 12, 8):
        assert not any(secret[at : at + size] in captured for at in range(len(secret) - size + 1))


def test_a_liar_in_the_cluster_has_nobodys_id_but_its_own():
    """Mallory is a member, with a key that all know, and says that it is another one."""
    peers = {5: Introduced("left"), 7: Introduced("right"), 9: Introduced("mallory")}
    at, trust = ("10.6.6.6", 6), RosterAuthenticator(peers)
    right = make_sealed("right", peer_id=7, trust=trust)
    for claimed, accepted in ((5, False), (7, False), (0, False), (9, True)):
        mallory = make_sealed(
            "mallory", peer_id=claimed, trust=RosterAuthenticator({7: Introduced("right")})
        )
        stage = Stage(1, {RIGHT: right, at: mallory})
        dialled = mallory.dial(0.0, [RIGHT], 7)
        stage.run(1)
        assert right.has_incoming == accepted
        assert (dialled.closed is None) == accepted
    assert right.handshake_counters.denied == 3
    incoming = right.poll_incoming()
    assert incoming is not None
    assert (incoming.peer_id, incoming.peer_key) == (9, identity("mallory").public)
    left = make_sealed("left", peer_id=5, trust=trust)
    stage = Stage(1, {LEFT: left, at: make_sealed("mallory", peer_id=7)})
    dialled = left.dial(0.0, [at], 7)
    stage.run(20)
    assert dialled.closed is not None
    assert dialled.closed.text.endswith("it is another peer than the one wanted")
